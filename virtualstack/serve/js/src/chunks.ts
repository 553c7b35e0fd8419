/** Which chunk a cell shows, and its values. */

import { crc32, product } from "./checks.js";
import { bloscSizes, decodeBlosc } from "./codecs/blosc.js";
import { decodeChunk, type Elements, unpack } from "./codecs/pipeline.js";
import type { ReadObject } from "./documents.js";
import { type DType, toLittleEndian } from "./dtype.js";
import { AbsentChunkError, ManifestError, SourceChangedError, StorageError, UnsupportedFeatureError, VStackError } from "./errors.js";
import type { Client } from "./http.js";
import { type Resolve, urlOf } from "./locations.js";
import { Ranges } from "./ranges.js";
import { Cache } from "./lru.js";
import { ABSENT, EMPTY, INLINE, type Rows, type Segments, type Source } from "./segments.js";
import type { ArrayEntry, Encoding, Placement, Segment, Snapshot } from "./snapshot.js";

const MAX_BUNDLE = 2 ** 29;
const MAX_FRAME = 2 ** 28;
/** Bytes of a cell or a decoded chunk: a store of a stranger can name any shape. */
const MAX_CHUNK_BYTES = 2 ** 31;
const SLACK = 2 ** 28;
const TEXT_SLACK = 2 ** 30;

export interface Stored {
  state: "absent" | "empty" | "inline" | "reference" | "bundled";
  segment?: Segment;
  /** Number of the source in its segment. */
  source: number;
  offset: number;
  length: number;
  /** Number of the encoding, or of the fill value. */
  code: number;
  start: number;
}

export interface Options {
  resolve?: Resolve;
  absent: "raise" | "fill";
}

/** Values of cells of one snapshot. */
export class Chunks {
  private readonly decoded: Cache<Elements>;
  private readonly ranges: Ranges;
  private bundle: Promise<Uint8Array> | null = null;

  constructor(
    private readonly snapshot: Snapshot,
    private readonly segments: Segments,
    private readonly load: ReadObject,
    client: Client,
    private readonly store: URL,
    private readonly options: Options,
    cacheBytes: number,
  ) {
    this.decoded = new Cache(cacheBytes);
    this.ranges = new Ranges(client);
  }

  /** Return where the bytes of a cell are. */
  async find(array: ArrayEntry, cell: readonly number[]): Promise<Stored> {
    if (array.bundled) return { state: "bundled", source: -1, offset: 0, length: 0, code: 0, start: 0 };
    const end = cell.map((n) => n + 1);
    const placed = await array.placements.last(cell, end, (x) => x.begin.every((n, i) => cell[i] >= n && cell[i] < n + x.count[i]));
    if (!placed) return { state: "absent", source: ABSENT, offset: 0, length: 0, code: 0, start: 0 };
    const segment = await this.snapshot.segments.at(placed.segment);
    const row = placed.row + placed.strides.reduce((n, stride, i) => n + stride * (cell[i] - placed.begin[i]), 0);
    const rows = await this.segments.page(segment, row);
    return stored(array, segment, placed, rows, row - rows.first);
  }

  /**
   * Return the elements of a cell, in C order and in the data type of the array, with little-endian bytes.
   *
   * An ABSENT cell raises an error, or has its fill value.
   */
  async read(array: ArrayEntry, cell: readonly number[], signal?: AbortSignal): Promise<Elements> {
    try {
      return await this.values(array, cell, signal);
    } catch (error) {
      throw error instanceof VStackError ? error.at(array.path, cell) : error;
    }
  }

  private async values(array: ArrayEntry, cell: readonly number[], signal?: AbortSignal): Promise<Elements> {
    const shape = array.axes.map((x, i) => x.end(cell[i]) - x.begin(cell[i]));
    checkSize(product(shape) * Math.max(array.dtype.itemsize, 1));
    const found = await this.find(array, cell);
    if (found.state === "absent" && this.options.absent === "raise") {
      throw new AbsentChunkError("nobody knows the values of this chunk: it is ABSENT. The option absent: \"fill\" returns the fill value");
    }
    if (found.state === "absent" || found.state === "empty") return filled(array, found.code, product(shape));
    const encoding = array.encodings[found.code];
    const chunk = found.segment
      ? await this.shared(array, found, encoding, signal)
      : await decodeChunk(await this.frame(array), encoding, target(array, encoding));
    return shown(chunk, array, encoding, found.start, shape);
  }

  /** Return a decoded chunk, which several may wait for. */
  private shared(array: ArrayEntry, found: Stored, encoding: Encoding, signal?: AbortSignal): Promise<Elements> {
    const key = `${found.segment!.name}/${found.source}/${found.offset}/${found.length}/${array.path}/${found.code}`;
    return this.decoded.get(key, (all) => this.decode(array, found, encoding, all), bytesOfElements, signal);
  }

  private async decode(array: ArrayEntry, found: Stored, encoding: Encoding, signal?: AbortSignal): Promise<Elements> {
    const text = array.dtype.kind === "string";
    const size = product(encoding.shape) * (text ? 1 : encoding.dtype.itemsize);
    checkSize(size);
    if (found.length > 2 * size + (text ? TEXT_SLACK : SLACK)) {
      throw new ManifestError(`the store is damaged: a chunk of ${size} bytes is stored in ${found.length}`);
    }
    if (found.state === "inline") {
      return decodeChunk(await this.segments.inline(found.segment!, found.offset, found.length), encoding, target(array, encoding));
    }
    const source = await this.segments.source(found.segment!, found.source);
    const bytes = await this.fetch(source, found.offset, found.length, signal);
    return decodeChunk(bytes, encoding, target(array, encoding), source.location);
  }

  private async fetch(source: Source, offset: number, length: number, signal?: AbortSignal): Promise<Uint8Array> {
    const url = urlOf(source.location, this.store, this.options.resolve);
    if (source.size !== null && offset + length > source.size) {
      throw new ManifestError(`the store is damaged: bytes ${offset} to ${offset + length} of a source of ${source.size} bytes`, { url });
    }
    const answer = await this.ranges.read(url, offset, length, signal);
    const changed = (what: string, now: unknown, then: unknown): never => {
      throw new SourceChangedError(`the source changed after it was scanned: its ${what} is ${now}, and was ${then}`, { url });
    };
    if (source.size !== null && answer.size !== null && answer.size !== source.size) changed("size", answer.size, source.size);
    const [etag, was] = [answer.etag, source.etag].map(strong);
    if (etag !== null && was !== null && etag !== was) changed("etag", etag, was);
    if (source.unmodifiedSince !== null && answer.lastModified !== null && answer.lastModified > source.unmodifiedSince) {
      changed("time of modification", time(answer.lastModified), `not after ${time(source.unmodifiedSince)}`);
    }
    if (answer.bytes.length !== length) throw new StorageError(`${answer.bytes.length} bytes instead of ${length}`, { url });
    return answer.bytes;
  }

  /** Return the bytes that the chunk of an array in the bundle has when it is no longer compressed. */
  async bundledBytes(array: ArrayEntry): Promise<number> {
    return (await this.frame(array)).length;
  }

  /** Return what the frame of a bundled array holds. */
  private async frame(array: ArrayEntry): Promise<Uint8Array> {
    const [offset, length] = array.bundled!;
    this.bundle ??= this.readBundle();
    this.bundle.catch(() => (this.bundle = null));
    const frame = (await this.bundle).subarray(offset, offset + length);
    return decodeBlosc(frame, `the frame of '${array.path}'`, (n) => n <= MAX_FRAME);
  }

  private async readBundle(): Promise<Uint8Array> {
    const { bundle } = this.snapshot;
    if (!bundle) throw new ManifestError("the store is damaged: an array is in the bundle, and there is none");
    const key = `.vstack/bundles/${bundle.name}`;
    const bytes = await this.load(key, { limit: bundle.size });
    if (bytes.length !== bundle.size) throw new ManifestError(`'${key}' has ${bytes.length} bytes instead of ${bundle.size}`);
    if (crc32(bytes) !== bundle.crc32) throw new ManifestError(`'${key}' has a wrong checksum`);
    let total = 0;
    for (const { path, bundled } of this.snapshot.arrays.values()) {
      if (!bundled) continue;
      if (bundled[0] + bundled[1] > bytes.length) throw new ManifestError(`the store is damaged: '${path}' is outside the bundle`);
      total += bloscSizes(bytes.subarray(bundled[0], bundled[0] + bundled[1]), `the frame of '${path}'`)[0];
    }
    if (total > MAX_BUNDLE) throw new ManifestError(`the frames of '${key}' decode to ${total} bytes, more than ${MAX_BUNDLE}`);
    return bytes;
  }
}

/** Return the values of a cell, which a decoded chunk has from an element on. */
export function shown(chunk: Elements, array: ArrayEntry, encoding: Encoding, start: number, shape: number[]): Elements {
  const cut = crop(chunk, encoding, start, shape, target(array, encoding));
  // what the chunk has outside of the cell may have no value, such as a date in the year 10^33 that fills it up
  return encoding.packing ? unpack(cut as Uint8Array, encoding.dtype, array.dtype, encoding.packing) : cut;
}

/** Data type to which a chunk is decoded. */
export const target = (array: ArrayEntry, encoding: Encoding): DType => (encoding.packing ? encoding.dtype : array.dtype);

/** Raise an error for more bytes than a chunk may have. */
export function checkSize(size: number): void {
  if (size > MAX_CHUNK_BYTES) throw new UnsupportedFeatureError(`a chunk has ${size} bytes, more than ${MAX_CHUNK_BYTES}`);
}

export const bytesOfElements = (x: Elements): number =>
  Math.max(1, typeof x[0] === "string" ? (x as string[]).reduce((n, y) => n + 2 * y.length + 32, 0) : x.length);

/** Return an etag without quotes; a weak one says nothing about bytes, so it is not compared. */
const strong = (etag: string | null): string | null => (etag === null || etag.startsWith("W/") ? null : etag.replaceAll('"', ""));
const time = (seconds: number): string => new Date(1000 * seconds).toISOString();

/** Return where the bytes of a cell are, from its placement and its row. */
export function stored(array: ArrayEntry, segment: Segment, placed: Placement, rows: Rows, i: number): Stored {
  const source = rows.source[i];
  const isHole = source === ABSENT || source === EMPTY;
  const code = rows.code[i] + (isHole ? placed.fill : placed.encoding);
  const codes: unknown[] = isHole ? array.fillValues : array.encodings;
  if (!(code >= 0 && code < codes.length)) throw new ManifestError(`the store is damaged: '${array.path}' has no encoding or fill value ${code}`);
  const state = source === ABSENT ? "absent" : source === EMPTY ? "empty" : source === INLINE ? "inline" : "reference";
  return { state, segment, source, offset: rows.offset[i], length: isHole ? 0 : rows.length[i], code, start: rows.start[i] };
}

/** Return elements of a fill value. */
export function filled(array: ArrayEntry, code: number, n: number): Elements {
  const raw = array.fillValues[code];
  if (array.dtype.kind === "string") return new Array<string>(n).fill(new TextDecoder().decode(raw));
  const value = toLittleEndian(raw, array.dtype, array.dtype);
  const out = new Uint8Array(n * value.length);
  if (value.some((x) => x !== 0)) for (let i = 0; i < n; i++) out.set(value, i * value.length);
  return out;
}

/** Return the part of a decoded chunk that a cell shows. */
function crop(chunk: Elements, encoding: Encoding, start: number, shape: number[], dtype: DType): Elements {
  const strides = encoding.strides;
  const n = product(shape);
  let [low, high] = [start, start];
  shape.forEach((length, i) => {
    const reach = strides[i] * (length - 1);
    if (reach < 0) low += reach;
    else high += reach;
  });
  if (n > 0 && (low < 0 || high >= product(encoding.shape))) throw new ManifestError("the store is damaged: a cell reaches outside its chunk");
  const isText = Array.isArray(chunk);
  const size = isText ? 1 : dtype.itemsize;
  let step = 1;
  let contiguous = true;
  for (let i = shape.length - 1; i >= 0; step *= shape[i--]) contiguous &&= shape[i] === 1 || strides[i] === step;
  if (contiguous) return isText ? chunk.slice(start, start + n) : chunk.subarray(start * size, (start + n) * size);
  const out: Elements = isText ? new Array<string>(n) : new Uint8Array(n * size);
  const inner = shape.length - 1;
  const index = new Array<number>(shape.length).fill(0);
  for (let k = 0; k < n; ) {
    let at = start;
    for (let i = 0; i < inner; i++) at += index[i] * strides[i];
    for (let j = 0; j < shape[inner]; j++, k++, at += strides[inner]) {
      if (isText) out[k] = chunk[at];
      else for (let b = 0; b < size; b++) out[k * size + b] = chunk[at * size + b];
    }
    for (let i = inner - 1; i >= 0 && ++index[i] === shape[i]; i--) index[i] = 0;
  }
  return out;
}
