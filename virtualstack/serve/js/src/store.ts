/** A vstack as a store of zarrita: metadata that is made up, and chunks that are put together from cells. */

import type { AbsolutePath, AsyncReadable, GetOptions, RangeQuery } from "zarrita";

import { toJson } from "./attributes.js";
import { type Json, product } from "./checks.js";
import { checkSize } from "./chunks.js";
import { type Elements, encodeTexts } from "./codecs/pipeline.js";
import { elements } from "./attributes.js";
import { type DType, fromHalf, toLittleEndian } from "./dtype.js";
import { UnsupportedFeatureError } from "./errors.js";
import type { ArrayEntry, Snapshot } from "./snapshot.js";

const UNITS: Record<string, string> = {
  ns: "nanoseconds", us: "microseconds", ms: "milliseconds", s: "seconds", m: "minutes", h: "hours", D: "days",
};

/** Return zarrita's data type of an array; null where it has none. */
export function zarrDtype({ kind, itemsize, unit }: DType): string | null {
  if (kind === "string") return "string";
  if (kind === "b") return "bool";
  if (kind === "i" || kind === "u") return `${kind === "i" ? "int" : "uint"}${8 * itemsize}`;
  if (kind === "f") return itemsize === 2 ? "float32" : `float${8 * itemsize}`;
  if ((kind === "M" || kind === "m") && unit && unit in UNITS) return "int64";
  if (kind === "S" && itemsize > 0) return `v2:S${itemsize}`;
  if (kind === "U" && itemsize > 0) return `v2:U${itemsize / 4}`;
  return null;
}

/** Return the length of zarr's chunks along each axis: that of the cells, or what they have on average; at most the axis. */
export function chunkShape(array: ArrayEntry): number[] {
  return array.axes.map((x) => Math.max(1, Math.min(x.length, x.regular ?? Math.ceil(x.length / Math.max(x.n, 1)))));
}

/** Values of cells. */
export interface Cells {
  read(array: ArrayEntry, cell: readonly number[], signal?: AbortSignal): Promise<Elements>;
}

/** The store that zarrita reads. */
export class VStackStore implements AsyncReadable {
  constructor(
    private readonly snapshot: Pick<Snapshot, "arrays" | "groups">,
    private readonly chunks: Cells,
  ) {}

  /** Return the object of a key: `.../zarr.json`, or a chunk `.../c/0/0`. */
  async get(key: AbsolutePath, options: GetOptions = {}): Promise<Uint8Array | undefined> {
    if (key.endsWith("/zarr.json")) {
      const path = key.slice(0, -"/zarr.json".length);
      const array = this.snapshot.arrays.get(path);
      const document = array ? arrayMetadata(array) : this.groupMetadata(path);
      return document && new TextEncoder().encode(JSON.stringify(document));
    }
    const match = /^(.+?)\/c((?:\/\d+)*)$/.exec(key);
    // an array may be in a group whose name looks like a chunk key, so the longest path counts
    for (let path: string | undefined = match ? key : undefined; path; path = path.slice(0, path.lastIndexOf("/"))) {
      const array = this.snapshot.arrays.get(path);
      const rest = key.slice(path.length);
      if (array && /^\/c(\/\d+)*$/.test(rest)) return this.chunk(array, rest.split("/").slice(2).map(Number), options.signal);
    }
    return undefined;
  }

  /** Return bytes of the object of a key. */
  async getRange(key: AbsolutePath, range: RangeQuery, options: GetOptions = {}): Promise<Uint8Array | undefined> {
    const bytes = await this.get(key, options);
    if ("suffixLength" in range) return bytes?.subarray(Math.max(0, bytes.length - range.suffixLength));
    return bytes?.subarray(range.offset, range.offset + range.length);
  }

  /** Return the metadata of a group; that of the root has the metadata of all arrays and groups. */
  private groupMetadata(path: string): Json | undefined {
    const group = this.snapshot.groups.get(path);
    if (!group) return undefined;
    const document: Json = { zarr_format: 3, node_type: "group", attributes: toJson(group.attributes) };
    if (path !== "") return document;
    const metadata: Json = {};
    for (const other of this.snapshot.groups.keys()) if (other !== "") metadata[other.slice(1)] = this.groupMetadata(other);
    for (const array of this.snapshot.arrays.values()) if (zarrDtype(array.dtype)) metadata[array.path.slice(1)] = arrayMetadata(array);
    return { ...document, consolidated_metadata: { kind: "inline", must_understand: false, metadata } };
  }

  /** Return a chunk of zarr. */
  private async chunk(array: ArrayEntry, index: number[], signal?: AbortSignal): Promise<Uint8Array | undefined> {
    const lengths = chunkShape(array);
    if (index.length !== lengths.length || index.some((n, i) => n * lengths[i] >= array.shape[i])) return undefined;
    const begin = index.map((n, i) => n * lengths[i]);
    const end = begin.map((n, i) => Math.min(n + lengths[i], array.shape[i]));
    const first = array.axes.map((x, i) => x.find(begin[i]));
    const count = array.axes.map((x, i) => x.find(end[i] - 1) - first[i] + 1);
    const isText = array.dtype.kind === "string";
    const size = array.dtype.itemsize;
    checkSize(product(lengths) * Math.max(size, 1));
    const out: Elements = isText ? new Array<string>(product(lengths)).fill("") : new Uint8Array(product(lengths) * size);
    await Promise.all(
      Array.from({ length: product(count) }, async (_, k) => {
        const cell = new Array<number>(count.length);
        for (let i = count.length - 1; i >= 0; k = Math.floor(k / count[i--])) cell[i] = first[i] + (k % count[i]);
        const values = await this.chunks.read(array, cell, signal);
        const from = array.axes.map((x, i) => x.begin(cell[i]));
        const shape = array.axes.map((x, i) => x.end(cell[i]) - from[i]);
        paste(values, from, shape, out, begin, end, lengths, size);
      }),
    );
    if (Array.isArray(out)) return encodeTexts(out);
    return array.dtype.kind === "f" && size === 2 ? fromHalf(out) : out;
  }
}

/** Copy what a cell and a chunk share, row by row. */
function paste(values: Elements, from: number[], shape: number[], out: Elements, begin: number[], end: number[], lengths: number[], size: number): void {
  const low = from.map((n, i) => Math.max(n, begin[i]));
  const high = from.map((n, i) => Math.min(n + shape[i], end[i]));
  const inner = from.length - 1;
  const row = inner < 0 ? 1 : high[inner] - low[inner];
  const at = low.slice();
  for (;;) {
    let source = 0;
    let target = 0;
    for (let i = 0; i <= inner; i++) {
      source = source * shape[i] + at[i] - from[i];
      target = target * lengths[i] + at[i] - begin[i];
    }
    if (Array.isArray(out)) for (let k = 0; k < row; k++) out[target + k] = (values as string[])[source + k];
    else out.set((values as Uint8Array).subarray(source * size, (source + row) * size), target * size);
    let axis = inner - 1;
    while (axis >= 0 && ++at[axis] === high[axis]) at[axis] = low[axis--];
    if (axis < 0) return;
  }
}

/** Return the metadata of zarr, version 3, of an array: decoded chunks of one shape. */
function arrayMetadata(array: ArrayEntry): Json {
  const { kind, unit } = array.dtype;
  const dataType = zarrDtype(array.dtype);
  if (!dataType) {
    throw new UnsupportedFeatureError(
      `zarrita has no data type for ${JSON.stringify(array.dtype.description)} of '${array.path}': read its cells with readCell()`,
      { variable: array.path },
    );
  }
  const attributes = { ...array.attributes };
  if (kind === "M") Object.assign(attributes, { units: `${UNITS[unit!]} since 1970-01-01`, calendar: "proleptic_gregorian" });
  if (kind === "m") Object.assign(attributes, { units: UNITS[unit!] });
  return {
    zarr_format: 3,
    node_type: "array",
    shape: array.shape,
    data_type: dataType,
    chunk_grid: { name: "regular", configuration: { chunk_shape: chunkShape(array) } },
    chunk_key_encoding: { name: "default", configuration: { separator: "/" } },
    fill_value: fillValue(array),
    codecs: kind === "string" ? [{ name: "vlen-utf8" }] : [{ name: "bytes", configuration: { endian: "little" } }],
    attributes: toJson(attributes),
    dimension_names: array.dimensionNames,
  };
}

function fillValue(array: ArrayEntry): unknown {
  const raw = array.fillValues[0];
  if (array.dtype.kind === "string") return new TextDecoder().decode(raw);
  const little = toLittleEndian(raw, array.dtype, array.dtype);
  const [value] = elements({ ...array.dtype, bigEndian: false }, little, 1);
  return typeof value === "bigint" ? value.toString() : toJson(value);
}
