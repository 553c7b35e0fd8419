/** Read values with zarrita from the endpoint that the server offers to everyone. */

import * as zarr from "zarrita";
import { dates } from "./calendar";
import type { Attributes } from "./facts";
import { degrees, digits } from "./geometry";

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
  /** Read a part: a number selects along a dimension, a pair is a range. */
  read(selection: (number | [number, number])[]): Promise<Float64Array>;
}

const NUMBERS = /^(u?int(8|16|32|64)|float(16|32|64)|bool)$/;
const bitsOf = (dtype: string): number => Number(/\d+/.exec(dtype)?.[0] ?? 8);

/** A cube: at a URL, or in a store. */
export type Cube = string | zarr.AsyncReadable;

type Stored = zarr.Array<zarr.DataType, zarr.AsyncReadable>;

/** A store that says what the server says of an error, and not only its status. */
function storeAt(cubeUrl: string): zarr.FetchStore {
  return new zarr.FetchStore(cubeUrl, {
    async fetch(request) {
      const answer = await fetch(request);
      if (answer.ok || answer.status === 404) return answer;
      const body = await answer.json().catch(() => ({}));
      throw new Error(body.message ?? `The server answered with status ${answer.status}.`);
    },
  });
}

/** The keys of one variable. zarrita reads paths as parts of a URL, so that "%41", "#" and ":" in names would change. */
function keysOf(cube: Cube, path: string): zarr.AsyncReadable {
  if (typeof cube === "string") return storeAt(`${cube}/${path.split("/").map(encodeURIComponent).join("/")}`);
  return { get: (key, options) => cube.get(`/${path}${key}`, options) };
}

async function openArray(cube: Cube, path: string): Promise<Stored> {
  return (await zarr.open.v3(zarr.root(keysOf(cube, path)), { kind: "array" })) as Stored;
}

/** Open a variable of a cube. */
export async function open(cube: Cube, path: string): Promise<Live> {
  const array = await openArray(cube, path);
  if (!NUMBERS.test(array.dtype)) throw new Error(`Values of type ${array.dtype} cannot be drawn.`);
  const packing = readPacking(array.attrs, array.dtype);
  const dims = array.dimensionNames ?? array.shape.map((_, i) => `dimension ${i}`);
  const itemBytes = bitsOf(array.dtype) / 8;
  const isBoolean = array.dtype === "bool";
  return {
    dims: dims.map((name, i) => name ?? `dimension ${i}`),
    shape: array.shape,
    chunks: array.chunks,
    attributes: isBoolean ? { ...array.attrs, dtype: "bool" } : array.attrs,
    packing,
    bits: itemBytes * 8,
    chunkBytes: array.chunks.reduce((a, b) => a * b, itemBytes),
    async read(selection) {
      const parts = selection.map((x) => (typeof x === "number" ? x : zarr.slice(x[0], x[1])));
      const found: unknown = await zarr.get(array, parts);
      const data = typeof found === "object" && found !== null && "data" in found ? found.data : [found];
      return decode(isBoolean ? Uint8Array.from(data as Iterable<boolean>, Number) : (data as ArrayLike<number | bigint>), packing, itemBytes * 8);
    },
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
    scale === undefined ? "" : `scale_factor ${scale}`,
    offset === undefined ? "" : `add_offset ${offset}`,
    missing.length ? `_FillValue ${missing.join(", ")} as no value` : "",
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

/** Words that are stored as bytes, which zarrita does not know, as an array of bytes with one more dimension. */
function asBytes(keys: zarr.AsyncReadable): zarr.AsyncReadable {
  return {
    async get(key, options) {
      if (!key.endsWith("zarr.json")) return keys.get(key.replace(/\/0$/, "") as zarr.AbsolutePath, options);
      const document = JSON.parse(new TextDecoder().decode(await keys.get(key, options)));
      const length = document.data_type?.configuration?.length_bytes;
      document.shape.push(length);
      document.chunk_grid.configuration.chunk_shape.push(length);
      document.dimension_names?.push(null);
      Object.assign(document, { data_type: "uint8", fill_value: 0 });
      return new TextEncoder().encode(JSON.stringify(document));
    },
  };
}

/** Read a variable of one dimension whose values are words. */
async function words(cube: Cube, path: string, isBytes: boolean): Promise<string[]> {
  const keys = isBytes ? asBytes(keysOf(cube, path)) : keysOf(cube, path);
  const array = (await zarr.open.v3(zarr.root(keys), { kind: "array" })) as Stored;
  const { data } = (await zarr.get(array)) as { data: ArrayLike<unknown> };
  if (!isBytes) return Array.from(data, String);
  const [n, length] = array.shape;
  return Array.from({ length: n }, (_, i) => new TextDecoder().decode((data as Uint8Array).subarray(i * length, (i + 1) * length)).replace(/\0+$/, "").trim());
}

const MAX_LABELS = 50_000;
const NAT = -(2n ** 63n);

/** What is written at the elements of a dimension. */
export interface Labels {
  kind: "time" | "text" | "number";
  /** Numbers of the coordinate; of words, their indexes. */
  values: Float64Array;
  text: (i: number) => string;
}

/** Labels of a dimension from a variable along it: numbers with units, dates, or words. `dtype` is that of the facts. */
export async function labels(cube: Cube, path: string, dtype = ""): Promise<Labels | null> {
  if (dtype === "text" || dtype === "StringDType()" || /^\|S/.test(dtype)) {
    const found = await words(cube, path, dtype.startsWith("|S"));
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
  const text = (i: number) => toDate?.(values[i], isFine) ?? (direction ? degrees(Number(number(i)), 1e-8, direction === "e") : `${number(i)}${plain}`);
  return { kind: toDate ? "time" : "number", values, text: (i) => (Number.isNaN(values[i]) ? "no value" : text(i)) };
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
const MAX_SAMPLES = 16;

/** Read values of a few chunks that are spread over an array, unless they are large; with those of a slice, in order. */
export async function sample(array: Live, first: Float64Array): Promise<Float64Array> {
  const n = Math.min(MAX_SAMPLES, Math.floor(MAX_SAMPLE_BYTES / array.chunkBytes));
  const grid = array.shape.map((length, axis) => Math.ceil(length / array.chunks[axis]));
  const total = grid.reduce((a, b) => a * b, 1);
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
  const parts = [first, ...await Promise.all(
    chosen.map((number, i) => array.read(along(number, i).map((at, axis): [number, number] => [at * array.chunks[axis], Math.min((at + 1) * array.chunks[axis], array.shape[axis])])).catch(() => new Float64Array())),
  )];
  const all = new Float64Array(parts.reduce((sum, x) => sum + x.length, 0));
  let end = 0;
  for (const part of parts) for (const x of part) if (Number.isFinite(x)) all[end++] = x;
  return all.subarray(0, end).sort();
}
