/** Read values with zarrita from the endpoint that the server offers to everyone. */

import * as zarr from "zarrita";
import type { Attributes } from "./facts";

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

export interface Slice {
  rows: number;
  columns: number;
  values: Float64Array;
}

export interface Live {
  dims: string[];
  shape: number[];
  chunks: number[];
  packing: Packing;
  /** Bytes of one chunk when it is decoded. */
  chunkBytes: number;
  /** Read a part: a number selects along a dimension, a pair is a range. */
  read(selection: (number | [number, number])[]): Promise<Float64Array>;
}

const NUMBERS = /^(u?int(8|16|32|64)|float(16|32|64))$/;

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
function keysOf(cube: string | zarr.AsyncReadable, path: string): zarr.AsyncReadable {
  if (typeof cube === "string") return storeAt(`${cube}/${path.split("/").map(encodeURIComponent).join("/")}`);
  return { get: (key, options) => cube.get(`/${path}${key}`, options) };
}

async function openArray(cube: string | zarr.AsyncReadable, path: string): Promise<Stored> {
  return (await zarr.open.v3(zarr.root(keysOf(cube, path)), { kind: "array" })) as Stored;
}

/** Open a variable of a cube: at a URL, or in a store. */
export async function open(cube: string | zarr.AsyncReadable, path: string): Promise<Live> {
  const array = await openArray(cube, path);
  if (!NUMBERS.test(array.dtype)) throw new Error(`Values of type ${array.dtype} cannot be drawn.`);
  const packing = readPacking(array.attrs, array.dtype);
  const dims = array.dimensionNames ?? array.shape.map((_, i) => `dimension ${i}`);
  const itemBytes = Number(/\d+/.exec(array.dtype)![0]) / 8;
  return {
    dims: dims.map((name, i) => name ?? `dimension ${i}`),
    shape: array.shape,
    chunks: array.chunks,
    packing,
    chunkBytes: array.chunks.reduce((a, b) => a * b, itemBytes),
    async read(selection) {
      const parts = selection.map((x) => (typeof x === "number" ? x : zarr.slice(x[0], x[1])));
      const found: unknown = await zarr.get(array, parts);
      const data = typeof found === "object" && found !== null && "data" in found ? found.data : [found];
      return decode(data as ArrayLike<number | bigint>, packing, itemBytes * 8);
    },
  };
}

function numbers(x: unknown): number[] {
  return (Array.isArray(x) ? x : [x]).filter((y) => typeof y === "number");
}

/** Return numbers that mean that there is no value; integers that JSON numbers are too short for are text. */
function missingNumbers(x: unknown, dtype: string): (number | bigint)[] {
  if (!/int64$/.test(dtype)) return numbers(x);
  return (Array.isArray(x) ? x : [x]).flatMap((y): (number | bigint)[] => (typeof y === "string" && /^-?\d+$/.test(y) ? [BigInt(y)] : numbers(y)));
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

const MAX_LABELS = 50_000;
const UNITS = /^\s*(days?|hours?|hr|h|minutes?|min|seconds?|sec|s|milliseconds?|microseconds?|nanoseconds?|d)\s+since\s+(\S.*)$/i;
/** Beginnings of units; "mil" and "mic" come before "mi". */
const MILLISECONDS: [string, number][] = [["mil", 1], ["mic", 1e-3], ["n", 1e-6], ["mi", 6e4], ["d", 864e5], ["h", 36e5], ["s", 1e3]];
const NAT = -(2n ** 63n);
const REFORM = Date.UTC(1582, 9, 15);

/** Labels of a dimension, if it has a coordinate: numbers with units, or dates. */
export async function labels(cube: string | zarr.AsyncReadable, path: string): Promise<{ values: Float64Array; text: (i: number) => string } | null> {
  const array = await openArray(cube, path);
  if (!NUMBERS.test(array.dtype) || array.shape.length !== 1 || array.shape[0] > MAX_LABELS) return null;
  const stored = (await zarr.get(array)).data as StoredNumbers;
  const units = String(array.attrs.units ?? "");
  const toDate = dates(units, String(array.attrs.calendar ?? "standard"));
  const packing = readPacking(array.attrs, array.dtype);
  if (toDate && typeof stored[0] === "bigint") packing.missing.push(NAT);
  const bits = Number(/\d+/.exec(array.dtype)![0]);
  const values = decode(stored, packing, bits);
  const plain = units && units !== "1" ? ` ${units.replace(/^degrees_?(.).*$/, (_, x: string) => `°${x.toUpperCase()}`)}` : "";
  const isWhole = array.dtype.includes("int") && packing.scale === 1 && packing.offset === 0;
  const number = (i: number) => (isWhole ? withSign(stored[i], packing, bits) : Number(values[i].toPrecision(8)));
  return {
    values,
    text: (i) => (Number.isNaN(values[i]) ? "no value" : (toDate?.(values[i]) ?? `${number(i)}${plain}`)),
  };
}

const ORIGIN = /^(\d{1,4})-(\d{1,2})-(\d{1,2})(?:(?:T|\s+)(\d{1,2}):(\d{1,2})(?::(\d{1,2}(?:\.\d*)?))?)?\s*(?:Z|UTC|GMT|([+-])(\d{1,2}):?(\d{2})?)?\s*$/i;

/** Return how numbers become dates, in UTC, or `null` if the calendar is not that of JavaScript. */
function dates(units: string, calendar: string): ((x: number) => string | null) | null {
  const found = UNITS.exec(units);
  if (!found || !/^(standard|gregorian|proleptic_gregorian)$/i.test(calendar)) return null;
  const word = found[1].toLowerCase();
  const step = MILLISECONDS.find(([begin]) => word.startsWith(begin))![1];
  const origin = ORIGIN.exec(found[2]);
  if (!origin) return null;
  const [year, month, day, hour, minute, second] = origin.slice(1, 7).map((x) => Number(x ?? 0));
  if (year < 1583) return null; // the calendars differ
  const [sign, hours, minutes] = [origin[7] === "-" ? -1 : 1, Number(origin[8] ?? 0), Number(origin[9] ?? 0)];
  const begin = Date.UTC(year, month - 1, day, hour, minute, 0, 1000 * second) - sign * (36e5 * hours + 6e4 * minutes);
  return (x) => {
    const date = new Date(begin + x * step);
    if (Number.isNaN(date.getTime()) || date.getTime() < REFORM) return null;
    const text = date.toISOString();
    return text.slice(11, 19) === "00:00:00" ? text.slice(0, 10) : `${text.slice(0, 10)} ${text.slice(11, 16)}`;
  };
}
