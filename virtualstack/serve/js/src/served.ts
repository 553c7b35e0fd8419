/** A cube of a server of virtualstack, whose cells come as they are stored, as a store of zarrita. */

import type { AbsolutePath, AsyncReadable, GetOptions } from "zarrita";

import { Heap } from "./attributes.js";
import { fromBase64, integer, type Json, object, product, text } from "./checks.js";
import { bytesOfElements, checkSize, filled, shown, target } from "./chunks.js";
import { decodeChunk, type Elements, texts } from "./codecs/pipeline.js";
import { parseJson } from "./documents.js";
import { SourceNotFoundError, StorageError } from "./errors.js";
import { Cache } from "./lru.js";
import { type ArrayEntry, parseArray, parseEncoding } from "./snapshot.js";
import { VStackStore } from "./store.js";

/** Header of a cell that says how its bytes become values; without it, they are the values. */
const HOW = "Virtualstack-Cell";
const CACHE_BYTES = 2 ** 26;

/** The store that zarrita reads: arrays are known once their metadata have been asked for. */
export class ServedStore implements AsyncReadable {
  private readonly arrays = new Map<string, ArrayEntry>();
  private readonly opened = new Map<string, Promise<ArrayEntry>>();
  private readonly cells = new Cache<Elements>(CACHE_BYTES);
  private readonly store = new VStackStore({ arrays: this.arrays, groups: new Map() }, this);

  /** @param url URL of the cells of a cube, without a slash at the end. */
  constructor(private readonly url: string) {}

  async get(key: AbsolutePath, options: GetOptions = {}): Promise<Uint8Array | undefined> {
    const path = /^(.*)\/zarr\.json$/s.exec(key)?.[1];
    if (path) this.arrays.set(path, await this.once(path));
    return this.store.get(key, options);
  }

  /** Several may open an array at the same time; one that failed is asked for again. */
  private once(path: string): Promise<ArrayEntry> {
    const found = this.opened.get(path) ?? this.open(path);
    this.opened.set(path, found);
    found.catch(() => this.opened.delete(path));
    return found;
  }

  private async open(path: string): Promise<ArrayEntry> {
    const document = (await (await this.fetch(path, "array.json")).json()) as Json;
    const heap = new Heap(fromBase64(text(document["heap"], "heap"), "its heap"));
    const found = { ...object(document["array"], "array"), placements: { pages: [], tail: [] }, bundled: null };
    return parseArray(path, found, heap, () => Promise.reject(new StorageError("there is no table")));
  }

  /** Return the elements of a cell, in C order and in the data type of the array, with little-endian bytes. */
  read(array: ArrayEntry, cell: readonly number[], signal?: AbortSignal): Promise<Elements> {
    return this.cells.get(`${array.path}/${cell.join(".")}`, (all) => this.decode(array, cell, all), bytesOfElements, signal);
  }

  /** Return the bytes of a few elements of the cell at a place, from the least to the greatest. */
  async some(path: string, at: readonly number[]): Promise<ArrayBuffer> {
    const { axes } = await this.once(path);
    return (await this.fetch(path, `${axes.map((x, i) => x.find(at[i])).join(".")}?some`)).arrayBuffer();
  }

  private async decode(array: ArrayEntry, cell: readonly number[], signal?: AbortSignal): Promise<Elements> {
    const shape = array.axes.map((x, i) => x.end(cell[i]) - x.begin(cell[i]));
    checkSize(product(shape) * Math.max(array.dtype.itemsize, 1));
    const answer = await this.fetch(array.path, cell.join(".") || "0", signal);
    const how = answer.headers.get(HOW);
    const bytes = new Uint8Array(await answer.arrayBuffer());
    if (how === null && array.dtype.kind === "string") return texts(bytes, product(shape));
    if (how === null) {
      if (bytes.length === product(shape) * array.dtype.itemsize) return bytes;
      throw new StorageError(`${bytes.length} bytes are not a cell of ${shape.join(" x ")} values: load the page again`, { url: answer.url });
    }
    const said = parseJson(new TextEncoder().encode(how), HOW);
    if (said["fill"] !== undefined) {
      const fillValues = [fromBase64(text(said["fill"], "fill"), "a fill value")];
      return filled({ ...array, fillValues }, 0, product(shape));
    }
    const encoding = parseEncoding(said["encoding"], array.dtype, shape.length, `array '${array.path}'`);
    checkSize(product(encoding.shape) * encoding.dtype.itemsize);
    const chunk = await decodeChunk(bytes, encoding, target(array, encoding), answer.url);
    return shown(chunk, array, encoding, integer(said["start"], "the start of a cell"), shape);
  }

  /** Request a key of an array. Names are quoted, as "%41", "#" and ":" would change in a URL. */
  private async fetch(path: string, key: string, signal?: AbortSignal): Promise<Response> {
    const answer = await globalThis.fetch(`${this.url}${path.split("/").map(encodeURIComponent).join("/")}/${key}`, { signal });
    if (answer.ok) return answer;
    const { status, url } = answer;
    const body = (await answer.json().catch(() => ({}))) as Json;
    const message = typeof body["message"] === "string" ? body["message"] : `the server answered with status ${status}`;
    throw new (status === 404 ? SourceNotFoundError : StorageError)(message, { url, status });
  }
}
