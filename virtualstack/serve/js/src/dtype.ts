/** Data types as numpy's .npy format describes them, and bytes in the order that typed arrays have. */

import { ManifestError, UnsupportedFeatureError } from "./errors.js";
import { product, view } from "./checks.js";

/** A data type. `name` is the description with a byte order of `<` or `|`. */
export interface DType {
  kind: "b" | "i" | "u" | "f" | "c" | "m" | "M" | "S" | "U" | "V" | "string" | "fields";
  /** Bytes of an element; 0 for text of any length. */
  itemsize: number;
  bigEndian: boolean;
  /** Such as `ns`, for dates and durations; with a number, as in `25s`, if it is not 1. */
  unit?: string;
  fields?: Field[];
  description: unknown;
}

interface Field {
  name: string;
  offset: number;
  dtype: DType;
  shape: number[];
}

const MAX_DEPTH = 64;

/** Return the data type that a store describes. */
export function parseDtype(description: unknown, depth = 0): DType {
  if (typeof description === "string") return parseText(description);
  if (!Array.isArray(description) || depth > MAX_DEPTH) throw wrong(description);
  const fields: Field[] = [];
  let offset = 0;
  for (const item of description) {
    if (!Array.isArray(item) || item.length < 2 || item.length > 3) throw wrong(description);
    const name: unknown = Array.isArray(item[0]) ? item[0][1] : item[0];
    const shape: unknown = typeof item[2] === "number" ? [item[2]] : (item[2] ?? []);
    if (typeof name !== "string" || !Array.isArray(shape)) throw wrong(description);
    if (!shape.every((n) => Number.isSafeInteger(n) && n >= 0)) throw wrong(description);
    const dtype = parseDtype(item[1], depth + 1);
    if (dtype.kind === "string") throw wrong(description);
    const elements = product(shape.map((n) => Math.max(n, 1)));
    if (dtype.itemsize * product(shape) === 0 && elements > 2 ** 16) throw wrong(description);
    if (name !== "") fields.push({ name, offset, dtype, shape });
    offset += dtype.itemsize * product(shape);
  }
  if (offset > 2 ** 31) throw wrong(description);
  return { kind: "fields", itemsize: offset, bigEndian: false, fields, description };
}

const SIZES: Record<string, number[]> = {
  b: [1], i: [1, 2, 4, 8], u: [1, 2, 4, 8], f: [2, 4, 8], c: [8, 16], m: [8], M: [8],
};

function parseText(description: string): DType {
  if (description === "string") return { kind: "string", itemsize: 0, bigEndian: false, description };
  const match = /^([<>|=])([biufcmMSUV])(\d{1,9})(?:\[(\w+)\])?$/.exec(description);
  if (!match) throw wrong(description);
  const [, order, kind, digits, unit] = match;
  const size = Number(digits);
  if (kind in SIZES && !SIZES[kind].includes(size)) {
    throw new UnsupportedFeatureError(`the data type '${description}' has no counterpart in JavaScript`);
  }
  const itemsize = kind === "U" ? 4 * size : size;
  return { kind: kind as DType["kind"], itemsize, bigEndian: order === ">" && itemsize > 1, unit, description };
}

function wrong(description: unknown): ManifestError {
  return new ManifestError(`the store is damaged: ${JSON.stringify(description)?.slice(0, 80)} is not a data type`);
}

/** Whether two data types differ at most in byte order and padding. */
export function isAlike(a: DType, b: DType): boolean {
  if (a.kind !== b.kind || (a.unit ?? "") !== (b.unit ?? "")) return false;
  if (!a.fields || !b.fields) return a.itemsize === b.itemsize;
  return (
    a.fields.length === b.fields.length &&
    a.fields.every((x, i) => {
      const y = b.fields![i];
      return x.name === y.name && x.shape.join() === y.shape.join() && isAlike(x.dtype, y.dtype);
    })
  );
}

/** Numbers of an element: where they are, where they go, bytes of each, how many, and whether their bytes are reversed. */
type Move = [from: number, to: number, size: number, count: number, reverse: boolean];

function moves(from: DType, to: DType, a = 0, b = 0, out: Move[] = []): Move[] {
  if (from.fields && to.fields) {
    from.fields.forEach((x, i) => {
      const y = to.fields![i];
      const n = product(x.shape);
      if (!x.dtype.fields) moves(x.dtype, y.dtype, a + x.offset, b + y.offset, out).at(-1)![3] *= n;
      else for (let k = 0; k < n; k++) moves(x.dtype, y.dtype, a + x.offset + k * x.dtype.itemsize, b + y.offset + k * y.dtype.itemsize, out);
      if (out.length > 2 ** 16) throw new UnsupportedFeatureError("a data type has more than 65536 fields");
    });
    return out;
  }
  if (from.kind === "U") out.push([a, b, 4, from.itemsize / 4, from.bigEndian]);
  else if (from.kind === "c") out.push([a, b, from.itemsize / 2, 2, from.bigEndian]);
  else out.push([a, b, from.itemsize, 1, from.bigEndian]);
  return out;
}

/** Return elements of one data type as those of another that differs in byte order and padding, in little-endian bytes. */
export function toLittleEndian(bytes: Uint8Array, from: DType, to: DType): Uint8Array {
  const plan = moves(from, to);
  if (!from.fields && !plan[0][4]) return bytes;
  const n = from.itemsize ? bytes.length / from.itemsize : 0;
  const out = new Uint8Array(n * to.itemsize);
  for (let k = 0; k < n; k++) {
    for (const [a, b, size, count, reverse] of plan) {
      let source = k * from.itemsize + a;
      let target = k * to.itemsize + b;
      for (let c = 0; c < count; c++, source += size, target += size) {
        if (reverse) for (let i = 0; i < size; i++) out[target + i] = bytes[source + size - 1 - i];
        else for (let i = 0; i < size; i++) out[target + i] = bytes[source + i];
      }
    }
  }
  return out;
}

/** Raise an error if text of fixed length has a number that is not a character. */
export function checkText(bytes: Uint8Array, dtype: DType): void {
  if (dtype.kind !== "U") return;
  const data = view(bytes);
  for (let i = 0; i + 4 <= bytes.length; i += 4) {
    if (data.getUint32(i, true) > 0x10ffff) throw new ManifestError("text contains a number that is not a character");
  }
}

export type Numbers =
  | Int8Array | Uint8Array | Int16Array | Uint16Array | Int32Array | Uint32Array
  | Float32Array | Float64Array | BigInt64Array | BigUint64Array;

interface NumbersConstructor {
  new (length: number): Numbers;
  new (buffer: ArrayBufferLike, offset: number, length: number): Numbers;
}

const ARRAYS: Record<string, NumbersConstructor> = {
  b1: Uint8Array, i1: Int8Array, u1: Uint8Array, i2: Int16Array, u2: Uint16Array, i4: Int32Array, u4: Uint32Array,
  i8: BigInt64Array, u8: BigUint64Array, f4: Float32Array, f8: Float64Array, m8: BigInt64Array, M8: BigInt64Array,
};

/** Return a typed array of numbers of a data type: how many, or what they are in little-endian bytes. */
export function numbers(dtype: DType, from: number | Uint8Array): Numbers {
  const constructor = ARRAYS[`${dtype.kind}${dtype.itemsize}`];
  if (!constructor) throw new UnsupportedFeatureError(`no arithmetic with the data type ${JSON.stringify(dtype.description)}`);
  if (typeof from === "number") return new constructor(from);
  const aligned = from.byteOffset % dtype.itemsize ? from.slice() : from;
  return new constructor(aligned.buffer, aligned.byteOffset, Math.floor(aligned.byteLength / dtype.itemsize));
}

/** Return the bytes of a typed array. */
export const bytesOf = (x: Numbers): Uint8Array => new Uint8Array(x.buffer, x.byteOffset, x.byteLength);

/** Return numbers as those of another data type. */
export function cast(from: Numbers, dtype: DType): Numbers {
  const to = numbers(dtype, from.length);
  const big = to instanceof BigInt64Array || to instanceof BigUint64Array;
  if (from instanceof BigInt64Array || from instanceof BigUint64Array) {
    if (big) for (let i = 0; i < from.length; i++) to[i] = from[i];
    else for (let i = 0; i < from.length; i++) to[i] = Number(from[i]);
  } else if (big) for (let i = 0; i < from.length; i++) to[i] = BigInt(Math.trunc(from[i]) || 0);
  else for (let i = 0; i < from.length; i++) to[i] = from[i];
  return to;
}

/** Return floats of 16 bits as floats of 32 bits. */
export function fromHalf(bytes: Uint8Array): Uint8Array {
  const data = view(bytes);
  const out = new Float32Array(bytes.length / 2);
  for (let i = 0; i < out.length; i++) {
    const x = data.getUint16(2 * i, true);
    const sign = x & 0x8000 ? -1 : 1;
    const exponent = (x >> 10) & 31;
    const mantissa = x & 1023;
    if (exponent === 31) out[i] = mantissa ? NaN : sign * Infinity;
    else out[i] = sign * (exponent ? 2 ** (exponent - 25) * (1024 + mantissa) : 2 ** -24 * mantissa);
  }
  return new Uint8Array(out.buffer);
}
