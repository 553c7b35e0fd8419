/** Documents (JSON objects in gzip), and tables whose pages are documents. */

import { type Json, integer, list, object, text } from "./checks.js";
import { ManifestError } from "./errors.js";
import { collect } from "./http.js";

export const MAX_DOCUMENT_BYTES = 2 ** 26;
const MAX_MARKS = 2 ** 23;
const MAX_DEPTH = 1024; // as orjson, which reads documents in Python
const NAME = /^[0-9a-f]{24}$/;

/** Read an object below `.vstack`, or a range of one that has a size, or raise an error. */
export type ReadObject = (key: string, range: { offset: number; length: number; size: number } | { limit: number }) => Promise<Uint8Array>;

export async function parseDocument(bytes: Uint8Array, key: string): Promise<Json> {
  // a server that answers with "Content-Encoding: gzip" makes fetch decompress the document
  const plain = bytes[0] === 0x1f && bytes[1] === 0x8b ? await gunzip(bytes, key) : bytes;
  let marks = 0;
  for (let i = 0; i < plain.length; i++) if (plain[i] === 44 || plain[i] === 91 || plain[i] === 123) marks += 1;
  if (marks > MAX_MARKS) throw new ManifestError(`'${key}' has ${marks} of the characters , [ and {, not at most ${MAX_MARKS}`);
  return parseJson(plain, key);
}

export function parseJson(bytes: Uint8Array, key: string): Json {
  let parsed: unknown;
  if (isDeeper(bytes, MAX_DEPTH)) throw new ManifestError(`'${key}' has more than ${MAX_DEPTH} lists and objects in each other`);
  try {
    parsed = JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(bytes));
  } catch (cause) {
    throw new ManifestError(`'${key}' is not JSON`, {}, { cause });
  }
  return object(parsed, `the content of '${key}'`);
}

/** Whether JSON has more than a number of lists and objects in each other; strings have none. */
function isDeeper(bytes: Uint8Array, limit: number): boolean {
  let depth = 0;
  let isText = false;
  for (let i = 0; i < bytes.length && depth <= limit; i++) {
    const x = bytes[i];
    if (x === 34) isText = !isText;
    else if (isText) i += Number(x === 92);
    else if (x === 91 || x === 123) depth += 1;
    else if (x === 93 || x === 125) depth -= 1;
  }
  return depth > limit;
}

async function gunzip(bytes: Uint8Array, key: string): Promise<Uint8Array> {
  try {
    return await inflate(bytes, "gzip", MAX_DOCUMENT_BYTES);
  } catch (cause) {
    throw new ManifestError(`'${key}' is not one gzip member of at most ${MAX_DOCUMENT_BYTES} bytes`, {}, { cause });
  }
}

/** Decompress a stream of gzip or zlib, to a number of bytes at most. */
export async function inflate(bytes: Uint8Array, format: "gzip" | "deflate", limit: number): Promise<Uint8Array> {
  const stream = new Blob([bytes as BlobPart]).stream().pipeThrough(new DecompressionStream(format));
  return collect(stream, limit, () => new RangeError(`more than ${limit} bytes`));
}

export function name(value: unknown, what: string): string {
  if (typeof value !== "string" || !NAME.test(value)) throw new ManifestError(`the store is damaged: ${what} is not a name`);
  return value;
}

interface Page {
  name: string;
  first: number;
  n: number;
  begin: number[];
  end: number[];
}

/** A list of rows that only grows, in pages and a tail. Pages are read when they are needed, and kept. */
export class Table<T> {
  private readonly pages: Page[];
  private readonly tail: T[];
  private readonly read = new Map<string, Promise<T[]>>();
  readonly length: number;

  /** @param ndim Axes of the boxes of pages; 0 for pages without a box. */
  constructor(
    value: unknown,
    private readonly what: string,
    private readonly item: (x: unknown, what: string) => T,
    private readonly load: ReadObject,
    ndim = 0,
  ) {
    const parts = object(value, what);
    let first = 0;
    this.pages = list(parts["pages"], `pages of ${what}`, (x) => {
      const row = list(x, `a page of ${what}`, (y) => y, 2 + 2 * ndim);
      const box = row.slice(2).map((y) => integer(y, `the box of a page of ${what}`));
      const page = { name: name(row[0], `a page of ${what}`), first, n: integer(row[1], `rows of a page of ${what}`) };
      first += page.n;
      return { ...page, begin: box.slice(0, ndim), end: box.slice(ndim) };
    });
    this.tail = list(parts["tail"], what, item);
    this.length = first + this.tail.length;
  }

  private rows(page: Page): Promise<T[]> {
    let rows = this.read.get(page.name);
    if (!rows) {
      rows = this.loadPage(page);
      rows.catch(() => this.read.delete(page.name));
      this.read.set(page.name, rows);
    }
    return rows;
  }

  private async loadPage(page: Page): Promise<T[]> {
    const key = `.vstack/pages/${page.name}.json.gz`;
    const found = await parseDocument(await this.load(key, { limit: MAX_DOCUMENT_BYTES }), key);
    if (text(found["name"], `name in '${key}'`) !== page.name) throw new ManifestError(`'${key}' is another page`);
    return list(found["rows"], `rows of '${key}'`, this.item, page.n);
  }

  /** Return one row. */
  async at(n: number): Promise<T> {
    if (n >= this.length) throw new ManifestError(`the store is damaged: ${this.what} has ${this.length} rows, and row ${n} is named`);
    const page = this.pages.find((x) => n < x.first + x.n);
    return page ? (await this.rows(page))[n - page.first] : this.tail[n - (this.length - this.tail.length)];
  }

  /** Return the last row that fits, where its page may have one: a page has one if its box touches `begin` to `end`. */
  async last(begin: readonly number[], end: readonly number[], fits: (row: T) => boolean): Promise<T | null> {
    const found = this.tail.findLast(fits);
    if (found !== undefined) return found;
    for (const page of this.pages.toReversed()) {
      if (!touches(page, begin, end)) continue;
      const row = (await this.rows(page)).findLast(fits);
      if (row !== undefined) return row;
    }
    return null;
  }

  /** Return all rows. */
  async all(): Promise<T[]> {
    return (await Promise.all(this.pages.map((x) => this.rows(x)))).flat().concat(this.tail);
  }
}

function touches(page: Page, begin: readonly number[], end: readonly number[]): boolean {
  return page.begin.every((n, i) => n < end[i] && page.end[i] > begin[i]);
}
