/** Read values with zarrita from a store: the cells of a server, or a vstack. */

import * as zarr from "zarrita";
import { dates } from "./calendar";
import type { Attributes } from "./facts";
import { degrees, digits, tickText } from "./geometry";
import { wholes } from "./layers";
import { value } from "./text";

export { labelsOf, locate, type Grid } from "./locate";
export const coast = async () => (await import("./coast")).coast;

/** How stored numbers become values, as the CF conventions say. */
export interface Packing {
  scale: number;
  offset: number;
  /** Integers of more than 53 bits are bigints. */
  missing: (number | bigint)[];
  isUnsigned: boolean;
  /** What is done, in words; empty if the stored numbers are the values. */
  text: string;
}

export interface Live {
  dims: string[];
  shape: number[];
  chunks: number[];
  /** All of them, to the last character. */
  attributes: Attributes;
  packing: Packing;
  /** Bytes of one chunk when it is decoded. */
  chunkBytes: number;
  /** Bits of a stored number. */
  bits: number;
  /** Read a part: a number selects along a dimension, others are ranges. */
  read(selection: (number | Range)[]): Promise<Float64Array>;
  /** Read a few values of the chunk at a place, from the least to the greatest, in few bytes. */
  some: ((at: number[]) => Promise<Float64Array>) | null;
}

export type Range = [begin: number, stop: number, step?: number];

const NUMBERS = /^(u?int(8|16|32|64)|float(16|32|64)|bool)$/;
const bitsOf = (dtype: string): number => Number(/\d+/.exec(dtype)?.[0] ?? 8);

/** The store of a cube; a server gives a few values of a chunk. */
export type Cube = zarr.AsyncReadable & { some?(path: string, at: number[]): Promise<ArrayBuffer> };

const ELEMENTS: Record<string, new (x: ArrayBuffer) => StoredNumbers> = {
  bool: Uint8Array, int8: Int8Array, uint8: Uint8Array, int16: Int16Array, uint16: Uint16Array, int32: Int32Array, uint32: Uint32Array,
  int64: BigInt64Array, uint64: BigUint64Array, float32: Float32Array, float64: Float64Array,
};

type Stored = zarr.Array<zarr.DataType, zarr.AsyncReadable>;

/** Open an array. zarrita reads paths as parts of a URL, so that "%41", "#" and ":" in names would change. */
async function openArray(cube: Cube, path: string): Promise<Stored> {
  const keys: Cube = { get: (key, options) => cube.get(`/${path}${key}`, options) };
  return (await zarr.open.v3(zarr.root(keys), { kind: "array" })) as Stored;
}

/** Open a variable of a cube. */
export async function open(cube: Cube, path: string): Promise<Live> {
  const array = await openArray(cube, path);
  if (!NUMBERS.test(array.dtype)) throw new Error(`Values of type ${array.dtype} cannot be drawn.`);
  const packing = readPacking(array.attrs, array.dtype);
  const dims = array.dimensionNames ?? array.shape.map((_, i) => `dimension ${i}`);
  const itemBytes = bitsOf(array.dtype) / 8;
  const isBoolean = array.dtype === "bool";
  const Elements = ELEMENTS[array.dtype];
  return {
    dims: dims.map((name, i) => name ?? `dimension ${i}`),
    shape: array.shape,
    chunks: array.chunks,
    attributes: isBoolean ? { ...array.attrs, dtype: "bool" } : array.attrs,
    packing,
    bits: itemBytes * 8,
    chunkBytes: array.chunks.reduce((a, b) => a * b, itemBytes),
    async read(selection) {
      const parts = selection.map((x) => (typeof x === "number" ? x : zarr.slice(...x)));
      const found: unknown = await zarr.get(array, parts);
      const data = typeof found === "object" && found !== null && "data" in found ? found.data : [found];
      return decode(isBoolean ? Uint8Array.from(data as Iterable<boolean>, Number) : (data as ArrayLike<number | bigint>), packing, itemBytes * 8);
    },
    some: cube.some && Elements ? async (at) => decode(new Elements(await cube.some!(`/${path}`, at)), packing, itemBytes * 8) : null,
  };
}

function numbers(x: unknown): number[] {
  return (Array.isArray(x) ? x : [x]).filter((y) => typeof y === "number");
}

/** Return numbers that mean that there is no value; integers that JSON numbers are too short for are text. */
function missingNumbers(x: unknown, dtype: string): (number | bigint)[] {
  if (typeof x === "string" && dtype.startsWith("float")) return fromBase64(x);
  if (!/int64$/.test(dtype)) return numbers(x);
  return (Array.isArray(x) ? x : [x]).flatMap((y): (number | bigint)[] => (typeof y === "string" && /^-?\d+$/.test(y) ? [BigInt(y)] : numbers(y)));
}

/** A `_FillValue` of floats: zarr 3 has it as the bytes of a float64. */
function fromBase64(text: string): number[] {
  if (!/^[A-Za-z0-9+/]{11}=$/.test(text)) return [];
  return [new DataView(Uint8Array.from(atob(text), (x) => x.charCodeAt(0)).buffer).getFloat64(0, true)];
}

function readPacking(attributes: Attributes, dtype: string): Packing {
  const [scale, offset] = [numbers(attributes.scale_factor)[0], numbers(attributes.add_offset)[0]];
  const missing = [...new Set([attributes._FillValue, attributes.missing_value].flatMap((x) => missingNumbers(x, dtype)))];
  const isUnsigned = String(attributes._Unsigned) === "true" && dtype.startsWith("int");
  const used = [
    isUnsigned ? "_Unsigned" : "",
    scale === undefined ? "" : `scale_factor ${value(scale)}`,
    offset === undefined ? "" : `add_offset ${value(offset)}`,
    missing.length ? `_FillValue ${missing.map((x) => value(x)).join(", ")} as no value` : "",
  ].filter(Boolean);
  return { scale: scale ?? 1, offset: offset ?? 0, missing, isUnsigned, text: used.join(", ") };
}

type StoredNumbers = ArrayLike<number | bigint>;

function decode(stored: StoredNumbers, packing: Packing, bits: number): Float64Array {
  const values = new Float64Array(stored.length);
  const isMissing = missingIn(stored, packing);
  for (let i = 0; i < stored.length; i += 1) {
    values[i] = isMissing(stored[i]) ? NaN : Number(withSign(stored[i], packing, bits)) * packing.scale + packing.offset;
  }
  if (typeof stored[0] === "bigint" && packing.scale === 1 && packing.offset === 0) {
    wholes.set(values, Array.from(stored as ArrayLike<bigint>, (x) => withSign(x, packing, bits) as bigint));
  }
  return values;
}

function missingIn(stored: StoredNumbers, { missing }: Packing): (x: number | bigint) => boolean {
  if (typeof stored[0] === "bigint") {
    // a number that JSON has rounded stands for all that are rounded to it
    const exact = new Set(missing.filter((x) => typeof x === "bigint" || Number.isSafeInteger(x)).map(BigInt));
    const rounded = new Set(missing.filter((x) => typeof x === "number" && !Number.isSafeInteger(x)));
    return (x) => exact.has(x as bigint) || rounded.has(Number(x));
  }
  // A float32 `_FillValue` is written with more digits in the attributes than a float32 has.
  const found = new Set(missing.flatMap((x) => (stored instanceof Float32Array ? [x, Math.fround(Number(x))] : [x])));
  return (x) => found.has(x);
}

function withSign(x: number | bigint, { isUnsigned }: Packing, bits: number): number | bigint {
  if (!isUnsigned || x >= 0) return x;
  return typeof x === "bigint" ? BigInt.asUintN(bits, x) : x + 2 ** bits;
}

/** Read words; the last dimension of single characters is that of a word. */
async function words(cube: Cube, path: string, isCharacters: boolean): Promise<string[]> {
  const array = await openArray(cube, path);
  const found = Array.from((await zarr.get(array)).data as Iterable<string>, String);
  if (!isCharacters) return found.map((x) => x.trim());
  const [n, length] = array.shape;
  return Array.from({ length: n }, (_, i) => found.slice(i * length, (i + 1) * length).join("").trim());
}

const MAX_LABELS = 50_000;
const NAT = -(2n ** 63n);

/** What is written at the elements of a dimension. */
export interface Labels {
  kind: "time" | "text" | "number";
  /** Numbers of the coordinate; of words, their indexes. */
  values: Float64Array;
  text: (i: number) => string;
  /** Text of any number along an axis of numbers. */
  tick?: (x: number, step: number) => string;
  /** True of dates of the calendar that people use. */
  isUsual?: boolean;
}

/** Labels of a dimension from a variable along it: numbers with units, dates, or words. `dtype` is that of the facts. */
export async function labels(cube: Cube, path: string, dtype = ""): Promise<Labels | null> {
  if (dtype === "text" || dtype === "StringDType()" || /^\|S/.test(dtype)) {
    const found = await words(cube, path, dtype === "|S1");
    // WRF writes 2024-06-01_03:00:00
    const text = found.map((x) => x.replace(/^(\d{4}-\d\d-\d\d)_(\d\d:\d\d)(?::00)?$/, "$1 $2").replace(/ 00:00$/, ""));
    return { kind: "text", values: Float64Array.from(text.keys()), text: (i) => text[i] };
  }
  const array = await openArray(cube, path);
  if (!NUMBERS.test(array.dtype) || array.dtype === "bool" || array.shape.length !== 1 || array.shape[0] > MAX_LABELS) return null;
  const stored = (await zarr.get(array)).data as StoredNumbers;
  const units = String(array.attrs.units ?? "");
  const toDate = dates(units, String(array.attrs.calendar ?? "standard"));
  const packing = readPacking(array.attrs, array.dtype);
  if (toDate && typeof stored[0] === "bigint") packing.missing.push(NAT);
  const bits = bitsOf(array.dtype);
  const values = decode(stored, packing, bits);
  const direction = /^degrees?_?(n|e)/i.exec(units)?.[1].toLowerCase();
  const isWhole = array.dtype.includes("int") && packing.scale === 1 && packing.offset === 0;
  // a float32 has seven digits, and so have the scales of most packed coordinates
  const exact = array.dtype === "float64" && packing.scale === 1 ? 8 : 6;
  const number = (i: number) => (isWhole ? withSign(stored[i], packing, bits) : Number(values[i].toPrecision(exact)));
  const plain = units && units !== "1" ? ` ${units}` : "";
  // scenes may follow each other within a minute
  const isFine = toDate !== null && values.subarray(0, 1000).some((x, i) => i > 0 && x !== values[i - 1] && toDate(x) === toDate(values[i - 1]));
  const tick = (x: number, step: number) => (direction ? degrees(x, step, direction === "e") : `${tickText(x, step)}${plain}`);
  const text = (i: number) => toDate?.(values[i], isFine) ?? (direction ? degrees(Number(number(i)), 1e-8, direction === "e") : `${number(i)}${plain}`);
  const isUsual = /standard|gregorian/i.test(String(array.attrs.calendar ?? "standard"));
  return { kind: toDate ? "time" : "number", values, isUsual, ...(toDate ? {} : { tick }), text: (i) => (Number.isNaN(values[i]) ? "no value" : text(i)) };
}

/** Where a dimension begins and ends: units once, and longitudes that go round the earth as they are counted. */
export function extent({ values, text }: Labels, n: number): string {
  const [first, last] = [0, n - 1].map((i) => text(i).replace(/^-/, "−"));
  if (n === 1) return first;
  if ([first, last].some((x) => / °[EW]$/.test(x)) && Math.abs(values[n - 1] - values[0]) > 180) {
    return [values[0], values[n - 1]].map((x) => (x ? `${digits(Math.abs(x), 1e-6)} °${x < 0 ? "W" : "E"}` : "0°")).join(" to ");
  }
  const [number, units] = [/^−?[\d.e+-]+(?= )/.exec(first)?.[0], / [^\d°].*$/.exec(first)?.[0]];
  return number && units && number + units === first && last.endsWith(units) ? `${number} to ${last}` : `${first} to ${last}`;
}

const MAX_SAMPLE_BYTES = 8e6;
/** Browsers have six connections to a server: for the sample, and one chunk of a slice. Slices of more chunks have more. */
const [MIN_SAMPLES, MAX_SAMPLES] = [5, 16];

/** True if whole chunks of an array are small enough for a sample. */
export const hasSample = (array: Live): boolean => array.chunkBytes <= MAX_SAMPLE_BYTES;

/** Read values of a few chunks that are spread over an array; if they are large, some values of those of the first slice. */
export async function sample(array: Live, axes: number[]): Promise<Float64Array[]> {
  if (!hasSample(array)) {
    const some = array.shape.map((length, axis): Range => (axes.includes(axis) ? [0, length, Math.ceil(length / 128)] : [0, Math.min(length, array.chunks[axis]), Math.ceil(array.chunks[axis] / 32)]));
    return [await array.read(some).catch(() => new Float64Array())];
  }
  const grid = array.shape.map((length, axis) => Math.ceil(length / array.chunks[axis]));
  const total = grid.reduce((a, b) => a * b, 1);
  const ofSlice = grid.slice(-2).reduce((a, b) => a * b, 1);
  const n = Math.min(Math.max(MIN_SAMPLES, Math.min(MAX_SAMPLES, ofSlice)), Math.floor(MAX_SAMPLE_BYTES / array.chunkBytes));
  const chosen = total <= n ? [...Array(total).keys()] : Array.from({ length: n }, (_, i) => Math.round((i / (n - 1 || 1)) * (total - 1)));
  // neighbours of the chosen chunks along the last axes would be all at the edges: each is moved by the golden ratio
  const along = (number: number, i: number) => {
    let rest = number;
    return grid.map((_, axis) => {
      const inner = grid.slice(axis + 1).reduce((a, b) => a * b, 1);
      const at = Math.floor(rest / inner);
      rest -= at * inner;
      return total <= n || axis < grid.length - 2 ? at : Math.floor(((i * 0.618034 + 0.5 + 0.3 * axis) % 1) * grid[axis]);
    });
  };
  return Promise.all(
    chosen.map((number, i) => {
      const begin = along(number, i).map((at, axis) => at * array.chunks[axis]);
      const read = () => array.read(begin.map((at, axis): Range => [at, Math.min(at + array.chunks[axis], array.shape[axis])]));
      return (array.some?.(begin) ?? read()).catch(() => new Float64Array());
    }),
  );
}

/** All numbers of some arrays, in order. */
export function inOrder(parts: Float64Array[]): Float64Array {
  const all = new Float64Array(parts.reduce((sum, x) => sum + x.length, 0));
  let end = 0;
  for (const part of parts) for (const x of part) if (Number.isFinite(x)) all[end++] = x;
  return all.subarray(0, end).sort();
}
