/** Facts that the page finds itself, in a vstack on a static web server or in a bucket. */

import { attributeToJson, type ChunkStates, openVStack, type VStack } from "../../js/src/index";
import { Cache } from "../../js/src/lru";
import type { Attributes, ChunkMap, Count, CubeName, Encoding, Facts, Kinds, List, Options, Source, Variable, Verified } from "./facts";
import { WrittenFacts } from "./written";

const MAX_BOXES = 4096;
const MAX_ENCODINGS = 64;
const MAX_COUNTED = 50;
const MAX_NOTES = 100;
const MAX_COUNTED_AT_ONCE = 4;
const MAX_KEPT_BYTES = 2 ** 28;
const MAX_SNAPSHOTS = 200;
const MAX_VARIABLES = 20;
const MAX_ATTRIBUTE_CHARACTERS = 1000;

type ArrayInfo = ReturnType<VStack["arrays"]>[number];

/** Stored forms of an array: dtype, shape and codecs as far as they decode, each once. */
interface Forms {
  /** Number of the form of each encoding of the array. */
  of: number[];
  rows: Omit<Encoding, "n_chunks" | "nbytes">[];
}

/** Facts of one vstack, and of a file that has the others, if there is one at `factsUrl`. */
export class StoreFacts implements Facts {
  private readonly name: string;
  private readonly files = new Map<string, Promise<WrittenFacts>>();
  private readonly opened = new Map<string, Promise<VStack>>();
  private readonly states = new Cache<ChunkStates>(MAX_KEPT_BYTES);

  constructor(private readonly url: string, private readonly factsUrl: string | null) {
    this.name = decodeURIComponent(new URL(url).pathname.replace(/\/+$/, "").replace(/^.*\//, "")) || "cube";
  }

  async cubes(): Promise<CubeName[]> {
    return [{ name: this.name, kind: "vstack", url: shownUrl(this.url), has_snapshots: true }];
  }

  async store(cube: string): Promise<VStack["store"]> {
    return (await this.open(cube)).store;
  }

  async find<K extends keyof Kinds>(cube: string, kind: K, options: Options = {}): Promise<Kinds[K]> {
    const vstack = await this.open(cube);
    const offset = Number(options.offset ?? 0);
    const find: { [T in keyof Kinds]?: () => Kinds[T] | Promise<Kinds[T]> } = {
      variables: () => this.variables(vstack, cube),
      counts: () => this.counts(vstack, cube, offset),
      map: () => this.map(vstack, cube, String(options.variable)),
      sources: async () => {
        const all = await this.sources(vstack, cube);
        return page(all.slice(offset, offset + Number(options.limit ?? 100)), offset, all.length);
      },
      verified: () => this.verified(vstack, cube),
      snapshots: () => snapshots(vstack),
    };
    const found = find[kind];
    if (found) return found() as Promise<Kinds[K]>;
    const file = await this.file();
    if (!file) throw new Error("The page was given no file of facts.");
    return file.find(cube, kind, options);
  }

  async file(): Promise<WrittenFacts | null> {
    const url = this.factsUrl;
    if (!url) return null;
    return kept(this.files, url, () => WrittenFacts.load(url, (snapshot) => this.timeOf(snapshot)));
  }

  private async timeOf(snapshot: number): Promise<number | null> {
    const newest = (await this.open(this.name)).snapshot;
    if (newest.number === snapshot) return newest.time;
    return this.open(`${this.name}@${snapshot}`).then((x) => x.snapshot.time, () => null);
  }

  private async verified(vstack: VStack, cube: string): Promise<Verified> {
    try {
      const said = await (await this.file())?.verified();
      if (!said?.found) return said ?? { found: null, error: null };
      const counts: Record<string, number> = {};
      for (const { status } of await this.sources(vstack, cube)) counts[status ?? ""] = (counts[status ?? ""] ?? 0) + 1;
      return { ...said, found: { ...said.found, counts } };
    } catch (error) {
      return { found: null, error: error instanceof Error ? error.message : String(error) };
    }
  }

  private open(cube: string): Promise<VStack> {
    const at = cube === this.name ? undefined : Number(cube.slice(this.name.length + 1));
    return kept(this.opened, cube, () => openVStack(this.url, { snapshot: at, absent: "fill" }));
  }

  private statesOf(vstack: VStack, cube: string, { path }: ArrayInfo): Promise<ChunkStates> {
    const size = ({ state, source, code, length }: ChunkStates): number => [state, source, code, length].reduce((n, x) => n + x.byteLength, 1);
    return this.states.get(`${cube}${path}`, () => vstack.chunkStates(path), size);
  }

  private variables(vstack: VStack, cube: string): Kinds["variables"] {
    const items = vstack.arrays().map(variable);
    const [root] = vstack.groups().filter((x) => x.path === "");
    const noted = vstack.groups().flatMap((x) => x.refusals);
    return {
      name: this.name,
      kind: "vstack",
      url: shownUrl(this.url),
      version: String(vstack.snapshot.number),
      is_fixed: cube !== this.name,
      attributes: attributes(root.attributes),
      groups: vstack.groups().map((x) => x.path.slice(1)).filter(Boolean),
      n_refused: 0,
      refused: [],
      n_noted: noted.length,
      noted: noted.slice(0, MAX_NOTES).map((x) => ({ ...x, reason: x.reason.slice(0, MAX_ATTRIBUTE_CHARACTERS) })),
      ...page(items),
    };
  }

  private async counts(vstack: VStack, cube: string, offset: number): Promise<Kinds["counts"]> {
    const arrays = vstack.arrays();
    const some = arrays.slice(offset, offset + MAX_COUNTED);
    const items = await mapped(some, MAX_COUNTED_AT_ONCE, async (array): Promise<Count> => {
      const path = array.path.slice(1);
      try {
        const states = await this.statesOf(vstack, cube, array);
        const { counted, forms } = count(array, states);
        return { path, ...counted, encodings: forms.slice(0, 10) };
      } catch (error) {
        const none = { n_chunks: 0, n_empty: 0, n_absent: 0, n_inline: 0, n_referenced: 0, nbytes: 0, n_sources: 0, n_encodings: 0 };
        return { path, error: error instanceof Error ? error.message : String(error), ...none, encodings: [] };
      }
    });
    return page(items, offset, arrays.length);
  }

  private async map(vstack: VStack, cube: string, path: string): Promise<ChunkMap> {
    const array = vstack.arrays().find((x) => x.path === `/${path}`);
    if (!array) throw new Error(`There is no variable '${path}'.`);
    return drawn(array, await this.statesOf(vstack, cube, array));
  }

  private async sources(vstack: VStack, cube: string): Promise<Source[]> {
    const found = new Map<string, Source>();
    const file = await this.file().catch(() => null);
    const said = await file?.verified().catch(() => null);
    const state = file && said?.found ? await file.states(decodeURI(this.url.replace(/[?#].*$/s, ""))) : () => null;
    for (const array of vstack.arrays()) {
      const { source, length, sources } = await this.statesOf(vstack, cube, array);
      const rows = sources.map(({ location, size }) => {
        let row = found.get(location);
        if (!row) {
          const url = shownUrl(absolute(location, this.url));
          found.set(location, (row = { url, size, n_chunks: 0, nbytes: 0, variables: [], n_variables: 0, status: state(url) }));
        }
        return row;
      });
      for (const row of new Set(rows)) {
        row.n_variables += 1;
        if (row.variables.length < MAX_VARIABLES) row.variables.push(array.path.slice(1));
      }
      source.forEach((n, i) => {
        if (n < 0) return;
        rows[n].n_chunks += 1;
        rows[n].nbytes += length[i];
      });
    }
    return [...found.values()];
  }
}

/** Return what a promise of a key gives; one that fails is forgotten. */
function kept<T>(promises: Map<string, Promise<T>>, key: string, make: () => Promise<T>): Promise<T> {
  let found = promises.get(key);
  if (!found) {
    promises.set(key, (found = make()));
    found.catch(() => promises.delete(key));
  }
  return found;
}

/** Return what a function finds for each item; at most so many of its promises run at the same time. */
async function mapped<A, B>(items: A[], most: number, find: (x: A) => Promise<B>): Promise<B[]> {
  const found: B[] = [];
  let next = 0;
  const run = async (): Promise<void> => {
    while (next < items.length) {
      const i = next++;
      found[i] = await find(items[i]);
    }
  };
  await Promise.all(Array.from({ length: most }, run));
  return found;
}

function page<T>(items: T[], offset = 0, total = items.length): List<T> {
  const stop = offset + items.length;
  return { total, offset, next: items.length && stop < total ? stop : null, items };
}

async function snapshots(vstack: VStack): Promise<Kinds["snapshots"]> {
  const found = await vstack.snapshots(MAX_SNAPSHOTS);
  return { ...page(found.map((x) => ({ ...x, n_changes: x.changes.length }))), has_snapshots: true };
}

const KINDS: Record<string, string> = { i: "int", u: "uint", f: "float", c: "complex", M: "datetime64", m: "timedelta64" };

/** Return the name of a data type as numpy has it, and the bytes of an element. */
function dtype(description: unknown): [string, number] {
  if (description === "string") return ["StringDType()", 16];
  const found = typeof description === "string" ? /^([<>|=])([biufcmMSUV])(\d+)(\[\w+\])?$/.exec(description) : null;
  if (!found) return [JSON.stringify(description), 0];
  const [, order, kind, digits, unit] = found;
  const size = Number(digits);
  if (kind === "b") return ["bool", 1];
  if (!(kind in KINDS)) return [description as string, kind === "U" ? 4 * size : size];
  if (order === ">") return [description as string, size];
  return [kind === "M" || kind === "m" ? `${KINDS[kind]}${unit ?? ""}` : `${KINDS[kind]}${8 * size}`, size];
}

function variable(array: ArrayInfo): Variable {
  const [name, itemsize] = dtype(array.dtype);
  const path = array.path.slice(1);
  return {
    path,
    dims: [...array.dimensionNames],
    shape: [...array.shape],
    dtype: name,
    chunks: array.chunks.map(([low, high]) => (low === high ? low : `${low} to ${high}`)),
    grid: [...array.grid],
    nbytes: array.shape.reduce((a, b) => a * b, itemsize),
    attributes: attributes(array.attributes),
    is_coordinate: array.dimensionNames.length === 1 && array.dimensionNames[0] === path.slice(path.lastIndexOf("/") + 1),
  };
}

function attributes(found: Attributes): Attributes {
  return Object.fromEntries(
    Object.entries(attributeToJson(found) as Attributes).map(([name, value]) => {
      const text = typeof value === "string" ? value : JSON.stringify(value);
      return [name, text.length > MAX_ATTRIBUTE_CHARACTERS ? `${text.slice(0, MAX_ATTRIBUTE_CHARACTERS)}...` : value];
    }),
  );
}

/** Codecs whose settings do not change what they decode to. */
const PLAIN = /^(numcodecs\.)?(blosc|bz2|gzip|lz4|zlib|zstd)$/;

const CF = "virtualstack.cf";
const CAST = "numcodecs.astype";

function formsOf(array: ArrayInfo): Forms {
  const keys = new Map<string, number>();
  const rows: Forms["rows"] = [];
  const of = array.encodings.map(({ dtype: stored, shape, codecs }) => {
    const used = codecs.filter((x) => x.name !== "bytes").map(({ name, configuration }) => [name, PLAIN.test(name) ? {} : configuration] as const);
    const key = JSON.stringify([stored, shape, used]);
    let number = keys.get(key);
    if (number === undefined) {
      keys.set(key, (number = rows.length));
      const settings = used.map(([name, options]) => {
        const said = Object.entries(options).map(([k, v]) => `${k}=${typeof v === "string" ? v : JSON.stringify(v)}`);
        return name + (said.length ? `(${said.join(", ")})` : "");
      });
      const names = used.filter(([name]) => name !== CAST).map(([name]) => (name === CF ? "packed" : name.replace(/^(numcodecs|virtualstack)\./, "")));
      const before = used.findLast(([name]) => name === CF)?.[1]["data_type"] ?? used.findLast(([name]) => name === CAST)?.[1]["encode_dtype"];
      rows.push({ dtype: String(before ?? stored), chunk_shape: [...shape], codecs: names, settings: settings.join(", ") });
    }
    return number;
  });
  return { of, rows };
}

/** States as the page counts them: 0 never written, 1 lost, 2 inline, 3 referenced. */
const STATE = [1, 0, 2, 3, 2];

type Counted = Omit<Count, "path" | "error" | "encodings">;

/** Count chunks; forms are in the order of their first chunk, as `form` of each chunk numbers them. */
function count(array: ArrayInfo, states: ChunkStates): { counted: Counted; forms: Encoding[]; form: Int32Array } {
  const { of, rows } = formsOf(array);
  const numbers = new Map<number, number>();
  const forms: Encoding[] = [];
  const n = [0, 0, 0, 0];
  const form = new Int32Array(states.state.length).fill(-1);
  for (let i = 0; i < form.length; i++) {
    const state = STATE[states.state[i]];
    n[state] += 1;
    if (state < 2) continue;
    const row = of[states.code[i]];
    let number = numbers.get(row);
    if (number === undefined) {
      numbers.set(row, (number = forms.length));
      forms.push({ ...rows[row], n_chunks: 0, nbytes: 0 });
    }
    form[i] = number;
    forms[number].n_chunks += 1;
    forms[number].nbytes += states.length[i];
  }
  const counted = {
    n_chunks: form.length,
    n_empty: n[0],
    n_absent: n[1],
    n_inline: n[2],
    n_referenced: n[3],
    nbytes: forms.reduce((sum, x) => sum + x.nbytes, 0),
    n_sources: new Set(states.sources.map((x) => x.location)).size,
    n_encodings: forms.length,
  };
  return { counted, forms, form };
}

/** First cell of each box, followed by the number of cells. */
const edgesOf = (cells: number, boxes: number): number[] => Array.from({ length: boxes + 1 }, (_, i) => Math.ceil((i * cells) / Math.max(boxes, 1)));

/** Draw the grid of an array in boxes: the axis with most chunks along the columns, the others along the rows. */
function drawn(array: ArrayInfo, states: ChunkStates): ChunkMap {
  const { grid } = states;
  const { counted, forms, form } = count(array, states);
  const axis = grid.length ? grid.indexOf(Math.max(...grid)) : null;
  const across = axis === null ? 1 : grid[axis];
  const down = across ? counted.n_chunks / across : 0;
  let rows = Math.min(down, Math.floor(Math.sqrt(MAX_BOXES)));
  const columns = Math.min(across, Math.floor(MAX_BOXES / Math.max(rows, 1)));
  rows = Math.min(down, Math.floor(MAX_BOXES / Math.max(columns, 1)));
  const table = Array.from({ length: rows }, () => Array.from({ length: columns }, () => [0, 0, 0, 0] as [number, number, number, number]));
  const inner = axis === null ? 1 : grid.slice(axis + 1).reduce((a, b) => a * b, 1);
  const sources = new Dominant(rows * columns);
  const encodings = new Dominant(rows * columns);
  for (let i = 0; i < counted.n_chunks; i++) {
    const along = axis === null ? 0 : Math.floor(i / inner) % across;
    const other = Math.floor(i / (inner * across)) * inner + (i % inner);
    const row = Math.floor((other * rows) / down);
    const column = Math.floor((along * columns) / across);
    table[row][column][STATE[states.state[i]]] += 1;
    sources.add(row * columns + column, states.source[i]);
    encodings.add(row * columns + column, form[i]);
  }
  const dominant = sources.numbers();
  const order = [...new Set(dominant)].filter((x) => x >= 0);
  const urls = order.map((n) => shownUrl(states.sources[n].location)); // a part of a URL does not show where a secret is
  const prefix = commonPrefix(urls);
  const lines = <T>(flat: T[]): T[][] => table.map((_, i) => flat.slice(i * columns, (i + 1) * columns));
  const edges = edgesOf(across, columns);
  return {
    ...counted,
    name: array.path.slice(1),
    dims: [...array.dimensionNames],
    shape: [...array.shape],
    grid_shape: [...grid],
    column_axis: axis,
    row_axes: grid.map((_, i) => i).filter((i) => i !== axis),
    column_edges: edges,
    row_edges: edgesOf(down, rows),
    column_elements: axis === null ? edges : edges.map((n) => states.edges[axis][n]),
    states: table,
    source: lines(dominant.map((n) => order.indexOf(n))),
    encoding: lines(encodings.numbers()),
    sources: urls.map((x) => x.slice(prefix.length)),
    source_prefix: prefix,
    encodings: forms.slice(0, MAX_ENCODINGS),
  };
}

/** The number that most chunks of each box have, or -1; the first of several. */
class Dominant {
  private readonly counts: Map<number, number>[];

  constructor(n: number) {
    this.counts = Array.from({ length: n }, () => new Map());
  }

  add(box: number, number: number): void {
    if (number >= 0) this.counts[box].set(number, (this.counts[box].get(number) ?? 0) + 1);
  }

  numbers(): number[] {
    return this.counts.map((counts) => [...counts].reduce(([a, n], [b, m]) => (m > n || (m === n && b < a) ? [b, m] : [a, n]), [-1, 0])[0]);
  }
}

function commonPrefix(urls: string[]): string {
  const [low, high] = [urls.reduce((a, b) => (a < b ? a : b), urls[0] ?? ""), urls.reduce((a, b) => (a > b ? a : b), urls[0] ?? "")];
  let same = 0;
  while (same < low.length && low[same] === high[same]) same += 1;
  return low.slice(0, low.lastIndexOf("/", same - 1) + 1);
}

/** Return the URL of a location; relative ones are beside the store. */
function absolute(location: string, store: string): string {
  if (!location.startsWith(".")) return location;
  const base = new URL(store.endsWith("/") ? store : `${store}/`);
  return decodeURI(new URL(location.replaceAll("%", "%25"), `${base.origin}${base.pathname}`).href);
}

/** Return a URL without what may be a secret: a login, and the values of a query. */
const shownUrl = (url: string): string => url.replace(/:\/\/[^/@]*@/, "://").replace(/\?.+$/s, "?...");
