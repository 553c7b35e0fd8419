/** The filters N-bit (5) and scale-offset (6) of HDF5, which store values in fewer bits. */

import { integer, type Json, list, view } from "../checks.js";

/** Return bits of packed bytes, 32 at most, as a number; the first bit is the most significant one. */
function bitsAt(bytes: Uint8Array, bit: number, width: number): number {
  let found = 0;
  for (let at = Math.floor(bit / 8), skip = bit % 8; width > 0; at++, skip = 0) {
    const n = Math.min(8 - skip, width);
    found = found * 2 ** n + ((bytes[at] >> (8 - skip - n)) & ((1 << n) - 1));
    width -= n;
  }
  return found;
}

/** Return up to 64 bits. */
function wideBitsAt(bytes: Uint8Array, bit: number, width: number): bigint {
  if (width <= 32) return BigInt(bitsAt(bytes, bit, width));
  return (BigInt(bitsAt(bytes, bit, width - 32)) << 32n) | BigInt(bitsAt(bytes, bit + width - 32, 32));
}

/** Write an integer of 1, 2, 4 or 8 bytes without a sign; what does not fit wraps. */
export function setInteger(data: DataView, at: number, size: number, isLittle: boolean, value: number | bigint): void {
  if (size === 8) data.setBigUint64(at, BigInt(value), isLittle);
  else if (size === 4) data.setUint32(at, Number(value), isLittle);
  else if (size === 2) data.setUint16(at, Number(value), isLittle);
  else data.setUint8(at, Number(value));
}

/** Return the client data values of a filter. */
const words = (options: Json): number[] => list(options["values"], "values of a filter", (x) => integer(x, "a value of a filter", 0, 2 ** 32 - 1));

const [ATOMIC, ARRAY, COMPOUND, OTHER] = [1, 2, 3, 4];
const MAX_LEVELS = 32;
const MAX_NUMBER_BYTES = 256;

/** A part of an element: how many bytes and packed bits it has, and a function that unpacks it. */
interface Part {
  size: number;
  bits: number;
  unpack: (source: Uint8Array, bit: number, out: DataView, at: number) => void;
}

/** Decode a chunk of the filter N-bit, whose client data values describe the data type as a tree, depth first. */
export function nbit(source: Uint8Array, options: Json, limit: number): Uint8Array {
  const values = words(options);
  if (values.length > 1 && values[1]) return source;
  if (values.length < 5 || values[0] !== values.length || values[3] === OTHER) throw new RangeError("the parameters describe no data type");
  const n = values[2];
  let next = 4;
  let nCompounds = 0;
  const take = (): number => {
    if (next >= values.length) throw new RangeError("the parameters are too few for their data type");
    return values[next++];
  };
  const read = (kind: number, depth = 0): Part => {
    const size = take();
    if (size < 1 || depth > MAX_LEVELS) throw new RangeError(`a data type of ${size} bytes, ${depth} levels deep`);
    if (kind === ATOMIC) return packedNumber(size, take(), take(), take());
    if (kind === OTHER) return repeated(packedNumber(1, 0, 8, 0), size);
    if (kind === ARRAY) {
      const base = take();
      // HDF5 goes back to the parameters of the base type, and then misreads later values
      if (nCompounds && (base === ARRAY || base === COMPOUND)) throw new RangeError("arrays of arrays or of compounds in a compound");
      const part = read(base, depth + 1);
      return base === OTHER ? repeated(packedNumber(1, 0, 8, 0), size) : { ...repeated(part, Math.floor(size / part.size)), size };
    }
    if (kind !== COMPOUND) throw new RangeError(`a data type of class ${kind}`);
    nCompounds += 1;
    const members: [number, Part][] = [];
    for (let left = take(); left > 0; left--) {
      const [at, inner] = [take(), take()];
      members.push([at, read(inner, depth + 1)]);
      if (at + members.at(-1)![1].size > size) throw new RangeError("a member reaches outside its compound");
    }
    nCompounds -= 1;
    return joined(members, size);
  };
  const part = read(values[3]);
  if (n * part.size > limit) throw new RangeError(`the parameters declare ${n * part.size} bytes`);
  if (n * part.bits > 8 * source.length) throw new RangeError(`the chunk has ${source.length} bytes, fewer than ${n} elements of ${part.bits} bits`);
  const out = new Uint8Array(n * part.size);
  repeated(part, n).unpack(source, 0, view(out), 0);
  return out;
}

function repeated({ size, bits, unpack }: Part, n: number): Part {
  return {
    size: n * size,
    bits: n * bits,
    unpack: (source, bit, out, at) => {
      for (let i = 0; i < n; i++) unpack(source, bit + i * bits, out, at + i * size);
    },
  };
}

/** Join parts at places of the decoded element; their packed bits follow each other. */
function joined(parts: [number, Part][], size: number): Part {
  return {
    size,
    bits: parts.reduce((n, [, x]) => n + x.bits, 0),
    unpack: (source, bit, out, at) => {
      for (const [place, part] of parts) {
        part.unpack(source, bit, out, at + place);
        bit += part.bits;
      }
    },
  };
}

function packedNumber(size: number, order: number, width: number, shift: number): Part {
  if (size > MAX_NUMBER_BYTES || order > 1 || width < 1 || width + shift > 8 * size) {
    throw new RangeError(`numbers of ${width} bits at bit ${shift} of ${size} bytes in byte order ${order}`);
  }
  const isLittle = order === 0;
  if (size === 8) {
    return { size, bits: width, unpack: (source, bit, out, at) => setInteger(out, at, 8, isLittle, wideBitsAt(source, bit, width) << BigInt(shift)) };
  }
  if (size === 1 || size === 2 || size === 4) {
    return { size, bits: width, unpack: (source, bit, out, at) => setInteger(out, at, size, isLittle, bitsAt(source, bit, width) * 2 ** shift) };
  }
  const top = width + shift; // byte by byte, from the most significant one
  const bytes: [number, Part][] = [];
  for (let byte = Math.floor((top - 1) / 8); byte >= Math.floor(shift / 8); byte--) {
    const [low, high] = [Math.max(shift, 8 * byte), Math.min(top, 8 * byte + 8)];
    bytes.push([isLittle ? byte : size - 1 - byte, packedNumber(1, 0, high - low, low - 8 * byte)]);
  }
  return joined(bytes, size);
}

const HEADER_BYTES = 21;
const [DECIMALS, INTEGERS] = [0, 2];

/**
 * Decode a chunk of the filter scale-offset.
 *
 * The chunk has the bits of a packed number (4 bytes), the size (1) and bytes (16) of the minimum, and packed numbers.
 */
export function scaleOffset(source: Uint8Array, options: Json, limit: number): Uint8Array {
  const values = words(options);
  const [scaling, factor, n, kind, size, sign, order, hasFill] = values;
  const isFloat = kind === 1;
  const sizes = isFloat ? [4, 8] : [1, 2, 4, 8];
  if (values.length !== 20 || kind > 1 || !sizes.includes(size) || sign > 1 || order > 1 || hasFill > 1 || (!isFloat && (factor | 0) > 8 * size) || scaling !== (isFloat ? DECIMALS : INTEGERS)) {
    throw new RangeError(`the parameters ${values.slice(0, 8).join(", ")} are unknown`);
  }
  if (!isFloat && factor === 8 * size) return source;
  if (n * size > limit) throw new RangeError(`the parameters declare ${n * size} bytes`);
  if (source.length < HEADER_BYTES) throw new RangeError("the chunk is shorter than its header");
  const width = view(source).getUint32(0, true);
  const body = source.subarray(HEADER_BYTES);
  if (width > 8 * size || n * width > 8 * body.length) throw new RangeError(`the chunk has ${body.length} bytes for ${n} numbers of ${width} bits`);
  const out = new Uint8Array(n * size);
  const data = view(out);
  const isLittle = order === 0;
  if (width === 8 * size) {
    if (isLittle) out.set(body.subarray(0, out.length));
    else for (let i = 0; i < out.length; i++) out[i - (i % size) + size - 1 - (i % size)] = body[i];
    return out;
  }
  const least = new Uint8Array(8);
  least.set(source.subarray(5, 5 + Math.min(source[4], 8)));
  const fill = Uint32Array.from(values.slice(8, 10));
  const write = isFloat ? floats(view(least), data, size, isLittle, factor | 0) : integers(view(least), data, size, isLittle);
  const last = width > 32 ? 2n ** BigInt(width) - 1n : 2 ** width - 1; // means the fill value
  for (let i = 0, bit = 0; i < n; i++, bit += width) {
    const packed = width > 32 ? wideBitsAt(body, bit, width) : bitsAt(body, bit, width);
    if (hasFill && packed === last) setInteger(data, i * size, size, isLittle, size === 8 ? (BigInt(fill[1]) << 32n) | BigInt(fill[0]) : fill[0]);
    else write(i * size, packed);
  }
  return out;
}

type Write = (at: number, packed: number | bigint) => void;

function integers(least: DataView, data: DataView, size: number, isLittle: boolean): Write {
  const start = least.getBigUint64(0, true);
  if (size === 8) return (at, packed) => setInteger(data, at, size, isLittle, BigInt(packed) + start);
  const low = least.getUint32(0, true);
  return (at, packed) => setInteger(data, at, size, isLittle, Number(packed) + low);
}

/** Divide by a power of ten and add the minimum, in the precision of the values. */
function floats(least: DataView, data: DataView, size: number, isLittle: boolean, decimals: number): Write {
  const power = Number(`1e${decimals}`);
  if (size === 8) {
    const start = least.getFloat64(0, true);
    return (at, packed) => data.setFloat64(at, Number(packed) / power + start, isLittle);
  }
  const [divisor, start] = [Math.fround(power), least.getFloat32(0, true)];
  return (at, packed) => data.setFloat32(at, Math.fround(Math.fround(Number(packed)) / divisor) + start, isLittle);
}
