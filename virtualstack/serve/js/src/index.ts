/**
 * Read a vstack of virtualstack from any static host or bucket, as a store for zarrita.js.
 *
 * @module
 */

import { toJson } from "./attributes.js";
import { integer, product } from "./checks.js";
import { Chunks, stored, type Stored } from "./chunks.js";
import type { Elements } from "./codecs/pipeline.js";
import type { ReadObject } from "./documents.js";
import { ManifestError, SourceNotFoundError, StorageError, VStackError } from "./errors.js";
import { findNewest, listNumbers, MAX_MISSING, objectUrl, type Place, probe, readSnapshot } from "./finding.js";
import { Client, type Fetch } from "./http.js";
import { type Resolve, urlOf } from "./locations.js";
import { Segments, type Source } from "./segments.js";
import { type ArrayEntry, type GroupEntry, parseInfo, parseSnapshot, type Snapshot, type SnapshotInfo } from "./snapshot.js";
import { VStackStore, zarrDtype } from "./store.js";

export * from "./errors.js";
export type { Elements, Fetch, GroupEntry, Resolve, SnapshotInfo, Source, VStackStore };

/** Options of {@link openVStack}. */
export interface OpenOptions {
  /** Number of the snapshot, or its message (the newest one with it); the newest snapshot without it. */
  snapshot?: number | string;
  /** A function like `globalThis.fetch`, for example one that repeats requests. */
  fetch?: Fetch;
  /** Headers of requests for objects of the store, and for a listing of its bucket. Requests for other files never get them. */
  headers?: Record<string, string>;
  /** Return the URL of a location such as `file:///data/a.nc`, or undefined for the usual one. What it returns is allowed. */
  resolve?: Resolve;
  /** What reading an ABSENT chunk does: raise {@link AbsentChunkError} (default), or return its fill value. */
  absent?: "raise" | "fill";
  /** URL of the bucket that holds the store, if the bucket can be listed; buckets of Amazon and Google are recognised. */
  bucket?: string;
  /** Bytes of decoded chunks that are kept; 64 MiB by default. */
  cacheBytes?: number;
}

/** What an array is. */
export interface ArrayInfo {
  path: string;
  shape: readonly number[];
  /** Data type as in numpy's `.npy` format. */
  dtype: unknown;
  /** Data type that zarrita shows; null if it has none for this array. */
  zarrDtype: string | null;
  dimensionNames: readonly string[];
  attributes: Record<string, unknown>;
  /** Numbers of cells along each axis. */
  grid: readonly number[];
  /** Least and greatest length of cells along each axis; the last cell of a regular grid may be shorter. */
  chunks: readonly (readonly [number, number])[];
  /** How its chunks are stored; `code` of {@link ChunkStates} counts them. */
  encodings: readonly StoredForm[];
  /** Whether the values are in the bundle of the snapshot. */
  bundled: boolean;
}

/** Data type, shape and codecs of stored chunks. */
export interface StoredForm {
  /** Data type as in numpy's `.npy` format; that of fields as JSON. */
  dtype: string;
  shape: readonly number[];
  /** In the order of encoding. */
  codecs: readonly { name: string; configuration: Record<string, unknown> }[];
}

/** States of all cells of an array, in C order of its grid. */
export interface ChunkStates {
  grid: readonly number[];
  /** Along each axis, where cells begin, and the length of the axis. */
  edges: readonly (readonly number[])[];
  /** 0: ABSENT, 1: EMPTY, 2: INLINE, 3: a range of a source, 4: in the bundle. */
  state: Uint8Array;
  /** Position in `sources`, or -1. */
  source: Int32Array;
  /** Number of the encoding, or of the fill value. */
  code: Int32Array;
  /** Bytes of the stored chunk. */
  length: Float64Array;
  sources: readonly Source[];
}

/** Open a vstack. */
export async function openVStack(url: string | URL, options: OpenOptions = {}): Promise<VStack> {
  const base = new URL(url);
  if (!/^https?:$/.test(base.protocol)) throw new StorageError(`'${base}' is not the URL of a web server`, { url: String(base) });
  if (!base.pathname.endsWith("/")) base.pathname += "/";
  const send: Fetch = options.fetch ?? ((address, init) => globalThis.fetch(address, init));
  const client = new Client(send, base, options.headers);
  const place: Place = { base, client, bucket: options.bucket };
  let number: number;
  let bytes: Uint8Array | null;
  let key: string | undefined;
  if (typeof options.snapshot === "number") {
    number = integer(options.snapshot, "the option 'snapshot'");
    bytes = await readSnapshot(place, number);
    if (!bytes) throw new SourceNotFoundError(`'${base}' has no snapshot ${number}`, { url: String(base), status: 404 });
  } else ({ number, bytes, key } = await findNewest(place));
  if (typeof options.snapshot === "string") {
    for (let nMissing = 0; !bytes || (await parseInfo(bytes, number, key)).message !== options.snapshot; key = undefined) {
      nMissing = bytes ? 0 : nMissing + 1;
      number -= 1;
      if (number < 0 || nMissing === MAX_MISSING) {
        throw new SourceNotFoundError(`'${base}' has no snapshot with the message '${options.snapshot}'`, { url: String(base) });
      }
      bytes = await probe(place, number);
    }
  }
  const load: ReadObject = async (key, range) => {
    const { bytes, size } = await client.read(objectUrl(base, key), range);
    // a server may hide the size from a page
    if ("size" in range && size !== null && size !== range.size) throw new ManifestError(`'${key}' has ${size} bytes instead of ${range.size}`);
    return bytes;
  };
  return new VStack(place, await parseSnapshot(bytes!, number, load, key), load, options);
}

/** One snapshot of a vstack. */
export class VStack {
  /** The store for zarrita: `open(vstack.store)`. */
  readonly store: VStackStore;
  /** Number, time, message and changes of the snapshot. */
  readonly snapshot: SnapshotInfo;
  private readonly segments: Segments;
  private readonly chunks: Chunks;

  constructor(
    private readonly place: Place,
    private readonly content: Snapshot,
    load: ReadObject,
    private readonly options: OpenOptions,
  ) {
    const { number, time, message, changes } = content;
    this.snapshot = { number, time, message, changes };
    this.segments = new Segments(content, load);
    const chunkOptions = { resolve: options.resolve, absent: options.absent ?? "raise" };
    this.chunks = new Chunks(content, this.segments, load, place.client, place.base, chunkOptions, options.cacheBytes ?? 2 ** 26);
    this.store = new VStackStore(content, this.chunks);
  }

  /**
   * Return the snapshots, newest first: by a listing where the host has one, else by requesting each number.
   *
   * @param limit How many at most: each is one request at least.
   */
  async snapshots(limit = 100): Promise<SnapshotInfo[]> {
    const numbers = (await listNumbers(this.place, this.content.number))[Symbol.iterator]();
    const found: SnapshotInfo[] = [];
    for (let nMissing = 0; found.length < limit && nMissing < MAX_MISSING; ) {
      const some: Promise<SnapshotInfo | null>[] = [];
      for (let next; some.length < 8 && !(next = numbers.next()).done; ) some.push(this.info(next.value));
      if (some.length === 0) break;
      for (const info of await Promise.all(some)) {
        nMissing = info ? 0 : nMissing + 1;
        if (info) found.push(info);
      }
    }
    return found.slice(0, limit);
  }

  private async info(n: number): Promise<SnapshotInfo | null> {
    const bytes = await probe(this.place, n);
    if (!bytes) return null;
    const { number, time, message, changes } = await parseInfo(bytes, n);
    return { number, time, message, changes };
  }

  /** Return the groups. The path of the root is `""`. */
  groups(): GroupEntry[] {
    return [...this.content.groups.values()];
  }

  /** Return what the arrays are. */
  arrays(): ArrayInfo[] {
    return [...this.content.arrays.values()].map((x) => ({
      path: x.path,
      shape: x.shape,
      dtype: x.dtype.description,
      zarrDtype: zarrDtype(x.dtype),
      dimensionNames: x.dimensionNames,
      attributes: x.attributes,
      grid: x.axes.map((axis) => axis.n),
      chunks: x.axes.map((axis) => axis.lengths()),
      encodings: x.encodings.map(({ shape, stored: { dtype, codecs } }) => ({ dtype: typeof dtype === "string" ? dtype : JSON.stringify(dtype), shape, codecs })),
      bundled: x.bundled !== null,
    }));
  }

  /**
   * Return the elements of one cell of the grid, in C order: texts, or bytes of the array's data type, little-endian.
   *
   * This works for data types that zarrita does not have, too.
   */
  async readCell(path: string, cell: readonly number[]): Promise<{ shape: number[]; values: Elements }> {
    const array = this.array(path);
    if (cell.length !== array.axes.length || cell.some((n, i) => !Number.isInteger(n) || n < 0 || n >= array.axes[i].n)) {
      throw new RangeError(`'${path}' has no cell [${cell.join(", ")}]`);
    }
    const shape = array.axes.map((x, i) => x.end(cell[i]) - x.begin(cell[i]));
    return { shape, values: (await this.chunks.read(array, cell)).slice() };
  }

  /** Return the state and the source of each cell. This reads all rows of the array or the bundle, and no chunk of a source. */
  async chunkStates(path: string): Promise<ChunkStates> {
    const array = this.array(path);
    const grid = array.axes.map((x) => x.n);
    const n = product(grid);
    // an axis without cells leaves no cell, but the other axes still have their edges
    const most = product(grid.map((x) => Math.max(x, 1)));
    if (most > MAX_CELLS) throw new VStackError(`'${path}' has a grid of ${grid.join(" x ")} cells, more than ${MAX_CELLS}`, { variable: path });
    const edges = array.axes.map((x) => Array.from({ length: x.n + 1 }, (_, i) => x.begin(i)));
    const found = { grid, edges, state: new Uint8Array(n), source: new Int32Array(n).fill(-1), code: new Int32Array(n), length: new Float64Array(n) };
    const sources: Source[] = [];
    if (array.bundled) {
      found.state.fill(STATES.indexOf("bundled"));
      found.length.fill(await this.chunks.bundledBytes(array));
    } else await this.paint(array, grid, found, sources);
    return { ...found, sources };
  }

  private async paint(array: ArrayEntry, grid: number[], found: Omit<ChunkStates, "sources">, sources: Source[]): Promise<void> {
    const placements = await array.placements.all();
    const { shown, rows } = placementsOfCells(placements, grid);
    const bySegment = new Map<number, number[]>();
    for (let cell = 0; cell < shown.length; cell++) {
      if (shown[cell] < 0) continue;
      const { segment } = placements[shown[cell]];
      const cells = bySegment.get(segment);
      if (cells) cells.push(cell);
      else bySegment.set(segment, [cell]);
    }
    for (const [number, cells] of bySegment) {
      const segment = await this.content.segments.at(number);
      let [low, high] = [Infinity, -Infinity];
      for (const cell of cells) {
        low = Math.min(low, rows[cell]);
        high = Math.max(high, rows[cell]);
      }
      if (low < 0 || high >= segment.rows) throw new ManifestError(`the store is damaged: a row outside segment ${segment.name}`);
      const pages = await this.segments.range(segment, low, high);
      const places = new Map<number, number>();
      const size = pages.length > 1 ? pages[1].first - pages[0].first : Infinity;
      for (const cell of cells) {
        const page = pages[Math.floor((rows[cell] - pages[0].first) / size)];
        const { state, source, length, code } = stored(array, segment, placements[shown[cell]], page, rows[cell] - page.first);
        found.state[cell] = STATES.indexOf(state);
        found.length[cell] = length;
        found.code[cell] = code;
        if (source < 0) continue;
        let at = places.get(source);
        if (at === undefined) {
          at = sources.push(await this.segments.source(segment, source)) - 1;
          places.set(source, at);
        }
        found.source[cell] = at;
      }
    }
  }

  /** Return the sources of an array, or all sources that the store lists. */
  async sources(path?: string): Promise<Source[]> {
    if (path !== undefined) return [...(await this.chunkStates(path)).sources];
    const used = new Set<number>();
    for (const { placements } of this.content.arrays.values()) for (const x of await placements.all()) used.add(x.segment);
    const found = new Map<string, Source>();
    for (const n of used) for (const x of await this.segments.allSources(await this.content.segments.at(n))) found.set(x.location, x);
    return [...found.values()];
  }

  /** Return the URL from which a source is read, or raise an error that says why it is not. */
  urlOf(source: Source): string {
    return urlOf(source.location, this.place.base, this.options.resolve);
  }

  private array(path: string): ArrayEntry {
    const array = this.content.arrays.get(path.startsWith("/") ? path : `/${path}`);
    if (!array) throw new SourceNotFoundError(`there is no array '${path}'`, { variable: path });
    return array;
  }
}

const MAX_CELLS = 2 ** 24;
/** What the numbers of {@link ChunkStates} mean. */
const STATES: Stored["state"][] = ["absent", "empty", "inline", "reference", "bundled"];

/** Return the number of the placement that each cell shows, or -1, and its row. */
function placementsOfCells(placements: readonly { row: number; strides: number[]; begin: number[]; count: number[] }[], grid: number[]): { shown: Int32Array; rows: Float64Array } {
  const n = product(grid);
  const shown = new Int32Array(n).fill(-1);
  const rows = new Float64Array(n);
  const steps = new Array<number>(grid.length);
  for (let i = grid.length - 1, step = 1; i >= 0; step *= grid[i--]) steps[i] = step;
  placements.forEach((x, number) => {
    const count = x.count.map((m, i) => Math.min(m, grid[i] - x.begin[i]));
    if (count.some((m) => m <= 0)) return;
    const index = new Array<number>(grid.length).fill(0);
    const total = product(count);
    for (let k = 0; k < total; k++) {
      let cell = 0;
      let row = x.row;
      for (let i = 0; i < grid.length; i++) {
        cell += (x.begin[i] + index[i]) * steps[i];
        row += x.strides[i] * index[i];
      }
      shown[cell] = number;
      rows[cell] = row;
      for (let i = grid.length - 1; i >= 0 && ++index[i] === count[i]; i--) index[i] = 0;
    }
  });
  return { shown, rows };
}

/** Return an attribute as JSON has it: for pages that show it. */
export const attributeToJson = toJson;
