/** Values of attributes: as JavaScript has them, and as JSON has them. */

import { type Json, integer, list, object, product, text } from "./checks.js";
import { type DType, parseDtype, toLittleEndian, numbers, fromHalf } from "./dtype.js";
import { ManifestError } from "./errors.js";
import { view } from "./checks.js";

const MAX_DEPTH = 64; // of values in each other, and of axes, as in numpy

/** The bytes of the field `heap` of a snapshot. */
export class Heap {
  constructor(private readonly bytes: Uint8Array) {}

  range(value: unknown, what: string): Uint8Array {
    const [offset, length] = list(value, what, (x) => integer(x, what), 2);
    if (offset + length > this.bytes.length) throw new ManifestError(`the store is damaged: ${what} is outside the heap`);
    return this.bytes.subarray(offset, offset + length);
  }
}

/** Return the value of an attribute: numbers, bigints, text, lists of them, `Uint8Array` for bytes. */
export function attribute(value: unknown, heap: Heap, depth = 0): unknown {
  if (depth > MAX_DEPTH) throw new ManifestError(`the store is damaged: an attribute is nested more than ${MAX_DEPTH} deep`);
  if (value === null || typeof value === "boolean" || typeof value === "string" || typeof value === "number") return value;
  if (Array.isArray(value)) return value.map((x) => attribute(x, heap, depth + 1));
  const entries = Object.entries(object(value, "an attribute"));
  if (entries.length !== 1) throw new ManifestError("the store is damaged: an attribute is an object of several fields");
  const [kind, content] = entries[0];
  if (kind === "tuple") return list(content, "a tuple", (x) => attribute(x, heap, depth + 1));
  if (kind === "dict") return attributes(content, heap, depth + 1);
  if (kind === "bytes") return heap.range(content, "bytes of an attribute");
  if (kind === "int") return wide(text(content, "an integer"));
  if (kind === "float") return { nan: NaN, inf: Infinity, "-inf": -Infinity }[text(content, "a float")] ?? NaN;
  if (kind === "strings") {
    const [shape, items] = list(content, "texts", (x) => x, 2);
    const lengths = list(shape, "a shape", (x) => integer(x, "a length"));
    if (product(lengths.map((x) => Math.max(x, 1))) > Math.max(list(items, "texts", text).length, 2 ** 16)) {
      throw new ManifestError("the store is damaged: texts of an attribute have another number than their shape says");
    }
    return nested(list(items, "texts", text), lengths);
  }
  if (kind === "array" || kind === "scalar") {
    const [dtype, shape, range] = list(content, "an array", (x) => x, 3);
    return array(parseDtype(dtype), list(shape, "a shape", (x) => integer(x, "a length")), heap.range(range, "an array of an attribute"));
  }
  throw new ManifestError(`the store is damaged: an attribute is of the unknown kind '${kind}'`);
}

function wide(digits: string): bigint {
  if (!/^-?\d{1,5000}$/.test(digits)) throw new ManifestError("the store is damaged: an integer is not in digits");
  return BigInt(digits);
}

export function attributes(value: unknown, heap: Heap, depth = 0): Json {
  const found = Object.entries(object(value, "attributes")).map(([k, v]) => [k, attribute(v, heap, depth)]);
  return Object.fromEntries(found) as Json;
}

function array(dtype: DType, shape: number[], bytes: Uint8Array): unknown {
  const n = product(shape);
  if (dtype.itemsize * n !== bytes.length || (bytes.length === 0 && product(shape.map((x) => Math.max(x, 1))) > 2 ** 16)) {
    throw new ManifestError("the store is damaged: an array of an attribute has another size than its bytes");
  }
  return nested(elements(dtype, bytes, n), shape);
}

function nested(items: unknown[], shape: number[]): unknown {
  if (items.length !== product(shape) || shape.length > MAX_DEPTH) throw new ManifestError("the store is damaged: an array of an attribute has another shape");
  if (shape.length === 0) return items[0];
  const [n, ...rest] = shape;
  const size = product(rest);
  return Array.from({ length: n }, (_, i) => nested(items.slice(i * size, (i + 1) * size), rest));
}

/** Return elements as JavaScript has them; dates and durations are counts, as bigints. */
export function elements(dtype: DType, bytes: Uint8Array, n: number): unknown[] {
  const part = (i: number): Uint8Array => bytes.subarray(i * dtype.itemsize, (i + 1) * dtype.itemsize);
  if (dtype.fields) {
    const one = (i: number): unknown =>
      Object.fromEntries(
        dtype.fields!.map((f) => {
          const count = product(f.shape);
          const raw = part(i).subarray(f.offset, f.offset + count * f.dtype.itemsize);
          return [f.name, nested(elements(f.dtype, raw, count), f.shape)];
        }),
      );
    return Array.from({ length: n }, (_, i) => one(i));
  }
  const little = toLittleEndian(bytes, dtype, dtype);
  if (dtype.kind === "S") return Array.from({ length: n }, (_, i) => new TextDecoder().decode(part(i)).replace(/\0+$/, ""));
  if (dtype.kind === "U") {
    return Array.from({ length: n }, (_, i) => {
      const data = view(little.subarray(i * dtype.itemsize, (i + 1) * dtype.itemsize));
      let found = "";
      for (let k = 0; k < dtype.itemsize; k += 4) {
        const code = data.getUint32(k, true);
        if (code > 0x10ffff) throw new ManifestError("the store is damaged: text contains a number that is not a character");
        found += String.fromCodePoint(code);
      }
      return found.replace(/\0+$/, "");
    });
  }
  if (dtype.kind === "V") return Array.from({ length: n }, (_, i) => part(i).slice());
  if (dtype.kind === "c") {
    const half = { ...dtype, kind: "f", itemsize: dtype.itemsize / 2 } as DType;
    const parts = numbers(half, little);
    return Array.from({ length: n }, (_, i) => [parts[2 * i], parts[2 * i + 1]]);
  }
  if (dtype.kind === "f" && dtype.itemsize === 2) return [...new Float32Array(fromHalf(little).buffer)];
  const found: unknown[] = [...numbers(dtype, little)];
  return dtype.kind === "b" ? found.map(Boolean) : found;
}

/** Return an attribute as zarr metadata has it: no bigint that a number can be, and text for what JSON lacks. */
export function toJson(value: unknown): unknown {
  if (typeof value === "bigint") {
    const n = Number(value);
    return Number.isSafeInteger(n) ? n : value.toString();
  }
  if (typeof value === "number" && !Number.isFinite(value)) return Number.isNaN(value) ? "NaN" : value > 0 ? "Infinity" : "-Infinity";
  if (value instanceof Uint8Array) return btoa(Array.from(value, (x) => String.fromCharCode(x)).join(""));
  if (Array.isArray(value)) return value.map(toJson);
  if (typeof value === "object" && value !== null) {
    return Object.fromEntries(Object.entries(value).map(([k, v]) => [k, toJson(v)]));
  }
  return value;
}
