/** Where the cells of a slice are in a plane. Picture, ticks, coast and pointer all ask this module. */

import type { Range } from "./live";
import { count } from "./text";

export type Pair = [number, number];

/** A part of a plane; `y[0]` is at the bottom of the picture. */
export interface Box {
  x: Pair;
  y: Pair;
}

/** A plane, and how it is related to longitude and latitude if that is known. */
export interface Plane {
  kind: "lonlat" | "degrees" | "metres" | "radians" | "index" | "other";
  /** Units of other planes. */
  units: string;
  toLonLat: ((x: number, y: number) => Pair) | null;
  fromLonLat: ((lon: number, lat: number) => Pair) | null;
  /** Ticks of a plane of kind "index", along x and y: each axis has labels of its own. */
  marks?: [Marks, Marks];
}

export type Marks = (range: Pair, most: number) => Tick[];

/** Which cells of a slice are read: `at` has their rows and columns, `runs` are read one by one. */
export interface Part {
  runs: [Range[], Range[]];
  at: [Int32Array, Int32Array];
  /** Where the part begins and stops along rows and columns. */
  spans: [Pair, Pair];
  /** How many cells one stands for along rows and columns. */
  steps: Pair;
  /** Every how many chunks are read. */
  keep: number;
}

/** Choose cells of a part of a slice, at most so many along each side, of every `keep`-th chunk. */
export function partOf(spans: [Pair, Pair], chunks: Pair, most: number, keep = 1): Part {
  const sides = spans.map(([begin, stop], i) => {
    const [first, end] = [Math.floor(begin / chunks[i]), Math.ceil(stop / chunks[i])];
    const shift = Math.floor(((end - first - 1) % keep) / 2);
    const kept = keep === 1 ? [[begin, stop]] : Array.from({ length: Math.ceil((end - first - shift) / keep) }, (_, k) => first + shift + k * keep).map((c) => [Math.max(begin, c * chunks[i]), Math.min(stop, (c + 1) * chunks[i])]);
    const step = Math.ceil(kept.reduce((n, [a, b]) => n + b - a, 0) / most);
    const runs = kept.map(([a, b]): Range => [Math.min(a + (step >> 1), b - 1), b, step]);
    return { step, runs, at: Int32Array.from(runs.flatMap(([a, b]) => Array.from({ length: Math.ceil((b - a) / step) }, (_, k) => a + k * step))) };
  });
  const [rows, columns] = sides;
  return { runs: [rows.runs, columns.runs], at: [rows.at, columns.at], spans, steps: [rows.step, columns.step], keep };
}

/** Where cells that were chosen begin and stop: those between them belong to the nearest one. */
export function borders(at: Int32Array, [begin, stop]: Pair): Int32Array {
  return Int32Array.from({ length: at.length + 1 }, (_, i) => (i === 0 ? begin : i === at.length ? stop : Math.ceil((at[i - 1] + at[i]) / 2)));
}

/** Cells of a part of a slice in a plane, each numbered `row * columns + column`. */
export interface Geometry {
  plane: Plane;
  /** What the picture of all cells covers. */
  box: Box;
  /** Where points are, without the margin around them. */
  points?: Box;
  /** Which cell each pixel of a view shows; -1 where there is none. */
  raster(view: Box, width: number, height: number): Int32Array;
  centre(row: number, column: number): Pair;
}

const same = (x: number, y: number): Pair => [x, y];
export const LONLAT: Plane = { kind: "lonlat", units: "", toLonLat: same, fromLonLat: same };

/** The difference of two longitudes that is nearest to zero. */
const turn = (degrees: number): number => degrees - 360 * Math.round(degrees / 360);

/** Return the edges of cells around ordered centres, or `null` if they have no order. */
export function edges(centres: ArrayLike<number>, isLongitude = false, most = Infinity): Float64Array | null {
  const n = centres.length;
  const at = Float64Array.from(centres);
  if (isLongitude) for (let i = 1; i < n; i += 1) at[i] = at[i - 1] + turn(at[i] - at[i - 1]);
  const made = new Float64Array(n + 1);
  const sign = Math.sign(at[n - 1] - at[0]) || 1;
  for (let i = 1; i < n; i += 1) {
    if (!((at[i] - at[i - 1]) * sign > 0)) return null;
    made[i] = (at[i - 1] + at[i]) / 2;
  }
  made[0] = n > 1 ? 2 * at[0] - made[1] : at[0] - 0.5;
  made[n] = n > 1 ? 2 * at[n - 1] - made[n - 1] : at[0] + 0.5;
  return Number.isFinite(made[0]) ? made.map((x) => Math.max(-most, Math.min(most, x))) : null;
}

/** The edges that bounds of cells say, as pairs of numbers, or `null` if cells do not follow each other. */
export function boundEdges(bounds: Float64Array, isLongitude = false): Float64Array | null {
  const n = bounds.length / 2;
  const from = n > 1 && Math.abs(bounds[0] - bounds[3]) < Math.abs(bounds[1] - bounds[2]) ? 1 : 0; // which number comes first
  const made = Float64Array.from({ length: n + 1 }, (_, i) => (i < n ? bounds[2 * i + from] : bounds[2 * n - 1 - from]));
  if (isLongitude) for (let i = 1; i <= n; i += 1) made[i] = made[i - 1] + (turn(made[i] - made[i - 1]) || 360);
  const sign = Math.sign(made[n] - made[0]);
  for (let i = 0; i < n; i += 1) {
    const gap = i ? bounds[2 * i + from] - bounds[2 * i - 1 - from] : 0;
    const width = made[i + 1] - made[i];
    if (!(width * sign > 0) || !(Math.abs(isLongitude ? turn(gap) : gap) < 1e-3 * Math.abs(width))) return null;
  }
  return made;
}

/** The cell between whose edges a number is, or -1. */
function cellAt(edges: Float64Array, x: number): number {
  const sign = edges[edges.length - 1] > edges[0] ? 1 : -1;
  let [low, high] = [0, edges.length - 1];
  if (!((x - edges[0]) * sign >= 0 && (edges[high] - x) * sign > 0)) return -1;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if ((x - edges[middle]) * sign >= 0) low = middle;
    else high = middle;
  }
  return low;
}

const ends = (x: Float64Array): Pair => [Math.min(x[0], x[x.length - 1]), Math.max(x[0], x[x.length - 1])];

/** Cells between the lines of two axes; `isSwapped` if the rows of the slice go along x. */
export function lattice(plane: Plane, x: Float64Array, y: Float64Array, isSwapped: boolean): Geometry {
  const [alongX, alongY] = isSwapped ? [y.length - 1, 1] : [1, x.length - 1];
  return {
    plane,
    box: { x: ends(x), y: ends(y) },
    raster(view, width, height) {
      const made = new Int32Array(width * height).fill(-1);
      const columns = Int32Array.from({ length: width }, (_, i) => cellAt(x, view.x[0] + ((i + 0.5) / width) * (view.x[1] - view.x[0])));
      for (let i = 0; i < height; i += 1) {
        const row = cellAt(y, view.y[1] - ((i + 0.5) / height) * (view.y[1] - view.y[0]));
        if (row < 0) continue;
        for (let j = 0; j < width; j += 1) if (columns[j] >= 0) made[i * width + j] = row * alongY + columns[j] * alongX;
      }
      return made;
    },
    centre(row, column) {
      const [i, j] = isSwapped ? [row, column] : [column, row];
      return [(x[i] + x[i + 1]) / 2, (y[j] + y[j + 1]) / 2];
    },
  };
}

/** Cells around centres that lie anywhere in a plane: each is the quadrangle between its neighbours. */
export function mesh(plane: Plane, x: Float64Array, y: Float64Array, rows: number, columns: number): Geometry {
  const period = plane.kind === "lonlat" ? 360 : 0;
  const near = period ? turn : (d: number) => d;
  // One more centre on each side: the line of the two nearest ones goes on.
  const inside = (i: number, n: number): Pair => (i < 0 ? [0, Math.min(1, n - 1)] : i >= n ? [n - 1, Math.max(n - 2, 0)] : [i, i]);
  const extended = (from: Float64Array, isX: boolean, r: number, c: number): number => {
    const [r0, r1] = inside(r, rows);
    const [c0, c1] = inside(c, columns);
    const at = from[r0 * columns + c0];
    if (r0 === r1 && c0 === c1 && r === r0 && c === c0) return at;
    const next = from[r1 * columns + c1] - at;
    return at - (isX ? near(next) : next);
  };
  const [cornerX, cornerY] = [x, y].map((from) => {
    const made = new Float64Array((rows + 1) * (columns + 1));
    for (let r = 0; r <= rows; r += 1) {
      for (let c = 0; c <= columns; c += 1) {
        let [sum, count, first] = [0, 0, NaN];
        for (let k = 0; k < 4; k += 1) {
          const value = extended(from, from === x, r - 1 + (k >> 1), c - 1 + (k & 1));
          if (Number.isNaN(value)) continue;
          if (!count) first = value;
          sum += from === x ? near(value - first) : value - first;
          count += 1;
        }
        made[r * (columns + 1) + c] = first + sum / count;
      }
    }
    return made;
  });
  // around the cell: upper left, upper right, lower right, lower left
  const corner = (cell: number, k: number) => (Math.floor(cell / columns) + (k >> 1)) * (columns + 1) + (cell % columns) + (((k + 1) >> 1) % 2);
  return polygons(plane, x, y, columns, 4, cornerX, cornerY, corner);
}

/** Cells that are polygons of `n` corners around centres; `corner` says where the corner of a cell is in the list of all. */
export function polygons(
  plane: Plane, x: Float64Array, y: Float64Array, columns: number, n: number, cornerX: Float64Array, cornerY: Float64Array,
  corner = (cell: number, k: number) => cell * n + k,
): Geometry {
  const period = plane.kind === "lonlat" ? 360 : 0;
  const near = period ? turn : (d: number) => d;
  const box: Box = { x: period ? around(x) : [Infinity, -Infinity], y: [Infinity, -Infinity] };
  for (let i = 0; i < cornerX.length; i += 1) {
    if (!period) box.x = [Math.min(box.x[0], cornerX[i]), Math.max(box.x[1], cornerX[i])];
    if (cornerY[i] < box.y[0]) box.y[0] = cornerY[i];
    if (cornerY[i] > box.y[1]) box.y[1] = cornerY[i];
  }
  if (period) {
    box.y = [Math.max(-90, box.y[0]), Math.min(90, box.y[1])];
    if (box.x[1] - box.x[0] < 360) {
      const middle = (box.x[0] + box.x[1]) / 2;
      for (const corner of cornerX) {
        if (Number.isNaN(corner)) continue;
        const at = middle + turn(corner - middle);
        box.x = [Math.min(box.x[0], at), Math.max(box.x[1], at)];
      }
    }
  }
  return {
    plane,
    box,
    raster(view, width, height) {
      const made = new Int32Array(width * height).fill(-1);
      const [kx, ky] = [width / (view.x[1] - view.x[0]), height / (view.y[1] - view.y[0])];
      const middle = (view.x[0] + view.x[1]) / 2;
      const [px, py] = [new Float64Array(n), new Float64Array(n)];
      for (let cell = 0; cell < x.length; cell += 1) {
        if (Number.isNaN(x[cell]) || Number.isNaN(y[cell])) continue;
        const home = period ? middle + turn(x[cell] - middle) : x[cell];
        for (let k = 0; k < n; k += 1) {
          const at = corner(cell, k);
          px[k] = (home + near(cornerX[at] - x[cell]) - view.x[0]) * kx;
          py[k] = (view.y[1] - cornerY[at]) * ky;
        }
        fill(made, width, height, px, py, cell);
        if (!period) continue;
        const shift = home < middle ? 360 * kx : -360 * kx;
        for (let k = 0; k < n; k += 1) px[k] += shift;
        fill(made, width, height, px, py, cell);
      }
      return made;
    },
    centre: centres(plane, box, x, y, columns),
  };
}

function centres({ kind }: Plane, box: Box, x: Float64Array, y: Float64Array, columns: number): Geometry["centre"] {
  const middle = (box.x[0] + box.x[1]) / 2;
  return (row, column) => {
    const cell = row * columns + column;
    return [kind === "lonlat" ? middle + turn(x[cell] - middle) : x[cell], y[cell]];
  };
}

/** Points without order or edges: each pixel shows the nearest one, unless it is farther than they are from each other. */
export function scatter(plane: Plane, x: Float64Array, y: Float64Array): Geometry {
  const isLonLat = plane.kind === "lonlat";
  const span = (all: Float64Array): Pair => all.reduce<Pair>(([a, b], v) => (Number.isNaN(v) ? [a, b] : [Math.min(a, v), Math.max(b, v)]), [Infinity, -Infinity]);
  const wider = ([a, b]: Pair): Pair => [a - 0.05 * (b - a || 10), b + 0.05 * (b - a || 10)];
  const points: Box = { x: isLonLat ? around(x) : span(x), y: span(y) };
  const box: Box = { x: isLonLat && points.x[1] - points.x[0] > 320 ? points.x : wider(points.x), y: wider(points.y) };
  if (isLonLat) box.y = [Math.max(-90, box.y[0]), Math.min(90, box.y[1])];
  return {
    plane,
    box,
    points,
    raster(view, width, height) {
      const made = new Int32Array(width * height).fill(-1);
      const nearest = new Float64Array(width * height).fill(Infinity);
      const [kx, ky] = [width / (view.x[1] - view.x[0]), height / (view.y[1] - view.y[0])];
      const middle = (view.x[0] + view.x[1]) / 2;
      const places = Array.from(x, (v, i): Pair => [((isLonLat ? middle + turn(v - middle) : v) - view.x[0]) * kx, (view.y[1] - y[i]) * ky]);
      const n = places.filter(([a, b]) => a >= 0 && a < width && b >= 0 && b < height).length;
      const radius = Math.max(1.5, Math.min(6, 1.2 * Math.sqrt((width * height) / Math.max(n, 1))));
      places.forEach(([a, b], cell) => {
        for (let j = Math.max(0, Math.ceil(b - radius - 0.5)); j <= Math.min(height - 1, b + radius - 0.5); j += 1) {
          for (let i = Math.max(0, Math.ceil(a - radius - 0.5)); i <= Math.min(width - 1, a + radius - 0.5); i += 1) {
            const away = Math.hypot(i + 0.5 - a, j + 0.5 - b);
            if (away > radius || away >= nearest[j * width + i]) continue;
            nearest[j * width + i] = away;
            made[j * width + i] = cell;
          }
        }
      });
      return made;
    },
    centre: centres(plane, box, x, y, x.length),
  };
}

/** The first and last of so many pixels whose centres are between some places. */
function pixels(at: Float64Array, most: number): Pair {
  let [low, high] = [Infinity, -Infinity];
  for (let k = 0; k < at.length; k += 1) {
    if (at[k] < low) low = at[k];
    if (at[k] > high) high = at[k];
  }
  return [Math.max(0, Math.ceil(low - 0.5)), Math.min(most - 1, Math.floor(high - 0.5))];
}

/** Give the pixels whose centres are in a polygon without dents its number. */
function fill(to: Int32Array, width: number, height: number, px: Float64Array, py: Float64Array, cell: number): void {
  const n = px.length;
  const [left, right] = pixels(px, width);
  const [top, bottom] = pixels(py, height);
  for (let i = top; i <= bottom; i += 1) {
    for (let j = left; j <= right; j += 1) {
      let [isLeft, isRight] = [true, true];
      for (let k = 0; k < n; k += 1) {
        const next = (k + 1) % n;
        const side = (px[next] - px[k]) * (i + 0.5 - py[k]) - (py[next] - py[k]) * (j + 0.5 - px[k]);
        if (side < -1e-9) isLeft = false;
        if (side > 1e-9) isRight = false;
      }
      if (isLeft || isRight) to[i * width + j] = cell;
    }
  }
}

/** The longitudes that points cover: all but the widest gap between them. */
export function around(longitudes: Float64Array): Pair {
  const all = longitudes.filter((x) => Number.isFinite(x)).map((x) => ((x % 360) + 360) % 360).sort();
  if (!all.length) return [0, 0];
  let [gap, begin] = [all[0] + 360 - all[all.length - 1], all[0]];
  for (let i = 1; i < all.length; i += 1) if (all[i] - all[i - 1] > gap) [gap, begin] = [all[i] - all[i - 1], all[i]];
  if (gap < 10) return [-180, 180];
  const from = begin > 180 ? begin - 360 : begin;
  return [from, from + 360 - gap];
}

export interface Tick {
  at: number;
  text: string;
}

const DEGREES = [1, 2, 5, 10, 15, 30, 45, 60, 90];

/** Round numbers within a range, at most so many, and the step between them. */
export function round(range: Pair, most: number, isAngle = false): { step: number; at: number[] } {
  const least = (range[1] - range[0]) / Math.max(most, 1);
  if (!(least > 0) || !Number.isFinite(least)) return { step: 0, at: [] };
  const power = 10 ** Math.floor(Math.log10(least));
  const step = (isAngle && least > 0.5 && DEGREES.find((x) => x >= least)) || [1, 2, 5, 10].map((x) => x * power).find((x) => x >= least * 0.999)!;
  const first = Math.ceil(range[0] / step - 1e-6);
  const n = Math.floor(range[1] / step + 1e-6) - first + 1;
  return { step, at: Array.from({ length: Math.max(n, 0) }, (_, i) => (first + i) * step) };
}

/** A number to the digits that a step needs. */
export function digits(x: number, step: number): string {
  const n = step > 0 ? Math.max(0, Math.min(12, Math.ceil(-Math.log10(step) - 1e-6))) : 6;
  return count(Number(x.toFixed(n)) || 0, n).replace("-", "−"); // never -0
}

/** A number of an axis of values. */
export function tickText(x: number, step: number): string {
  const isLong = Math.abs(x) >= 1e7 || (step > 0 && step < 1e-6);
  return isLong && x !== 0 ? Number(x.toPrecision(7)).toExponential().replaceAll("-", "−") : digits(x, step);
}

/** A longitude or latitude, such as 15 °W. */
export function degrees(x: number, step: number, isLongitude: boolean): string {
  const at = isLongitude ? turn(x) : x;
  const text = digits(Math.abs(at), step);
  if (text === "0" || (isLongitude && text === "180")) return `${text}°`;
  return `${text} °${at < 0 ? (isLongitude ? "W" : "S") : isLongitude ? "E" : "N"}`;
}

/** Text of a place along an axis of a plane. */
export function placeText(plane: Plane, x: number, step: number, isX: boolean): string {
  if (plane.kind === "lonlat") return degrees(x, step, isX);
  if (plane.kind === "degrees") return `${digits(x, step)}°`;
  if (plane.kind === "radians") return `${digits(x, step)} rad`;
  if (plane.kind === "metres") return step >= 100 ? `${digits(x / 1000, step / 1000)} km` : `${digits(x, step)} m`;
  return `${digits(x, step)} ${plane.units}`.trim();
}

/** Ticks of a plane that has numbers. */
export function ticks(plane: Plane, range: Pair, most: number, isX: boolean): Tick[] {
  const { step, at } = round(range, most, plane.kind === "lonlat" || plane.kind === "degrees");
  return at.map((x) => ({ at: x, text: placeText(plane, x, step, isX) }));
}

/** Lines of longitude and latitude as a path of SVG in the pixels of a view. */
export function outline(lines: Pair[][], { kind, fromLonLat }: Plane, view: Box, width: number, height: number): string {
  const [kx, ky] = [width / (view.x[1] - view.x[0]), height / (view.y[1] - view.y[0])];
  const copies = kind === "lonlat" ? [-360, 0, 360] : [0];
  const isFar = (x: number, y: number) => !(x > -width && x < 2 * width && y > -height && y < 2 * height);
  let path = "";
  for (const line of lines) {
    for (const copy of copies) {
      let isDown = false;
      let [lon, before] = [0, NaN];
      for (const [x, lat] of line) {
        lon = Number.isNaN(before) ? x : before + turn(x - before);
        before = lon;
        const [a, b] = fromLonLat!(lon + copy, lat);
        const [i, j] = [(a - view.x[0]) * kx, (view.y[1] - b) * ky];
        if (isFar(i, j)) {
          isDown = false;
          continue;
        }
        path += `${isDown ? "L" : "M"}${i.toFixed(1)} ${j.toFixed(1)}`;
        isDown = true;
      }
    }
  }
  return path;
}

/** True if steps of lines are so long that they say nothing of the coast in a part of a plane. */
export function isCoarse(lines: Pair[][], { fromLonLat }: Plane, { x, y }: Box): boolean {
  const [width, height] = [x[1] - x[0], y[1] - y[0]];
  const isNear = ([a, b]: Pair) => Math.abs((a - x[0]) / width - 0.5) < 0.75 && Math.abs((b - y[0]) / height - 0.5) < 0.75;
  const steps = lines.flatMap((line) => {
    const points = line.map(([lon, lat]) => fromLonLat!(lon, lat));
    return points.flatMap((at, i) => (i > 0 && isNear(at) && isNear(points[i - 1]) ? [Math.hypot(at[0] - points[i - 1][0], at[1] - points[i - 1][1])] : []));
  }).sort((a, b) => a - b);
  return steps[steps.length >> 1] > width / 6;
}

/** Lines of longitude and latitude every so many degrees, with their texts, for what is seen of a plane. */
export function graticule(plane: Plane, view: Box, width: number, height: number): { path: string; texts: { text: string; at: Pair }[] } {
  const seen: Pair[] = [];
  for (let i = 0; i <= 12; i += 1) {
    for (let j = 0; j <= 12; j += 1) {
      const at = plane.toLonLat!(view.x[0] + (i / 12) * (view.x[1] - view.x[0]), view.y[0] + (j / 12) * (view.y[1] - view.y[0]));
      if (at.every(Number.isFinite)) seen.push(at);
    }
  }
  if (!seen.length) return { path: "", texts: [] };
  const lats = seen.map((x) => x[1]);
  const pole = [90, -90].find((lat) => isIn(plane.fromLonLat!(0, lat), view));
  const lat: Pair = [pole === -90 ? -90 : Math.min(...lats), pole === 90 ? 90 : Math.max(...lats)];
  const lon = pole === undefined ? around(Float64Array.from(seen, (x) => x[0])) : ([-180, 180] as Pair);
  const [meridians, parallels] = [round(lon, 6, true), round(lat, 5, true)];
  const along = ([a, b]: Pair, n: number) => Array.from({ length: n + 1 }, (_, i) => a + (i / n) * (b - a));
  const wide = (by: number, [a, b]: Pair): Pair => [a - by, b + by];
  const lats2 = wide(meridians.step, lat).map((x) => Math.max(-89.9, Math.min(89.9, x))) as Pair;
  const lines = [
    ...meridians.at.filter((x) => x - lon[0] < 360).map((x) => ({ text: degrees(x, meridians.step, true), points: along(lats2, 60).map((y): Pair => [x, y]) })),
    ...parallels.at.filter((y) => Math.abs(y) < 90).map((y) => ({ text: degrees(y, parallels.step, false), points: along(wide(parallels.step, lon), 120).map((x): Pair => [x, y]) })),
  ];
  const inPixels = ([a, b]: Pair): Pair => [((a - view.x[0]) / (view.x[1] - view.x[0])) * width, ((view.y[1] - b) / (view.y[1] - view.y[0])) * height];
  const texts: { text: string; at: Pair }[] = [];
  for (const { text, points } of lines) {
    const places = points.map(([x, y]) => inPixels(plane.fromLonLat!(x, y))).filter(([i, j]) => i > 24 && i < width - 7 * text.length && j > 16 && j < height - 8);
    const at = places[places.length >> 2];
    const room = (x: { text: string; at: Pair }) => 8 + 7 * (x.at[0] < at[0] ? x.text : text).length; // each begins at its place
    if (at && texts.every((x) => Math.abs(x.at[0] - at[0]) > room(x) || Math.abs(x.at[1] - at[1]) > 16)) texts.push({ text, at });
  }
  return { path: outline(lines.map((x) => x.points), plane, view, width, height), texts };
}

const isIn = ([a, b]: Pair, { x, y }: Box): boolean => a >= x[0] && a <= x[1] && b >= y[0] && b <= y[1];

/** Years, months, days, hours and minutes, and every how many of them have a tick; from few ticks to many. */
const STEPS: [number, number][] = [
  ...[1000, 500, 200, 100, 50, 20, 10, 5, 2, 1].map((k): [number, number] => [0, k]), ...[6, 3, 2, 1].map((k): [number, number] => [1, k]),
  ...[15, 10, 5, 2, 1].map((k): [number, number] => [2, k]), ...[12, 6, 3, 1].map((k): [number, number] => [3, k]), ...[30, 10, 5, 1].map((k): [number, number] => [4, k]),
];

/** Ticks at elements that have labels: where a year, month, day or hour begins, or evenly. */
export function elementTicks(positions: ArrayLike<number>, text: (i: number) => string, range: Pair, most: number): Tick[] {
  const inside = Array.from(positions, (_, i) => i).filter((i) => positions[i] >= range[0] && positions[i] <= range[1]);
  const ticks = (some: number[]) => some.map((i) => ({ at: positions[i], text: text(i) }));
  if (inside.length <= most) return ticks(inside);
  const dates = inside.map((i) => /^(\d{4})-(\d\d)-(\d\d)(?: (\d\d):(\d\d))?/.exec(text(i))?.slice(1).map((x) => Number(x ?? 0)));
  const begins = (unit: number, k: number) => inside.filter((_, j) => {
    const [date, before] = [dates[j], dates[j - 1]];
    if (!date || (date[unit] - (unit === 1 || unit === 2 ? 1 : 0)) % k || (unit === 2 && k > 1 && date[2] > 30 - k / 2)) return false;
    return before ? date.slice(0, unit + 1).some((x, u) => x !== before[u]) : date.slice(unit + 1).every((x, u) => x === (unit + u < 2 ? 1 : 0));
  });
  const found = STEPS.map(([unit, k]) => begins(unit, k)).findLast((some) => some.length > 1 && some.length <= most);
  if (found) return ticks(found);
  const every = Math.ceil(inside.length / most);
  return ticks(inside.filter((_, j) => j % every === 0));
}

/** Latitudes and longitudes that a geometry covers, in words. */
export function placeOf({ plane, box: whole, points: box = whole }: Geometry): string {
  const lats: number[] = [];
  const lons: number[] = [];
  for (let k = 0; k < 41 * 41 && plane.toLonLat; k += 1) {
    const [i, j] = [(k % 41) / 40, Math.floor(k / 41) / 40];
    const [lon, lat] = plane.toLonLat(box.x[0] + i * (box.x[1] - box.x[0]), box.y[0] + j * (box.y[1] - box.y[0]));
    if (Number.isFinite(lon) && Number.isFinite(lat)) lons.push(lon), lats.push(lat);
  }
  if (!lats.length) return "";
  if (lats.length < 0.9 * 41 * 41) {
    const [lon, lat] = plane.toLonLat!((box.x[0] + box.x[1]) / 2, (box.y[0] + box.y[1]) / 2); // space around the earth
    return `the disk of the Earth around ${degrees(lat, 1, false)}, ${degrees(lon, 1, true)}`;
  }
  const pole = [90, -90].filter((lat) => plane.kind !== "lonlat" && isIn(plane.fromLonLat!(0, lat), box));
  const lat = [Math.min(...lats, ...pole), Math.max(...lats, ...pole)];
  const [west, east] = plane.kind === "lonlat" ? box.x : around(Float64Array.from(lons));
  const step = Math.max(lat[1] - lat[0], 1e-3) / 100;
  const [south, north] = lat.map((x) => degrees(x, 10 ** Math.floor(Math.log10(step)), false));
  const all = pole.length || east - west > 359 ? "all longitudes" : [west, east].map((x) => degrees(x, 10 ** Math.floor(Math.log10(step)), true)).join(" to ");
  return `${south} to ${north}, ${all}`;
}
