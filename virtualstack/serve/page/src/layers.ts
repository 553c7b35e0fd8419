/** Which cells of a slice are read, so that bytes stay few: all of them, every n-th, those of some chunks, or an overview. */

import type { Variable } from "./facts";
import { partOf, type Box, type Geometry, type Pair, type Part } from "./geometry";
import type { Live, Range } from "./live";
import type { Grid } from "./locate";

export const MAX_SIDE = 1024;
const MAX_BYTES = 64e6;
const MAX_CHUNKS = 600;

/** The stored integers of 64 bits that values were made from, as numbers are exact up to 53 bits. */
export const wholes = new WeakMap<Float64Array, ArrayLike<bigint>>();

/** A value that was read, to the last digit. */
export function exact(values: Float64Array, i: number): number | bigint {
  return Number.isSafeInteger(values[i]) || Number.isNaN(values[i]) ? values[i] : wholes.get(values)?.[i] ?? values[i];
}

/** An array and the places of its cells. */
export interface Source {
  path: string;
  array: Live;
  grid: Grid;
}

/** Cells of a part of a slice that were read. */
export interface Layer {
  values: Float64Array;
  geometry: Geometry;
  part: Part;
}

export interface Plan {
  part: Part;
  /** Chunks that are read, and those of the whole part. */
  n: number;
  all: number;
  bytes: number;
  isTooMuch: boolean;
}

/** Choose the cells of a part of a slice: no more than a screen has, of no more chunks than a page may read unasked. */
export function plan({ array, grid }: Source, spans: [Pair, Pair], isWanted = false): Plan {
  const chunks = grid.axes.map((axis) => array.chunks[axis] ?? 1) as Pair;
  const grids = spans.map(([begin, stop], i) => Math.ceil(stop / chunks[i]) - Math.floor(begin / chunks[i]));
  const count = (keep: number) => grids.reduce((product, n) => product * Math.ceil(n / keep), 1);
  const isTooMuch = (keep: number) => !isWanted && (count(keep) * array.chunkBytes > MAX_BYTES || count(keep) > MAX_CHUNKS);
  let keep = 1;
  while (isTooMuch(keep) && count(keep) > 1) keep += 1;
  const part = partOf(spans, chunks, grid.axes[0] < 0 ? MAX_SIDE ** 2 : MAX_SIDE, keep);
  return { part, n: count(keep), all: count(1), bytes: count(1) * array.chunkBytes, isTooMuch: isTooMuch(keep) };
}

/** The whole of a slice. */
export const wholeOf = ({ array, grid }: Source): [Pair, Pair] => grid.axes.map((axis) => [0, array.shape[axis] ?? 1]) as [Pair, Pair];

/** Read the cells of a part of a slice along two axes. */
export async function readPart(array: Live, axes: Pair, index: number[], { runs, at }: Part): Promise<Float64Array> {
  const select = (row: Range, column: Range) => array.read(index.map((i, axis) => (axis === axes[0] ? row : axis === axes[1] ? column : i)));
  if (runs[0].length * runs[1].length === 1) return select(runs[0][0], runs[1][0]);
  const values = new Float64Array(at[0].length * at[1].length);
  const length = ([begin, stop, step = 1]: Range) => Math.ceil((stop - begin) / step);
  const first = (some: Range[], i: number) => some.slice(0, i).reduce((n, x) => n + length(x), 0);
  await Promise.all(runs[0].flatMap((row, i) => runs[1].map(async (column, j) => {
    const [found, width, top, left] = [await select(row, column), length(column), first(runs[0], i), first(runs[1], j)];
    for (let k = 0; k < length(row); k += 1) values.set(found.subarray(k * width, (k + 1) * width), (top + k) * at[1].length + left);
  })));
  return values;
}

/** Read a part of the slice at an index. */
export async function readLayer({ array, grid }: Source, index: number[], part: Part): Promise<Layer> {
  const [values, geometry] = await Promise.all([readPart(array, grid.axes, index, part), grid.geometry(part, index)]);
  return { values, geometry, part };
}

/** A layer of an overview, as one of the array that it stands for. */
export function enlarged(layer: Layer, [rows, columns]: [Pair, Pair]): Layer {
  const { spans, at } = layer.part;
  const by = [rows[1] / spans[0][1], columns[1] / spans[1][1]];
  const part: Part = { ...layer.part, spans: [rows, columns], steps: by as Pair, at: at.map((x, i) => x.map((k) => Math.floor((k + 0.5) * by[i]))) as [Int32Array, Int32Array] };
  return { ...layer, part };
}

/** The coarser one of the same name and dimensions that has about as many cells as a screen: an overview of a pyramid. */
export function overviewOf(variable: Variable, variables: Variable[]): Variable | null {
  const name = (path: string) => path.slice(path.lastIndexOf("/") + 1);
  const isLike = (x: Variable) => name(x.path) === name(variable.path) && String(x.dims) === String(variable.dims) && x.dtype === variable.dtype;
  const ratios = (x: Variable) => x.shape.map((n, i) => variable.shape[i] / n);
  const isCoarser = (x: Variable) => {
    const [a, b] = ratios(x).slice(-2);
    return a >= 1.5 && Math.abs(a / b - 1) < 0.05 && ratios(x).slice(0, -2).every((r) => r === 1);
  };
  const some = variables.filter((x) => isLike(x) && isCoarser(x)).sort((a, b) => a.nbytes - b.nbytes);
  return some.findLast((x) => x.shape.slice(-2).every((n) => n <= MAX_SIDE)) ?? some[0] ?? null;
}

/** Which part of a slice is seen in a view, with a margin that is a part of it. */
export function seen({ geometry, part }: Layer, view: Box, more = 0.25): [Pair, Pair] | null {
  const columns = part.at[1].length;
  const cells = geometry.raster(view, 200, 200).filter((cell) => cell >= 0);
  if (!cells.length) return null;
  return [(cell: number) => Math.floor(cell / columns), (cell: number) => cell % columns].map((of, i) => {
    let [low, high] = [Infinity, -1];
    for (const cell of cells) [low, high] = [Math.min(low, of(cell)), Math.max(high, of(cell))];
    const margin = 1 + Math.floor((high - low) * more);
    const [begin, stop] = part.spans[i];
    const at = part.at[i];
    return [at[low - margin] ?? begin, at[high + margin] ?? stop];
  }) as [Pair, Pair];
}
