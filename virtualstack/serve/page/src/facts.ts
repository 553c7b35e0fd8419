/** Facts about cubes, wherever they come from. */

import type { AsyncReadable } from "zarrita";

export interface CubeName {
  name: string;
  kind: string;
  url: string | null;
  has_snapshots: boolean;
}

export interface List<T> {
  total: number;
  offset: number;
  /** Number of the first item of the next page. */
  next: number | null;
  items: T[];
}

export type Attributes = Record<string, unknown>;

export interface Variable {
  path: string;
  dims: string[];
  shape: number[];
  dtype: string;
  chunks: (number | string)[];
  grid: number[];
  nbytes: number;
  attributes: Attributes;
  is_coordinate: boolean;
}

export interface Overview extends List<Variable> {
  name: string;
  kind: string;
  url: string | null;
  version: string;
  is_fixed: boolean;
  /** Whether `health` says something about it. */
  has_recipe?: boolean;
  attributes: Attributes;
  groups: string[];
  n_refused: number;
  refused: { path: string; reason: string }[];
  n_noted: number;
  noted: { path: string; kind: string; reason: string }[];
  /** In a report, the map of the largest variable as SVG. */
  map?: string;
}

export interface Encoding {
  dtype: string;
  chunk_shape: number[];
  codecs: string[];
  settings: string;
  n_chunks: number;
  nbytes: number;
}

export interface Count {
  path: string;
  error?: string;
  n_chunks: number;
  n_empty: number;
  n_absent: number;
  n_inline: number;
  n_referenced: number;
  nbytes: number;
  n_sources: number;
  n_encodings: number;
  encodings: Encoding[];
}

export interface ChunkMap extends Omit<Count, "path" | "error"> {
  name: string;
  dims: string[];
  shape: number[];
  grid_shape: number[];
  column_axis: number | null;
  row_axes: number[];
  column_edges: number[];
  row_edges: number[];
  column_elements: number[];
  /** Chunks of each box that are empty, absent, inline and referenced. */
  states: [number, number, number, number][][];
  source: number[][];
  encoding: number[][];
  sources: string[];
  source_prefix: string;
}

export interface Era {
  series: string;
  number: number;
  first: string;
  last: string;
  begin: number;
  end: number;
  n_files: number;
  n_outliers: number;
  changes: string;
}

export interface Timeline {
  dim: string | null;
  first: string;
  last: string;
  is_to_scale: boolean;
  n_files: number;
  n_failed: number;
  eras: Era[];
  n_eras: number;
  gaps: { series: string; after: string; before: string; begin: number; end: number; n_steps: number }[];
  n_gaps: number;
  n_missing: number;
  duplicates: { text: string; at: number | null; n_values: number | null }[];
  n_duplicates: number;
  remarks: string[];
}

export interface Source {
  url: string;
  size: number | null;
  n_chunks: number;
  nbytes: number;
  variables: string[];
  n_variables: number;
  /** State when the sources were verified, `null` if no result is known. */
  status: string | null;
}

/** What `virtualstack verify` found, or why that is not known. */
export interface Verified {
  found: {
    time: string;
    snapshot: number;
    /** Number of sources in each state. */
    counts: Record<string, number>;
    n_problems: number;
    problems: { url: string; status: string; reason: string }[];
    /** Number of chunks in each state, if some were compared. */
    chunks: Record<string, number>;
  } | null;
  error: string | null;
}

export interface LabelRange {
  first: string;
  last: string;
  n: number;
}

/** What `virtualstack health` says. */
export interface Health {
  snapshot: number;
  time: number;
  last_placed: number | null;
  /** Number of files in each state. */
  files: Record<string, number>;
  /** Number of expected labels in each state, `null` if none are expected. */
  labels: Record<string, number> | null;
  n_late: number;
  late: LabelRange[];
  n_missing: number;
  missing: LabelRange[];
  growth: { days: number; n_files: number; n_bytes: number }[];
  /** Files that do not fit, with the reasons; those with like reasons are one line. */
  odd: string[];
}

export interface Snapshot {
  number: number;
  time: number;
  message: string | null;
  changes: string[];
  n_changes: number;
}

export interface Difference {
  before: number;
  after: number;
  n_lines: number;
  lines: string[];
}

export interface Kinds {
  variables: Overview;
  counts: List<Count>;
  map: ChunkMap;
  timeline: Timeline;
  sources: List<Source>;
  verified: Verified;
  health: Health;
  snapshots: List<Snapshot> & { has_snapshots: boolean };
  diff: Difference;
}

export type Options = Record<string, string | number>;

/** A file of facts: the snapshot that it is about, and when it was written. */
export interface Written {
  version: string;
  made: string;
}

/** Where the page gets its facts from. `cube` is the name of a cube, or `NAME@SNAPSHOT`. */
export interface Facts {
  /** The file that has what is not found here, as the timeline; `null` if the page was given none. */
  file?(): Promise<Written | null>;
  cubes(): Promise<CubeName[]>;
  /** Where zarrita reads values; a report has none. */
  store?(cube: string): Promise<AsyncReadable>;
  find<K extends keyof Kinds>(cube: string, kind: K, options?: Options): Promise<Kinds[K]>;
}

function query(options: Options): string {
  const names = Object.keys(options).sort();
  return names.map((name) => `${name}=${encodeURIComponent(options[name])}`).join("&");
}

/** Facts of a server, at the URL of its page. */
export class ServerFacts implements Facts {
  private readonly stores = new Map<string, Promise<AsyncReadable>>();

  /** @param reader Load the reader of cells, which a report does not have. */
  constructor(private base: string, private reader: () => Promise<typeof import("../../js/src/served")>) {}

  async cubes(): Promise<CubeName[]> {
    return (await this.get<{ cubes: CubeName[] }>("-/cubes")).cubes;
  }

  find<K extends keyof Kinds>(cube: string, kind: K, options: Options = {}): Promise<Kinds[K]> {
    return this.get(`-/facts/${encodeURIComponent(cube)}/${kind}?${query(options)}`);
  }

  /** The store of a cube is kept, and with it the cells that it read last. */
  store(cube: string): Promise<AsyncReadable> {
    const url = `${this.base}-/cells/${encodeURIComponent(cube).replace("%40", "@")}`;
    if (!this.stores.has(cube)) this.stores.set(cube, this.reader().then(({ ServedStore }) => new ServedStore(url)));
    return this.stores.get(cube)!;
  }

  private async get<T>(path: string): Promise<T> {
    const answer = await fetch(this.base + path, { headers: { Accept: "application/json" } });
    if (answer.ok) return answer.json();
    const body = await answer.json().catch(() => ({}));
    throw new Error(body.message ?? `The server answered with status ${answer.status}.`);
  }
}

export interface Embedded {
  cubes: CubeName[];
  made: string;
  /** Answers by kind and options, such as `map?variable=rain`. */
  answers: Record<string, unknown>;
}

/** Facts that a report holds, about one cube. */
export class EmbeddedFacts implements Facts {
  constructor(protected embedded: Embedded) {}

  async cubes(): Promise<CubeName[]> {
    return this.embedded.cubes;
  }

  async find<K extends keyof Kinds>(_: string, kind: K, options: Options = {}): Promise<Kinds[K]> {
    const answer = this.embedded.answers[`${kind}?${query(options)}`];
    if (answer === undefined) throw new Error(this.missing(kind, options));
    if (typeof answer === "string") throw new Error(answer);
    return answer as Kinds[K];
  }

  protected missing(_: keyof Kinds, __: Options): string {
    return "This report does not hold it, as it would be too large.";
  }
}

/** Read all pages of a list. */
export async function findAll<K extends "variables" | "counts">(
  facts: Facts,
  cube: string,
  kind: K,
  onPage: (page: Kinds[K]) => void,
): Promise<void> {
  for (let offset: number | null = 0; offset !== null; ) {
    const page: Kinds[K] = await facts.find(cube, kind, { offset });
    onPage(page);
    offset = page.next;
  }
}
