/** Snapshots: which one is the newest, and what one says. */

import { attributes, Heap } from "./attributes.js";
import { finite, fromBase64, integer, type Json, list, object, orNull, text } from "./checks.js";
import { name, parseDocument, parseJson, type ReadObject, Table } from "./documents.js";
import { type DType, isAlike, parseDtype } from "./dtype.js";
import { ManifestError } from "./errors.js";
import type { Relocation } from "./locations.js";

const LAST = 10 ** 12 - 1;
const MAX_PARTS = 100;
const MAX_NODES = 100_000;
const MAX_AXES = 64;

export const HINT = ".vstack/zarr.json";
export const snapshotKey = (n: number): string => `.vstack/snapshots/${String(LAST - n).padStart(12, "0")}.json.gz`;
export const snapshotNumber = (digits: string): number => LAST - Number(digits);

/** Return the number with which to begin, from `.vstack/zarr.json`, and the bytes of this snapshot if it carries them. */
export function parseHint(bytes: Uint8Array): { number: number; bytes: Uint8Array | null } {
  const document = parseJson(bytes, HINT);
  const said = object(object(document["attributes"], `attributes of '${HINT}'`)["virtualstack"], "'virtualstack'");
  if (said["format"] !== 1) throw new ManifestError(`the store has format ${JSON.stringify(said["format"])}, and this program reads format 1`);
  const number = integer(said["snapshot"], `the snapshot of '${HINT}'`, 0, LAST);
  const what = `the document of '${HINT}'`;
  return { number, bytes: said["document"] === undefined ? null : fromBase64(text(said["document"], what), what) };
}

export interface CodecJson {
  name: string;
  configuration: Json;
}

export interface Encoding {
  /** Data type of the decoded chunk, or of the packed numbers in it. */
  dtype: DType;
  shape: number[];
  codecs: CodecJson[];
  strides: number[];
  /** Configuration of the codec `virtualstack.cf`, which is not among the codecs: cells are unpacked after they are cut out. */
  packing: Json | null;
  /** Data type and codecs as the store has them, with `virtualstack.cf`. */
  stored: { dtype: unknown; codecs: CodecJson[] };
}

export interface ArrayEntry {
  path: string;
  dtype: DType;
  shape: number[];
  /** Along each axis, where cells begin, and the length of the axis at the end; or the length of all cells. */
  axes: Axis[];
  dimensionNames: string[];
  attributes: Json;
  fillValues: Uint8Array[];
  encodings: Encoding[];
  placements: Table<Placement>;
  bundled: [number, number] | null;
}

/** One axis of a chunk grid. */
export class Axis {
  readonly n: number;

  /** @param edges Where cells begin and the last one ends; or the length of all cells. */
  constructor(
    readonly length: number,
    private readonly edges: number | Float64Array,
  ) {
    this.n = typeof edges === "number" ? Math.ceil(length / edges) : edges.length - 1;
  }

  /** Length of all chunks, if it is the same; the last chunk may reach beyond the array. */
  get regular(): number | null {
    return typeof this.edges === "number" ? this.edges : null;
  }

  /** Return the least and the greatest length of a cell. */
  lengths(): [number, number] {
    if (typeof this.edges === "number") return [this.edges, this.edges];
    let [low, high] = this.n ? [Infinity, 0] : [0, 0];
    for (let i = 0; i < this.n; i++) {
      const length = this.end(i) - this.begin(i);
      [low, high] = [Math.min(low, length), Math.max(high, length)];
    }
    return [low, high];
  }

  begin(cell: number): number {
    return typeof this.edges === "number" ? Math.min(cell * this.edges, this.length) : this.edges[cell];
  }

  end(cell: number): number {
    return this.begin(cell + 1);
  }

  /** Return the cell that has an element. */
  find(element: number): number {
    if (typeof this.edges === "number") return Math.floor(element / this.edges);
    let [low, high] = [0, this.n - 1];
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (this.edges[middle] <= element) low = middle;
      else high = middle - 1;
    }
    return low;
  }
}

export interface Placement {
  segment: number;
  row: number;
  encoding: number;
  fill: number;
  strides: number[];
  begin: number[];
  count: number[];
}

export interface Segment {
  name: string;
  rows: number;
  columns: number;
  shards: number[];
  nSources: number;
  sources: Json | null;
  heap: number[];
  prefixes: number[];
}

export interface GroupEntry {
  path: string;
  attributes: Json;
  dimensions: Record<string, number>;
  unlimited: string[];
  coordinates: string[];
  /** What a reader of a source could not express. */
  refusals: { path: string; kind: string; reason: string }[];
}

export interface Snapshot {
  number: number;
  time: number;
  message: string | null;
  changes: string[];
  groups: Map<string, GroupEntry>;
  arrays: Map<string, ArrayEntry>;
  segments: Table<Segment>;
  prefixes: string[];
  relocations: Relocation[];
  bundle: { name: string; size: number; crc32: number } | null;
}

/** What a log shows of a snapshot. */
export type SnapshotInfo = Pick<Snapshot, "number" | "time" | "message" | "changes">;

export async function parseInfo(bytes: Uint8Array, wanted: number, key = snapshotKey(wanted)): Promise<SnapshotInfo & { document: Json }> {
  const document = await parseDocument(bytes, key);
  if (document["vstack_format"] !== 1) {
    throw new ManifestError(`'${key}' has format ${JSON.stringify(document["vstack_format"])}, and this program reads format 1`);
  }
  const number = integer(document["number"], `number of '${key}'`);
  if (number !== wanted) throw new ManifestError(`'${key}' is snapshot ${number}, not ${wanted}`);
  return {
    number,
    time: finite(document["time"], `time of '${key}'`),
    message: orNull(document["message"], "message", text),
    changes: list(document["changes"], "changes", text),
    document,
  };
}

/** Return a snapshot from the bytes of an object; `key` is that of the object, if it is not that of the snapshot. */
export async function parseSnapshot(bytes: Uint8Array, wanted: number, load: ReadObject, key?: string): Promise<Snapshot> {
  const { document, ...info } = await parseInfo(bytes, wanted, key);
  const heap = new Heap(fromBase64(text(document["heap"], "heap"), "its heap"));
  const groups = new Map<string, GroupEntry>();
  for (const [path, value] of Object.entries(object(document["groups"], "groups"))) groups.set(path, group(path, value, heap));
  const arrays = new Map<string, ArrayEntry>();
  const entries = Object.entries(object(document["arrays"], "arrays"));
  if (groups.size + entries.length > MAX_NODES) throw new ManifestError(`the store has more than ${MAX_NODES} groups and arrays`);
  for (const [path, value] of entries) {
    if (groups.has(path)) throw new ManifestError(`the store is damaged: '${path}' is a group and an array`);
    arrays.set(path, parseArray(path, value, heap, load));
  }
  if (!groups.has("")) throw new ManifestError("the store is damaged: it has no root group");
  for (const path of [...groups.keys(), ...arrays.keys()]) checkPath(path, groups);
  const relocations = list(document["relocations"], "relocations", (x) => {
    const found = object(x, "a relocation");
    return { old: text(found["old"], "old"), new: text(found["new"], "new"), nPrefixes: integer(found["n_prefixes"], "n_prefixes") };
  });
  if (relocations.length > 256) throw new ManifestError("the store is damaged: it has more than 256 relocations");
  return {
    ...info,
    groups,
    arrays,
    relocations,
    segments: new Table(document["segments"], "segments", segment, load),
    prefixes: list(document["prefixes"], "prefixes", text),
    bundle: orNull(document["bundle"], "bundle", (x) => {
      const found = object(x, "bundle");
      return {
        name: name(found["name"], "the bundle"),
        size: integer(found["size"], "the size of the bundle", 0, 2 ** 29),
        crc32: integer(found["crc32"], "the checksum of the bundle", 0, 2 ** 32 - 1),
      };
    }),
  };
}

function checkPath(path: string, groups: Map<string, GroupEntry>): void {
  if (path === "") return;
  const parts = path.split("/");
  if (parts[0] !== "" || parts.length - 1 > MAX_PARTS || parts.slice(1).some((x) => x === "" || x === "." || x === "..")) {
    throw new ManifestError(`the store is damaged: '${path}' is not a path`);
  }
  const parent = parts.slice(0, -1).join("/");
  if (!groups.has(parent)) throw new ManifestError(`the store is damaged: '${path}' is in '${parent}', which is no group`);
}

function group(path: string, value: unknown, heap: Heap): GroupEntry {
  const what = `group '${path}'`;
  const found = object(value, what);
  const dimensions = Object.entries(object(found["dimensions"], `dimensions of ${what}`));
  return {
    path,
    attributes: attributes(found["attributes"], heap),
    dimensions: Object.fromEntries(dimensions.map(([k, n]) => [k, integer(n, `dimension '${k}'`)])),
    unlimited: list(found["unlimited"], `unlimited of ${what}`, text),
    coordinates: list(found["coordinates"], `coordinates of ${what}`, text),
    refusals: list(found["refusals"] ?? [], `refusals of ${what}`, (x, part) => {
      const row = object(x, part);
      return { path: text(row["path"], part), kind: text(row["kind"], part), reason: text(row["reason"], part) };
    }),
  };
}

/** Return how chunks of an array are stored. */
export function parseEncoding(value: unknown, dtype: DType, ndim: number, what: string): Encoding {
  const codec = object(value, `an encoding of ${what}`);
  const encoding = {
    dtype: parseDtype(codec["dtype"]),
    shape: list(codec["shape"], `shape of an encoding of ${what}`, (x) => integer(x, `a length of ${what}`)),
    codecs: list(codec["codecs"], `codecs of ${what}`, (y) => {
      const one = object(y, `a codec of ${what}`);
      return { name: text(one["name"], "a codec"), configuration: object(one["configuration"] ?? {}, "a configuration") };
    }),
    strides: list(codec["strides"], `strides of ${what}`, (y) => integer(y, "a stride", -(2 ** 53) + 1), ndim),
  };
  if (!isAlike(encoding.dtype, dtype)) throw new ManifestError(`the store is damaged: an encoding of ${what} has another dtype`);
  const [first, ...others] = encoding.codecs;
  const stored = { dtype: encoding.dtype.description, codecs: encoding.codecs };
  if (first?.name !== "virtualstack.cf") return { ...encoding, packing: null, stored };
  const packing = first.configuration;
  return { ...encoding, packing, stored, dtype: parseDtype(packing["data_type"]), codecs: others };
}

/** Return an array from its part of a snapshot; its placements are in tables, which are loaded. */
export function parseArray(path: string, value: unknown, heap: Heap, load: ReadObject): ArrayEntry {
  const what = `array '${path}'`;
  const found = object(value, what);
  const length = (x: unknown): number => integer(x, `a length of ${what}`);
  const dtype = parseDtype(found["dtype"]);
  const shape = list(found["shape"], `shape of ${what}`, length);
  if (shape.length > MAX_AXES) throw new ManifestError(`${what} has more than ${MAX_AXES} axes`);
  const ndim = shape.length;
  const chunks = list(found["chunk_shapes"], `chunk_shapes of ${what}`, (x) => x, ndim);
  const encodings = list(found["encodings"], `encodings of ${what}`, (x) => parseEncoding(x, dtype, ndim, what));
  const fillValues = list(found["fill_values"], `fill_values of ${what}`, (x) => heap.range(x, `a fill value of ${what}`));
  if (fillValues.length === 0 || (dtype.kind !== "string" && fillValues.some((x) => x.length !== dtype.itemsize))) {
    throw new ManifestError(`the store is damaged: fill values of ${what} are not one value each`);
  }
  const axes = shape.map((n, i) => axis(n, chunks[i], heap, what));
  const bundled = orNull(found["bundled"], `bundled of ${what}`, (x) => list(x, "bundled", length, 2) as [number, number]);
  if (bundled && (axes.some((x) => x.n !== 1) || encodings.length !== 1)) {
    throw new ManifestError(`the store is damaged: ${what} is in the bundle and has ${axes.map((x) => x.n).join(" x ")} cells and ${encodings.length} encodings, not one of each`);
  }
  return {
    path,
    dtype,
    shape,
    axes,
    dimensionNames: list(found["dimension_names"], `dimension_names of ${what}`, text, ndim),
    attributes: { ...attributes(found["attributes"], heap), ...attributes(found["cf"], heap) },
    fillValues,
    encodings,
    placements: new Table(found["placements"], `placements of ${what}`, (x) => placement(x, ndim), load, ndim),
    bundled,
  };
}

function axis(length: number, chunks: unknown, heap: Heap, what: string): Axis {
  if (typeof chunks === "number") return new Axis(length, integer(chunks, `a chunk length of ${what}`, 1));
  const bytes = heap.range(chunks, `chunk lengths of ${what}`);
  if (bytes.length % 8) throw new ManifestError(`the store is damaged: chunk lengths of ${what} are not whole numbers`);
  const lengths = new BigInt64Array(bytes.slice().buffer);
  const edges = new Float64Array(lengths.length + 1);
  lengths.forEach((n, i) => {
    edges[i + 1] = edges[i] + integer(Number(n), `a chunk length of ${what}`, 1);
  });
  if (edges[lengths.length] !== length) throw new ManifestError(`the store is damaged: chunk lengths of ${what} do not add up to ${length}`);
  return new Axis(length, edges);
}

function placement(value: unknown, ndim: number): Placement {
  const row = list(value, "a placement", (x) => integer(x, "a number of a placement", -(2 ** 53) + 1), 4 + 3 * ndim);
  const [segment, first, encoding, fill] = row;
  const strides = row.slice(4, 4 + ndim);
  const begin = row.slice(4 + ndim, 4 + 2 * ndim);
  const count = row.slice(4 + 2 * ndim);
  if ([segment, first, encoding, fill, ...begin].some((n) => n < 0) || count.some((n) => n < 1)) {
    throw new ManifestError("the store is damaged: a number of a placement is out of range");
  }
  return { segment, row: first, encoding, fill, strides, begin, count };
}

function segment(value: unknown, what: string): Segment {
  const found = object(value, what);
  const size = (x: unknown): number => integer(x, "bytes of an object of a segment");
  return {
    name: name(found["name"], "a segment"),
    rows: integer(found["rows"], "rows of a segment"),
    columns: integer(found["columns"], "columns of a segment", 3, 5),
    shards: list(found["shards"], "shards of a segment", size),
    nSources: integer(found["n_sources"], "n_sources", 0, 2 ** 40 - 1),
    sources: orNull(found["sources"], "sources of a segment", object),
    heap: list(found["heap"], "heap of a segment", size),
    prefixes: list(found["prefixes"], "prefixes of a segment", (x) => integer(x, "a prefix")),
  };
}
