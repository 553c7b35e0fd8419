/** `virtualstack.elements`: numbers that typed arrays do not have, and strings that end before their bytes do. */

import { integer, type Json, list, object, text, view } from "../checks.js";
import { parseDtype } from "../dtype.js";
import { setInteger } from "./packed.js";

const SPACE = 0x20;

/** Part of each element: where its values are, and how one of them is written to the decoded bytes. */
interface Member {
  offset: number;
  count: number;
  size: number;
  /** Bytes of a decoded value. */
  width: number;
  write: (source: Uint8Array, out: DataView, at: number) => void;
}

/** Return the bytes that elements have before they are decoded to a number of bytes. */
export function storedSize(options: Json, size: number): number {
  const { itemsize, members } = parse(options);
  return isWhole(members, itemsize) ? (size / members[0].width) * members[0].size : size;
}

/** Decode elements. */
export function elements(source: Uint8Array, options: Json, limit: number): Uint8Array {
  const { itemsize, members } = parse(options);
  if (source.length % itemsize) throw new RangeError(`${source.length} bytes are not whole elements of ${itemsize}`);
  if (isWhole(members, itemsize)) {
    const [{ size, width, write }] = members;
    const n = source.length / size;
    if (n * width > limit) throw new RangeError(`the elements decode to ${n * width} bytes`);
    const out = new Uint8Array(n * width);
    const data = view(out);
    for (let i = 0; i < n; i++) write(source.subarray(i * size, (i + 1) * size), data, i * width);
    return out;
  }
  const out = source.slice();
  const data = view(out);
  for (const { offset, count, size, write } of members) {
    for (let at = offset; at < out.length; at += itemsize) {
      for (let i = 0; i < count; i++) write(out.slice(at + i * size, at + (i + 1) * size), data, at + i * size);
    }
  }
  return out;
}

/** Whether one member fills the element: only then its values may change their size. */
const isWhole = (members: Member[], itemsize: number): boolean => members.length === 1 && members[0].count * members[0].size === itemsize;

function parse(options: Json): { itemsize: number; members: Member[] } {
  const itemsize = integer(options["itemsize"], "itemsize", 1, 2 ** 31);
  const members = list(options["members"], "members", (x) => member(object(x, "a member"), itemsize));
  for (const { size, width } of members) if (size !== width && !isWhole(members, itemsize)) throw new RangeError("a value in the middle of an element changes its size");
  return { itemsize, members };
}

function member(found: Json, itemsize: number): Member {
  const kind = text(found["kind"], "kind of a member");
  const size = integer(found["size"], "size of a member", 1, itemsize);
  const offset = integer(found["offset"] ?? 0, "offset of a member", 0, itemsize);
  const count = integer(found["count"] ?? 1, "count of a member", 1, itemsize);
  if (offset + count * size > itemsize) throw new RangeError(`a member of ${count} values of ${size} bytes at byte ${offset} of ${itemsize}`);
  if (kind === "nullterm" || kind === "spacepad") return { offset, count, size, width: size, write: kind === "nullterm" ? untilNull : withoutSpaces };
  const dtype = parseDtype(found["dtype"]);
  const bits = list(found["bits"], "bits of a member", (x) => integer(x, "bits of a member", 0, 2 ** 31));
  const isLittle = !dtype.bigEndian;
  if (size > 8) throw new RangeError(`numbers of ${size} bytes`);
  const width = dtype.itemsize;
  if (kind === "integer" && "iu".includes(dtype.kind)) return { offset, count, size, width, write: integers(width, isLittle, dtype.kind === "i", size, bits) };
  if (kind === "float" && dtype.kind === "f") return { offset, count, size, width, write: floats(width, isLittle, size, bits) };
  throw new RangeError(`'${kind}' with the data type ${JSON.stringify(found["dtype"])}`);
}

const untilNull: Member["write"] = (source, out, at) => {
  const end = source.indexOf(0);
  for (let i = 0; i < source.length; i++) out.setUint8(at + i, end < 0 || i < end ? source[i] : 0);
};

const withoutSpaces: Member["write"] = (source, out, at) => {
  let end = source.length;
  while (end > 0 && source[end - 1] === SPACE) end -= 1;
  for (let i = 0; i < source.length; i++) out.setUint8(at + i, i < end ? source[i] : 0);
};

/** Return bytes as an integer without a sign. */
function bitsOf(bytes: Uint8Array, isLittle: boolean): bigint {
  let found = 0n;
  for (let i = 0; i < bytes.length; i++) found = (found << 8n) | BigInt(bytes[isLittle ? bytes.length - 1 - i : i]);
  return found;
}

const part = (bits: bigint, offset: number, n: number): bigint => BigInt.asUintN(n, bits >> BigInt(offset));

function integers(width: number, isLittle: boolean, isSigned: boolean, size: number, [offset, precision]: number[]): Member["write"] {
  if (!(precision > 0 && offset + precision <= 8 * size && size <= width)) throw new RangeError(`${precision} bits from bit ${offset} in ${size} bytes`);
  return (source, out, at) => {
    const found = part(bitsOf(source, isLittle), offset, precision);
    const value = isSigned ? BigInt.asIntN(precision, found) : found;
    setInteger(out, at, width, isLittle, width === 8 ? value : Number(value));
  };
}

/** Bits of the exponent and of the mantissa of floats, by their bytes. */
const LIMITS: Record<number, [number, number]> = { 2: [5, 10], 4: [8, 23], 8: [11, 52] };

function floats(width: number, isLittle: boolean, size: number, numbers: number[]): Member["write"] {
  const [sign, exponent, nExponent, mantissa, nMantissa, bias] = numbers;
  const [mostExponent, mostMantissa] = LIMITS[width];
  const isInside = Math.max(sign, exponent + nExponent - 1, mantissa + nMantissa - 1) < 8 * size;
  const [least, greatest] = [2 - 2 ** (mostExponent - 1), 2 ** (mostExponent - 1)];
  if (numbers.length !== 6 || !isInside || !nExponent || !nMantissa || nMantissa > mostMantissa || 1 - bias < least || 2 ** nExponent - bias - 1 > greatest) {
    throw new RangeError(`floats of ${nExponent} and ${nMantissa} bits in ${size} bytes do not fit into ${width} bytes`);
  }
  const special = 2 ** nExponent - 1;
  return (source, out, at) => {
    const bits = bitsOf(source, isLittle);
    const power = Number(part(bits, exponent, nExponent));
    const digits = Number(part(bits, mantissa, nMantissa));
    // without the implicit leading bit a number is subnormal
    let value = (digits + (power > 0 ? 2 ** nMantissa : 0)) * 2 ** (Math.max(power, 1) - bias - nMantissa);
    if (power === special) value = digits ? NaN : Infinity;
    if (part(bits, sign, 1)) value = -value;
    if (width === 8) out.setFloat64(at, value, isLittle);
    else if (width === 4) out.setFloat32(at, value, isLittle);
    else out.setUint16(at, halfOf(value), isLittle);
  };
}

/** Return the bits of a float that 16 bits hold exactly. */
function halfOf(value: number): number {
  const bits = new Uint32Array(Float32Array.of(value).buffer)[0];
  const sign = (bits >>> 16) & 0x8000;
  const power = ((bits >>> 23) & 255) - 127;
  if (Number.isNaN(value)) return sign | 0x7e00;
  if (power > 15) return sign | 0x7c00;
  if (power < -14) return sign | (Math.abs(value) * 2 ** 24);
  return sign | ((power + 15) << 10) | ((bits >>> 13) & 1023);
}
