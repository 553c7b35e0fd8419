/** Rows, sources and inline chunks of segments. */

import { crc32, crc32c, finite, integer, type Json, list, orNull, text, view } from "./checks.js";
import { MAX_DOCUMENT_BYTES, parseDocument, type ReadObject } from "./documents.js";
import { ManifestError, VStackError } from "./errors.js";
import { isRelative, relocate, scheme } from "./locations.js";
import { Cache } from "./lru.js";
import { decodeBlosc } from "./codecs/blosc.js";
import type { Segment, Snapshot } from "./snapshot.js";

const PAGE_ROWS = 32768;
const SHARD_PAGES = 64;
const SOURCES_IN_PAGE = 4096;
const PART_BYTES = 2 ** 40;
/** Sources of a segment that are listed at once. */
const MAX_SOURCES = 2 ** 22;
/** Shards of at most this size are read whole for one chunk: one request instead of two. */
export const MAX_WHOLE_SHARD_BYTES = 2 ** 21;
/** What requests for many pages have at most, so that a page on the screen can be drawn in between. */
const MAX_REQUEST_BYTES = 10 ** 6;
const CACHED_BYTES = 2 ** 27;

export const ABSENT = -1;
export const EMPTY = -2;
export const INLINE = -3;

/** Rows of one page, column by column. */
export interface Rows {
  first: number;
  source: Float64Array;
  offset: Float64Array;
  length: Float64Array;
  code: Float64Array;
  start: Float64Array;
}

/** A file or object that holds chunks, as the store describes it. */
export interface Source {
  /** Where it is, after relocations; `./` and `../` are relative to the store. */
  location: string;
  /** Bytes. */
  size: number | null;
  /** Seconds since 1970 (UTC). */
  mtime: number | null;
  etag: string | null;
  /** Seconds since 1970 (UTC); null if it is not compared. */
  unmodifiedSince: number | null;
}

/** Objects of the segments of one snapshot. */
export class Segments {
  private readonly pages = new Cache<Rows>(CACHED_BYTES);
  private readonly shards = new Cache<Uint8Array>(CACHED_BYTES / 4);
  private readonly indexes = new Cache<DataView>(CACHED_BYTES / 64);
  private readonly sources = new Cache<Source[]>(CACHED_BYTES / 4);

  constructor(
    private readonly snapshot: Snapshot,
    private readonly load: ReadObject,
  ) {}

  /** Return the rows of the page that has a row. */
  page(segment: Segment, row: number): Promise<Rows> {
    if (row < 0 || row >= segment.rows) {
      throw new ManifestError(`the store is damaged: segment ${segment.name} has ${segment.rows} rows, and row ${row} is named`);
    }
    const page = Math.floor(row / PAGE_ROWS);
    return this.rows(segment, page, () => this.frame(segment, page));
  }

  private rows(segment: Segment, page: number, frame: () => Promise<Uint8Array>): Promise<Rows> {
    const size = Math.min(PAGE_ROWS, segment.rows);
    return this.pages.get(
      `${segment.name}/${page}`,
      async () => decodePage(await frame(), segment, page, size),
      () => 40 * size,
    );
  }

  /** Return all pages from one row to another; pages that are beside each other come with one request. */
  async range(segment: Segment, first: number, last: number): Promise<Rows[]> {
    const [begin, end] = [Math.floor(first / PAGE_ROWS), Math.floor(last / PAGE_ROWS) + 1];
    const n = shardPages(segment);
    const jobs: Promise<Rows[]>[] = [];
    for (let shard = Math.floor(begin / n); shard * n < end; shard++) {
      jobs.push(this.shardRange(segment, shard, Math.max(begin, shard * n), Math.min(end, (shard + 1) * n)));
    }
    return (await Promise.all(jobs)).flat();
  }

  private async shardRange(segment: Segment, shard: number, begin: number, end: number): Promise<Rows[]> {
    if (shardSize(segment, shard) <= MAX_REQUEST_BYTES || end - begin === 1) {
      return Promise.all(Array.from({ length: end - begin }, (_, i) => this.page(segment, (begin + i) * PAGE_ROWS)));
    }
    const index = await this.index(segment, shard, false);
    const n = shardPages(segment);
    const places = Array.from({ length: end - begin }, (_, i) => place(segment, shard, index, (begin + i) % n));
    const jobs: Promise<Rows>[] = [];
    for (let i = 0, k = 0; i < places.length; i = k) {
      const [offset] = places[i];
      let stop = offset;
      for (k = i; k < places.length && places[k][0] === stop && (k === i || stop + places[k][1] - offset <= MAX_REQUEST_BYTES); k++) {
        stop += places[k][1];
      }
      const whole = this.load(shardKey(segment, shard), { offset, length: stop - offset, size: shardSize(segment, shard) });
      for (let j = i; j < k; j++) {
        const [at, length] = places[j];
        jobs.push(this.rows(segment, begin + j, async () => (await whole).subarray(at - offset, at - offset + length)));
      }
      whole.catch(() => undefined);
    }
    return Promise.all(jobs);
  }

  private async frame(segment: Segment, page: number): Promise<Uint8Array> {
    const n = shardPages(segment);
    const shard = Math.floor(page / n);
    const index = await this.index(segment, shard);
    const [offset, length] = place(segment, shard, index, page % n);
    const size = shardSize(segment, shard);
    if (size > MAX_WHOLE_SHARD_BYTES) return this.load(shardKey(segment, shard), { offset, length, size });
    return (await this.whole(segment, shard)).subarray(offset, offset + length);
  }

  private whole(segment: Segment, shard: number): Promise<Uint8Array> {
    const key = shardKey(segment, shard);
    const size = shardSize(segment, shard);
    return this.shards.get(
      key,
      async () => {
        const bytes = await this.load(key, { limit: size });
        if (bytes.length !== size) throw new ManifestError(`'${key}' has ${bytes.length} bytes instead of ${size}`);
        return bytes;
      },
      () => size,
    );
  }

  /** Return the index of a shard: offset and length of each page. */
  private index(segment: Segment, shard: number, isWhole = shardSize(segment, shard) <= MAX_WHOLE_SHARD_BYTES): Promise<DataView> {
    const length = 16 + 16 * shardPages(segment) + 4;
    const size = shardSize(segment, shard);
    const key = shardKey(segment, shard);
    return this.indexes.get(
      key,
      async () => {
        if (length > size) throw new ManifestError(`'${key}' is too short for its index`);
        if (shardPages(segment) === 1 && size > pageLimit(segment) + 36) throw new ManifestError(`'${key}' is too long for one page`);
        const bytes = isWhole
          ? (await this.whole(segment, shard)).slice(size - length) // a view would keep the whole shard in memory
          : await this.load(key, { offset: size - length, length, size });
        const digits = Array.from(bytes.subarray(0, 12), (x) => x.toString(16).padStart(2, "0")).join("");
        if (digits !== segment.name || view(bytes).getUint32(12, true) !== shard) throw new ManifestError(`'${key}' is another shard`);
        const index = bytes.subarray(16, length - 4);
        if (crc32c(index) !== view(bytes).getUint32(length - 4, true)) throw new ManifestError(`the index of '${key}' has a wrong checksum`);
        return view(index);
      },
      () => length,
    );
  }

  /** Return a source of a segment. */
  async source(segment: Segment, n: number): Promise<Source> {
    if (n >= segment.nSources) throw new ManifestError(`the store is damaged: segment ${segment.name} has no source ${n}`);
    const page = segment.sources ? 0 : Math.floor(n / SOURCES_IN_PAGE);
    return (await this.sourcePage(segment, page))[segment.sources ? n : n % SOURCES_IN_PAGE];
  }

  /** Return all sources of a segment. */
  async allSources(segment: Segment): Promise<Source[]> {
    if (segment.nSources > MAX_SOURCES) throw new VStackError(`segment ${segment.name} has ${segment.nSources} sources, more than ${MAX_SOURCES}`);
    const n = segment.sources ? 1 : Math.ceil(segment.nSources / SOURCES_IN_PAGE);
    return (await Promise.all(Array.from({ length: n }, (_, i) => this.sourcePage(segment, i)))).flat();
  }

  private sourcePage(segment: Segment, page: number): Promise<Source[]> {
    return this.sources.get(
      `${segment.name}/${page}`,
      async () => {
        if (segment.sources) return parseSources(segment.sources, segment, segment.nSources, this.snapshot);
        const key = `.vstack/segments/${segment.name}/sources/${page}.json.gz`;
        const document = await parseDocument(await this.load(key, { limit: MAX_DOCUMENT_BYTES }), key);
        if (document["segment"] !== segment.name || document["page"] !== page) throw new ManifestError(`'${key}' is another page`);
        const n = Math.min(SOURCES_IN_PAGE, segment.nSources - page * SOURCES_IN_PAGE);
        return parseSources(document, segment, n, this.snapshot);
      },
      (x) => 200 * x.length,
    );
  }

  /** Return the bytes of an inline chunk. */
  async inline(segment: Segment, offset: number, length: number): Promise<Uint8Array> {
    const part = Math.floor(offset / PART_BYTES);
    const at = offset % PART_BYTES;
    if (part >= segment.heap.length || at + length + 4 > segment.heap[part]) {
      throw new ManifestError(`the store is damaged: an inline chunk is outside the heap of segment ${segment.name}`);
    }
    const bytes = await this.load(`.vstack/segments/${segment.name}/heap/${part}`, { offset: at, length: length + 4, size: segment.heap[part] });
    const chunk = bytes.subarray(0, length);
    const owner = new TextEncoder().encode(`${segment.name}/${part}`);
    if (crc32(owner, chunk) !== view(bytes).getUint32(length, true)) {
      throw new ManifestError(`an inline chunk of segment ${segment.name} has a wrong checksum`);
    }
    return chunk;
  }
}

const shardPages = (segment: Segment): number => Math.min(SHARD_PAGES, Math.max(1, Math.ceil(segment.rows / PAGE_ROWS)));
const shardKey = (segment: Segment, shard: number): string => `.vstack/segments/${segment.name}/refs/c/0/${shard}`;
const pageLimit = (segment: Segment): number => 8 * segment.columns * Math.min(PAGE_ROWS, segment.rows) + 20;

function shardSize(segment: Segment, shard: number): number {
  if (shard >= segment.shards.length) throw new ManifestError(`the store is damaged: segment ${segment.name} has no shard ${shard}`);
  return segment.shards[shard];
}

function place(segment: Segment, shard: number, index: DataView, page: number): [number, number] {
  const offset = Number(index.getBigUint64(16 * page, true));
  const length = Number(index.getBigUint64(16 * page + 8, true));
  if (offset + length > shardSize(segment, shard) || length > pageLimit(segment) || length < 20) {
    throw new ManifestError(`the store is damaged: a page of rows of segment ${segment.name} is outside its shard, or too long`);
  }
  return [offset, length];
}

async function decodePage(bytes: Uint8Array, segment: Segment, page: number, n: number): Promise<Rows> {
  const what = `page ${page} of the rows of segment ${segment.name}`;
  const frame = bytes.subarray(0, bytes.length - 4);
  if (crc32c(frame) !== view(bytes).getUint32(frame.length, true)) throw new ManifestError(`${what} has a wrong checksum`);
  const wanted = 8 * segment.columns * n;
  const words = view(await decodeBlosc(frame, what, (declared) => declared === wanted));
  const column = (k: number): Float64Array => {
    const out = new Float64Array(n);
    if (k < segment.columns) for (let i = 0, at = 8 * k * n; i < n; i++, at += 8) out[i] = words.getInt32(at + 4, true) * 2 ** 32 + words.getUint32(at, true);
    return out;
  };
  const rows = { first: page * PAGE_ROWS, source: column(0), offset: column(1), length: column(2), code: column(3), start: column(4) };
  let before = ABSENT;
  let end = 0;
  const used = Math.min(n, segment.rows - rows.first); // the last page is filled up
  for (let i = 0; i < used; i++) {
    const source = rows.source[i];
    if (source < INLINE || source >= segment.nSources) throw new ManifestError(`${what} is damaged: there is no source ${source}`);
    if (source === ABSENT || source === EMPTY) continue;
    if (source === before) rows.offset[i] += end;
    before = source;
    end = rows.offset[i] + rows.length[i];
    if (rows.offset[i] < 0 || rows.length[i] < 0 || !Number.isSafeInteger(end)) {
      throw new ManifestError(`${what} is damaged: a chunk has offset ${rows.offset[i]} and length ${rows.length[i]}`);
    }
  }
  return rows;
}

function parseSources(document: Json, segment: Segment, n: number, snapshot: Snapshot): Source[] {
  const column = <T>(field: string, check: (x: unknown, what: string) => T): T[] => list(document[field], `'${field}' of sources`, check, n);
  const optional = <T>(field: string, check: (x: unknown, what: string) => T): (T | null)[] =>
    document[field] === undefined ? [] : column(field, (x, what) => orNull(x, what, check));
  const prefixes = column("prefix", (x, what) => integer(x, what, 0, segment.prefixes.length - 1));
  const suffixes = column("suffix", text);
  const sizes = column("size", (x, what) => orNull(x, what, integer));
  const mtimes = column("mtime", (x, what) => orNull(x, what, finite));
  const etags = column("etag", (x, what) => orNull(x, what, text));
  const since = optional("unmodified_since", finite);
  return prefixes.map((p, i) => {
    const q = segment.prefixes[p];
    if (q >= snapshot.prefixes.length) throw new ManifestError(`the store is damaged: there is no prefix ${q}`);
    const written = snapshot.prefixes[q] + suffixes[i];
    const location = relocate(written, q, snapshot.relocations);
    // "Changed sources" of the specification: what does not count after a store or its sources have moved
    const moved = isRelative(location) || location !== written;
    const etag = scheme(location) !== scheme(written) || isRelative(snapshot.prefixes[q]) ? null : etags[i];
    return { location, size: sizes[i], mtime: moved ? null : mtimes[i], etag, unmodifiedSince: moved ? null : (since[i] ?? null) };
  });
}

