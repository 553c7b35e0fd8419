/** Where the cells of a slice are in a plane. Picture, ticks, coast and pointer all ask this module. */

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
}

/** Cells in a plane, each numbered `row * columns + column`. */
export interface Geometry {
  plane: Plane;
  /** What all cells cover. */
  box: Box;
  /** Which cell each pixel of a view shows; -1 where there is none. */
  raster(view: Box, width: number, height: number): Int32Array;
  centre(row: number, column: number): Pair;
}

const same = (x: number, y: number): Pair => [x, y];
export const LONLAT: Plane = { kind: "lonlat", units: "", toLonLat: same, fromLonLat: same };
export const INDEX: Plane = { kind: "index", units: "", toLonLat: null, fromLonLat: null };

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
      const [px, py] = [new Float64Array(4), new Float64Array(4)];
      for (let r = 0; r < rows; r += 1) {
        for (let c = 0; c < columns; c += 1) {
          const cell = r * columns + c;
          if (Number.isNaN(x[cell]) || Number.isNaN(y[cell])) continue;
          const home = period ? middle + turn(x[cell] - middle) : x[cell];
          for (let k = 0; k < 4; k += 1) {
            // around the cell: upper left, upper right, lower right, lower left
            const corner = (r + (k >> 1)) * (columns + 1) + c + ((k + 1) >> 1) % 2;
            px[k] = (home + near(cornerX[corner] - x[cell]) - view.x[0]) * kx;
            py[k] = (view.y[1] - cornerY[corner]) * ky;
          }
          fill(made, width, height, px, py, cell);
          if (!period) continue;
          const shift = home < middle ? 360 * kx : -360 * kx;
          for (let k = 0; k < 4; k += 1) px[k] += shift;
          fill(made, width, height, px, py, cell);
        }
      }
      return made;
    },
    centre(row, column) {
      const cell = row * columns + column;
      const middle = (box.x[0] + box.x[1]) / 2;
      return [period ? middle + turn(x[cell] - middle) : x[cell], y[cell]];
    },
  };
}

/** Give the pixels whose centres are in a quadrangle its number. */
function fill(to: Int32Array, width: number, height: number, px: Float64Array, py: Float64Array, cell: number): void {
  const left = Math.max(0, Math.ceil(Math.min(px[0], px[1], px[2], px[3]) - 0.5));
  const right = Math.min(width - 1, Math.floor(Math.max(px[0], px[1], px[2], px[3]) - 0.5));
  const top = Math.max(0, Math.ceil(Math.min(py[0], py[1], py[2], py[3]) - 0.5));
  const bottom = Math.min(height - 1, Math.floor(Math.max(py[0], py[1], py[2], py[3]) - 0.5));
  for (let i = top; i <= bottom; i += 1) {
    for (let j = left; j <= right; j += 1) {
      let [isLeft, isRight] = [true, true];
      for (let k = 0; k < 4; k += 1) {
        const next = (k + 1) & 3;
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
  const fixed = Number(x.toFixed(n)) || 0; // never -0
  return fixed.toLocaleString("en", { minimumFractionDigits: 0, maximumFractionDigits: n }).replace("-", "−");
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
