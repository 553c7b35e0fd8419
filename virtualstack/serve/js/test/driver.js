/** Do what a test in Python asks: one job in, one result out, both JSON. It runs in node and in a browser. */

import { get, open, root, slice, withConsolidatedMetadata } from "zarrita";

import { decodeChunk } from "../dist/codecs/pipeline.js";
import { parseDtype } from "../dist/dtype.js";
import { openVStack } from "../dist/index.js";

/** Requests of the last job. */
let requests = [];

const counting = (url, init) => {
  requests.push({ url, range: init.headers?.Range ?? null, headers: init.headers ?? {} });
  return globalThis.fetch(url, init);
};

function optionsOf({ moves = [], ...options }) {
  const resolve = (location) => {
    for (const [old, now] of moves) {
      if (location.startsWith(old)) return now + location.slice(old.length).split("/").map(encodeURIComponent).join("/");
    }
    return undefined;
  };
  return { ...options, fetch: counting, resolve };
}

const base64 = (bytes) => {
  let raw = "";
  for (let i = 0; i < bytes.length; i += 8192) raw += String.fromCharCode(...bytes.subarray(i, i + 8192));
  return btoa(raw);
};

/** Return a value as JSON can have it. */
export function tagged(value) {
  if (typeof value === "bigint") return { int: value.toString() };
  if (typeof value === "number" && !Number.isFinite(value)) return { float: String(value) };
  if (value instanceof Uint8Array) return { bytes: base64(value) };
  if (ArrayBuffer.isView(value)) return [...value].map(tagged);
  if (Array.isArray(value)) return value.map(tagged);
  if (typeof value === "object" && value !== null) return { dict: Object.entries(value).map(([k, v]) => [k, tagged(v)]) };
  return value;
}

async function cellsOf(vstack, { path, grid }) {
  const n = grid.reduce((a, b) => a * b, 1);
  const jobs = Array.from({ length: n }, async (_, k) => {
    const cell = new Array(grid.length);
    for (let i = grid.length - 1; i >= 0; k = Math.floor(k / grid[i--])) cell[i] = k % grid[i];
    const { shape, values } = await vstack.readCell(path, cell);
    return { cell, shape, values: Array.isArray(values) ? values : base64(values) };
  });
  return Promise.all(jobs);
}

/** Return all values of an array through zarrita. */
async function throughZarrita(vstack, { path, shape }) {
  const array = await open(root(vstack.store).resolve(path), { kind: "array" });
  let data;
  if (shape.length === 0) data = (await array.getChunk([])).data;
  else if (shape.some((n) => n === 0)) data = [];
  else ({ data } = await get(array, shape.map(() => null)));
  const values = ArrayBuffer.isView(data) ? { bytes: base64(new Uint8Array(data.buffer, data.byteOffset, data.byteLength)) } : { list: [...data] };
  return { dtype: array.dtype, shape: array.shape, chunks: array.chunks, fill: tagged(array.fillValue), attributes: tagged(array.attrs), ...values };
}

const jobs = {
  /** Read all groups and arrays, cell by cell and through zarrita. */
  async everything({ url, options }) {
    const vstack = await openVStack(url, optionsOf(options));
    const arrays = [];
    for (const info of vstack.arrays()) {
      const cells = await cellsOf(vstack, info);
      const zarr = info.zarrDtype ? await throughZarrita(vstack, info) : null;
      const states = await vstack.chunkStates(info.path);
      arrays.push({ ...info, attributes: tagged(info.attributes), cells, zarr, states: [...states.state], edges: states.edges });
    }
    const groups = vstack.groups().map((x) => ({ ...x, attributes: tagged(x.attributes) }));
    return { snapshot: vstack.snapshot, groups, arrays };
  },
  async cells({ url, options, path, cells }) {
    const vstack = await openVStack(url, optionsOf(options));
    return Promise.all(cells.map(async (cell) => base64((await vstack.readCell(path, cell)).values)));
  },
  async zarr({ url, options, path, selection }) {
    const vstack = await openVStack(url, optionsOf(options));
    const array = await open(root(vstack.store).resolve(path), { kind: "array" });
    const { data, shape } = await get(array, selection && selection.map((x) => (Array.isArray(x) ? slice(...x) : x)));
    return { bytes: base64(new Uint8Array(data.buffer, data.byteOffset, data.byteLength)), shape, dtype: array.dtype };
  },
  async states({ url, options, path }) {
    const vstack = await openVStack(url, optionsOf(options));
    const before = performance.now();
    const { grid, edges, state, source, code, length, sources } = await vstack.chunkStates(path);
    const took = performance.now() - before;
    return { grid, edges, state: base64(state), source: base64(new Uint8Array(source.buffer)), code: base64(new Uint8Array(code.buffer)), length: base64(new Uint8Array(length.buffer)), sources, took };
  },
  async snapshots({ url, options, limit }) {
    return (await openVStack(url, optionsOf(options))).snapshots(limit);
  },
  async sources({ url, options, path }) {
    return (await openVStack(url, optionsOf(options))).sources(path);
  },
  /** Read one chunk, and say how long each step took. */
  async first({ url, options, path, cell }) {
    const before = performance.now();
    const vstack = await openVStack(url, optionsOf(options));
    const opened = performance.now();
    const { values } = await vstack.readCell(path, cell);
    return { values: base64(values), opened: opened - before, read: performance.now() - opened };
  },
  async keys({ url, options, keys }) {
    const { store } = await openVStack(url, optionsOf(options));
    const found = {};
    for (const key of keys) found[key] = ((bytes) => bytes && base64(bytes))(await store.get(key)) ?? null;
    return found;
  },
  /** List arrays and groups as zarrita does. */
  async contents({ url, options }) {
    const { store } = await openVStack(url, optionsOf(options));
    return (await withConsolidatedMetadata(store)).contents();
  },
  /** Decode the bytes of a chunk of one axis. */
  async decode({ bytes, dtype, n, codecs }) {
    const type = parseDtype(dtype);
    const stored = Uint8Array.from(atob(bytes), (x) => x.charCodeAt(0));
    return base64(await decodeChunk(stored, { dtype: type, shape: [n], codecs, strides: [1], packing: null }, type));
  },
  /** Ask twice for one chunk, and give up the first time. */
  async twice({ url, options, key }) {
    const { store } = await openVStack(url, optionsOf(options));
    const controller = new AbortController();
    const first = store.get(key, { signal: controller.signal }).then(() => "read", (error) => error.name);
    const second = store.get(key).then((x) => x.length);
    setTimeout(() => controller.abort(), 150);
    return [await first, await second];
  },
};

/** Do a job: `{job, ...}` to `{result, requests}` or `{error, requests}`. */
export async function run(job) {
  requests = [];
  try {
    return { result: await jobs[job.job](job), requests };
  } catch (error) {
    const { name, message, variable, cell, url, status, stack } = error;
    return { error: { name, message, variable, cell, url, status, stack }, requests };
  }
}
