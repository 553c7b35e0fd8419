/** Where the values of a variable are: coordinates and grid mapping, as the CF conventions or common names tell. */

import type { Attributes, Variable } from "./facts";
import { around, borders, boundEdges, edges, elementTicks, lattice, LONLAT, mesh, partOf, polygons, round, scatter, type Geometry, type Marks, type Pair, type Part, type Plane } from "./geometry";
import { readPart } from "./layers";
import { labels as read, open, type Cube, type Labels, type Live } from "./live";
import { count } from "./text";

/** The two dimensions of a picture, and where the cells of a part of it are. */
export interface Grid {
  /** Axes of the rows and columns of a slice; the rows of a slice of one dimension are -1. */
  axes: Pair;
  /** True if the rows go along x. */
  isSwapped: boolean;
  /** Where the cells of a part are; `index` is where the picture is along the other dimensions. */
  geometry(part: Part, index: number[]): Promise<Geometry>;
}

interface Role {
  isX: boolean;
  isGeographic: boolean;
}

/** What a coordinate says; the next question decides where one says nothing. */
function role(path: string, a: Attributes): Role | null {
  const [units, standard, name] = [String(a.units ?? ""), String(a.standard_name ?? ""), path.slice(path.lastIndexOf("/") + 1).toLowerCase()];
  if (/^degrees?_?n(orth)?$/i.test(units) || standard === "latitude") return { isX: false, isGeographic: true };
  if (/^degrees?_?e(ast)?$/i.test(units) || standard === "longitude") return { isX: true, isGeographic: true };
  if (/^(grid_latitude|projection_y_)/.test(standard) || a.axis === "Y") return { isX: false, isGeographic: false };
  if (/^(grid_longitude|projection_x_)/.test(standard) || a.axis === "X") return { isX: true, isGeographic: false };
  if (/^(nav_)?lat(itude)?$/.test(name)) return { isX: false, isGeographic: !units || /^deg/.test(units) };
  if (/^(nav_)?lon(gitude)?$/.test(name)) return { isX: true, isGeographic: !units || /^deg/.test(units) };
  if (/^(y|yc|rlat|northing)$/.test(name)) return { isX: false, isGeographic: false };
  return /^(x|xc|rlon|easting)$/.test(name) ? { isX: true, isGeographic: false } : null;
}

const METRES: Record<string, number> = { m: 1, metre: 1, metres: 1, meter: 1, meters: 1, km: 1000, kilometre: 1000, kilometres: 1000, kilometer: 1000, kilometers: 1000, "us survey foot": 1200 / 3937, foot: 0.3048, feet: 0.3048 };

const isText = (v: Variable): boolean => /^(\|S|text$|StringDType)/.test(v.dtype);
const isTime = (v: Variable): boolean => / since /.test(String(v.attributes.units ?? ""));

/** Labels of each dimension of a variable: what people call its elements. */
export function labelsOf(cube: Cube, array: Live, path: string, variables: Variable[]): Promise<(Labels | null)[]> {
  const group = path.slice(0, path.lastIndexOf("/") + 1);
  const named = String(array.attributes.coordinates ?? "").split(/\s+/);
  return Promise.all(array.dims.map(async (dim, axis) => {
    const words = array.attributes.long_name; // of the bands of a raster
    if (Array.isArray(words) && words.length === array.shape[axis] && /band/.test(dim)) {
      return { kind: "text", values: Float64Array.from(words.keys()), text: (i: number) => String(words[i]) };
    }
    const places = [...new Set([group, ""])];
    const along = variables.filter((v) => v.dims.length === (v.dtype === "|S1" ? 2 : 1) && v.dims[0] === dim && places.includes(v.path.slice(0, v.path.lastIndexOf("/") + 1)));
    const rank = (v: Variable): number => {
      const isNamed = named.includes(v.path.slice(v.path.lastIndexOf("/") + 1));
      // NEMO counts steps beside their times
      const isCounter = v.attributes.axis === "T" && !v.attributes.units;
      if (v.is_coordinate) return isText(v) || isTime(v) || role(v.path, v.attributes) ? 0 : isCounter ? 8 : 2;
      const name = v.path.slice(v.path.lastIndexOf("/") + 1);
      if (isText(v) && (isNamed || v.attributes.cf_role)) return 1;
      if (isText(v)) return /^times?$/i.test(name) ? 4 : /(^|_)(name|id|label|code)s?$/i.test(name) ? 6 : 9;
      return isTime(v) ? (isNamed ? 3 : 5) : 9;
    };
    const best = along.filter((v) => rank(v) < 9).sort((a, b) => rank(a) - rank(b));
    for (const v of best) {
      const found = await read(cube, v.path, v.dtype).catch(() => null);
      if (found) return found;
    }
    return null;
  }));
}

/** How a dimension that no map has is drawn: depths, pressures and latitudes along y, longitudes along x. */
function rankAlongY(v: Variable | undefined): number {
  if (!v) return 0;
  if (v.attributes.positive || v.attributes.axis === "Z" || isDown(v)) return 3;
  const found = role(v.path, v.attributes);
  return !found ? 0 : found.isX ? -1 : 2;
}

/** True if numbers of a coordinate grow downwards. */
function isDown({ path, attributes: a }: Variable): boolean {
  if (a.positive) return String(a.positive).toLowerCase() === "down";
  return /^(depth|air_pressure|sea_water_pressure)/.test(String(a.standard_name)) || /^(hPa|mbar|millibars?|dbar)$/i.test(String(a.units)) || /(^|\/)(depth|plev|level_pressure)/i.test(path);
}

export async function locate(cube: Cube, array: Live, path: string, variables: Variable[], labels: (Labels | null)[]): Promise<Grid | null> {
  const group = path.includes("/") ? path.slice(0, path.lastIndexOf("/") + 1) : "";
  const find = (name: string) => variables.find((x) => x.path === group + name) ?? variables.find((x) => x.path === name);
  const { dims, shape } = array;
  const n = dims.length;
  const roles = dims.map((dim, axis) => (labels[axis]?.kind === "number" && find(dim)?.is_coordinate ? role(find(dim)!.path, find(dim)!.attributes) : null));
  const long = dims.map((_, axis) => axis).filter((axis) => shape[axis] > 1);
  const isDrawn = (axis: number) => axis >= 0 && (shape[axis] > 1 || long.length < 2);
  const [x, y] = [roles.findIndex((r) => r?.isX), roles.findIndex((r) => r && !r.isX)];
  const isLined = isDrawn(x) && isDrawn(y);
  const mapping = await readMapping();
  const places = lonlats();
  if (places && places[0].dims.length > 1 && !(isLined && (mapping || roles[x]!.isGeographic))) return curvilinear(...places);
  if (places && places[0].dims.length === 1 && !isLined) return curvilinear(...places);
  if (n < 2) return null;
  const rays = ["ray_azimuth_angle", "projection_range_coordinate"].map((name, i) => dims.findIndex((dim) => find(dim)?.is_coordinate && (find(dim)!.attributes.standard_name === name || dim === ["azimuth", "range"][i])));
  if (rays.every((axis) => isDrawn(axis) && labels[axis]?.kind === "number")) return radar(rays as Pair);
  const axes = (isLined ? [x, y] : long.length > 1 ? long.slice(-2) : [n - 2, n - 1]).sort((a, b) => a - b) as Pair;
  const plane = isLined ? await planeOf() : null;
  const lines = plane && (await Promise.all([x, y].map((axis, i) => linesOf(axis, plane.plane === LONLAT && !i, plane.factor, plane.plane === LONLAT && i ? 90 : Infinity))));
  if (lines?.[0] && lines[1]) return latticeOf(plane!.plane, [lines[0], lines[1]], x < y);
  const isTurned = rankAlongY(find(dims[axes[1]])) > rankAlongY(find(dims[axes[0]]));
  const scales = await Promise.all([isTurned ? axes[0] : axes[1], isTurned ? axes[1] : axes[0]].map((axis, i) => scaleOf(axis, i === 0)));
  const index: Plane = { kind: "index", units: "", toLonLat: null, fromLonLat: null, marks: [scales[0].marks, scales[1].marks] };
  return latticeOf(index, [scales[0].lines, scales[1].lines], isTurned);

  function latticeOf(plane: Plane, lines: [Float64Array, Float64Array], isSwapped: boolean): Grid {
    const pick = (line: Float64Array, side: number, part: Part) => Float64Array.from(borders(part.at[side], part.spans[side]), (i) => line[i]);
    return { axes, isSwapped, geometry: kept(async (part) => lattice(plane, pick(lines[0], isSwapped ? 0 : 1, part), pick(lines[1], isSwapped ? 1 : 0, part), isSwapped)) };
  }

  /** Edges of the cells along a dimension: its bounds, or else between its numbers. */
  async function linesOf(axis: number, isLongitude = false, factor = 1, most = Infinity): Promise<Float64Array | null> {
    const bounds = find(String(find(dims[axis])?.attributes.bounds ?? ""));
    if (bounds && String(bounds.shape) === `${shape[axis]},2` && !isTime(find(dims[axis])!)) {
      const read = await open(cube, bounds.path).then((v) => v.read([[0, shape[axis]], [0, 2]]), () => null);
      const found = read && boundEdges(read.map((v) => v * factor), isLongitude);
      if (found) return found;
    }
    return edges(labels[axis]!.values.map((v) => v * factor), isLongitude, most);
  }

  /** Edges and ticks of a dimension that has labels of its own: at its numbers if they are in order, or one after the other. */
  async function scaleOf(axis: number, isX: boolean): Promise<{ lines: Float64Array; marks: Marks }> {
    const label = labels[axis];
    const lines = label && label.kind !== "text" ? await linesOf(axis) : null;
    const sign = !isX && (!lines || (find(dims[axis]) && isDown(find(dims[axis])!))) ? -1 : 1;
    const positions = lines ? label!.values : Float64Array.from({ length: shape[axis] }, (_, i) => i);
    const text = (i: number) => label?.text(i) ?? `${dims[axis]} ${count(i)}`;
    const ticksOf = (range: Pair, most: number) => {
      const { step, at } = round(range, label ? most : Math.min(most, shape[axis]), roles[axis]?.isGeographic);
      if (!label) return at.filter((i) => Number.isInteger(i)).map((i) => ({ at: i, text: text(i) }));
      return lines && label.tick ? at.map((v) => ({ at: v, text: label.tick!(v, step) })) : elementTicks(positions, text, range, most);
    };
    return {
      lines: (lines ?? Float64Array.from({ length: shape[axis] + 1 }, (_, i) => i - 0.5)).map((v) => sign * v),
      marks: (range, most) => ticksOf(sign > 0 ? range : [-range[1], -range[0]], most).map((tick) => ({ ...tick, at: sign * tick.at })),
    };
  }

  /** Rays of a radar around its place. */
  async function radar([angle, distance]: Pair): Promise<Grid> {
    const site = await Promise.all(["latitude", "longitude"].map(async (name) => {
      const v = find(name);
      return v && v.shape.length === 0 ? (await open(cube, v.path)).read([]).then((found) => found[0]) : NaN;
    }));
    const far = METRES[String(find(dims[distance])!.attributes.units).toLowerCase()] ?? 1;
    const plain: Plane = { kind: "metres", units: "m", toLonLat: null, fromLonLat: null };
    const plane = site.every(Number.isFinite) ? (await import("./crs")).project(`+proj=aeqd +lat_0=${site[0]} +lon_0=${site[1]} +ellps=WGS84`, "metres", "m", 1) ?? plain : plain;
    const axes: Pair = angle < distance ? [angle, distance] : [distance, angle];
    return {
      axes,
      isSwapped: false,
      geometry: kept(async (part) => {
        const [rows, columns] = part.at;
        const at = (along: (angle: number, distance: number) => number) => Float64Array.from({ length: rows.length * columns.length }, (_, i) => {
          const [row, column] = [rows[Math.floor(i / columns.length)], columns[i % columns.length]];
          const [a, d] = angle < distance ? [row, column] : [column, row];
          return along((labels[angle]!.values[a] * Math.PI) / 180, labels[distance]!.values[d] * far);
        });
        return mesh(plane, at((a, d) => d * Math.sin(a)), at((a, d) => d * Math.cos(a)), rows.length, columns.length);
      }),
    };
  }

  async function readMapping(): Promise<Attributes | null> {
    const named = array.attributes.grid_mapping;
    const names = typeof named === "string" ? [named.split(/[\s:]/)[0]] : ["spatial_ref", "crs"];
    const found = names.map(find).find((v) => v && (v.attributes.grid_mapping_name || v.attributes.crs_wkt || v.attributes.spatial_ref));
    if (!found) return null;
    return open(cube, found.path).then((v) => v.attributes, () => found.attributes);
  }

  /** The plane of coordinates along two dimensions, and what makes them numbers in it. */
  async function planeOf(): Promise<{ plane: Plane; factor: number } | null> {
    if (roles[x]!.isGeographic && roles[y]!.isGeographic) return { plane: LONLAT, factor: 1 };
    const [a, b] = [x, y].map((axis) => String(find(dims[axis])!.attributes.units ?? ""));
    if (a !== b) return null;
    const name = String(mapping?.grid_mapping_name ?? "");
    const isRotated = name.startsWith("rotated");
    const isAngle = name === "geostationary" && !(a.toLowerCase() in METRES);
    const kind = isRotated || /^deg/.test(a) ? "degrees" : isAngle ? "radians" : a.toLowerCase() in METRES || mapping ? "metres" : a ? "other" : "index";
    if (kind === "index") return null;
    const plain: Plane = { kind, units: a, toLonLat: null, fromLonLat: null };
    const angle = isAngle && /^micro|^u|^µ/.test(a) ? 1e-6 : 1;
    if (!mapping) return { plane: plain, factor: kind === "metres" ? METRES[a.toLowerCase()] : angle };
    if (/^latitude_longitude$/.test(name)) return { plane: LONLAT, factor: 1 };
    const crs = await import("./crs");
    const [text, metres] = crs.definition(mapping) ?? ["", 1];
    const plane = text ? crs.project(text, kind, a, isAngle ? Number(mapping.perspective_point_height) : 1 / metres) : null;
    return { plane: plane ?? plain, factor: kind === "metres" ? (METRES[a.toLowerCase()] ?? crs.metresOf(mapping)) : angle };
  }

  /** Latitude and longitude of the same dimensions, all of the variable: of two or more, or of one that has no order. */
  function lonlats(): [Variable, Variable] | null {
    const fits = (isX: boolean) => (v: Variable | undefined): v is Variable => {
      if (!v || !v.dims.length || v.is_coordinate || v.path === path) return false;
      const at = v.dims.map((dim) => dims.indexOf(dim));
      if (at.some((axis, i) => axis < 0 || (i > 0 && axis < at[i - 1]))) return false;
      if (at.length === 1 && n > 1 && labels[at[0]]?.kind === "time") return false; // a path, whose values are a section
      const found = role(v.path, v.attributes);
      return Boolean(found && found.isGeographic && found.isX === isX);
    };
    const near = variables.filter((v) => v.path.slice(0, v.path.lastIndexOf("/") + 1) === group);
    const all = [...String(array.attributes.coordinates ?? "").split(/\s+/).map(find), ...near];
    for (const lat of all.filter(fits(false))) {
      const lon = all.filter(fits(true)).find((v) => String(v.dims) === String(lat.dims));
      if (lon) return [lat, lon];
    }
    return null;
  }

  /** Cells or points at latitudes and longitudes that are written for each of them. */
  async function curvilinear(lat: Variable, lon: Variable): Promise<Grid> {
    const found = await Promise.all([lat, lon].map((v) => open(cube, v.path)));
    const corners = await Promise.all([lat, lon].map(async (v) => {
      const bounds = find(String(v.attributes.bounds ?? ""));
      const isSame = bounds && bounds.dims.length === v.dims.length + 1 && v.dims.every((dim, i) => dim === bounds.dims[i]);
      return isSame && bounds.nbytes <= MAX_BOUNDS_BYTES ? open(cube, bounds.path).catch(() => null) : null;
    }));
    const axes = (lat.dims.length === 1 ? [-1, dims.indexOf(lat.dims[0])] : lat.dims.slice(-2).map((dim) => dims.indexOf(dim))) as Pair;
    const own = axes.map((axis) => lat.dims.indexOf(dims[axis])) as Pair;
    const inDegrees = (v: Live) => (/^rad/.test(String(v.attributes.units)) ? 180 / Math.PI : 1);
    const part = async (v: Live, of: Part, at: (axis: number) => number) => (await readPart(v, own, v.dims.map((_, i) => at(i)), of)).map((value) => value * inDegrees(v));
    // most models write the same coordinates for each time; those of nests that move are read for each
    const moves = (await Promise.all(found.map(async (v) => {
      const most = v.shape.map((length, i) => (own.includes(i) ? 0 : length - 1));
      if (most.every((x) => x === 0)) return false;
      const corner = partOf(own.map((i) => [0, Math.min(v.shape[i] ?? 1, 64)]) as [Pair, Pair], [1, 1], 64);
      const [first, last] = await Promise.all([part(v, corner, () => 0), part(v, corner, (i) => most[i])]);
      return first.some((x, i) => x !== last[i]);
    }))).some(Boolean);
    let polar: Plane | null | undefined; // of the whole slice, which is asked for first
    const make = async (of: Part, index: number[]): Promise<Geometry> => {
      const where = (i: number) => (moves ? index[dims.indexOf(lat.dims[i])] : 0);
      const [lats, lons] = await Promise.all(found.map((v) => part(v, of, where)));
      const isPlace = (i: number) => Math.abs(lats[i]) <= 90 && Math.abs(lons[i]) <= 720;
      for (let i = 0; i < lats.length; i += 1) if (!isPlace(i)) lats[i] = lons[i] = NaN;
      if (polar === undefined) {
        const all = around(lons);
        const least = lats.reduce((a, b) => (Math.abs(b) < Math.abs(a) ? b : a), 90);
        // around a pole: a map that has the pole in its middle
        const isPolar = all[1] - all[0] >= 360 && Math.abs(least) >= 25 && !lats.some((v) => v * least < 0);
        polar = isPolar ? (await import("./crs")).project(`+proj=stere +lat_0=${least > 0 ? 90 : -90} +lat_ts=${least > 0 ? 70 : -70} +lon_0=0 +ellps=WGS84`, "metres", "m", 1) : null;
      }
      const plane = polar ?? LONLAT;
      const placed = (x: Float64Array, y: Float64Array) => x.forEach((v, i) => ([x[i], y[i]] = plane.fromLonLat!(v, y[i])));
      placed(lons, lats);
      const [rows, columns] = of.at.map((x) => x.length);
      const isEvery = of.keep === 1 && of.steps.every((x) => x === 1);
      if (isEvery && corners[0] && corners[1]) {
        const n = corners[0].shape.at(-1)!;
        const [y, x] = await Promise.all(corners.map(async (v, k) => {
          const selected = v!.dims.map((_, i): number | [number, number] => (i === lat.dims.length ? [0, n] : own.includes(i) ? of.spans[own.indexOf(i)] : where(i)));
          return (await v!.read(selected)).map((value) => value * inDegrees(found[k]));
        }));
        placed(x, y);
        return polygons(plane, lons, lats, columns, n, x, y);
      }
      return axes[0] < 0 ? scatter(plane, lons, lats) : mesh(plane, lons, lats, rows, columns);
    };
    return { axes, isSwapped: false, geometry: kept(make, moves) };
  }
}

const MAX_BOUNDS_BYTES = 16e6;

/** The last two geometries are kept, those of the whole slice and of a part: they are the same at each time, unless the grid moves. */
function kept(make: Grid["geometry"], moves = false): Grid["geometry"] {
  const made: [string, Promise<Geometry>][] = [];
  return (part, index) => {
    const key = JSON.stringify([part.spans, part.steps, part.keep, moves && index]);
    const known = made.find(([x]) => x === key);
    if (known) return known[1];
    const found = make(part, index);
    made.unshift([key, found]);
    made.splice(2);
    found.catch(() => made.splice(made.findIndex(([x]) => x === key), 1));
    return found;
  };
}
