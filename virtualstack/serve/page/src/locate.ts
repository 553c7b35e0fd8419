/** Where the values of a variable are: coordinates and grid mapping, as the CF conventions or common names tell. */

import type { Attributes, Variable } from "./facts";
import { edges, INDEX, lattice, LONLAT, mesh, around, type Geometry, type Pair, type Plane } from "./geometry";
import { labels as read, open, type Cube, type Labels, type Live } from "./live";

/** The two dimensions of a picture, and where the cells of a part of it are. */
export interface Grid {
  /** Axes of the rows and columns of a slice. */
  axes: Pair;
  /** True if the rows go along x. */
  isSwapped: boolean;
  /** Where the cells from `begin` on are; `index` is where the picture is along the other dimensions. */
  geometry(begin: Pair, sides: Pair, index: number[]): Promise<Geometry>;
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

/** Labels of each dimension of a variable: what people call its elements. Words that are bytes are read at a URL alone. */
export function labelsOf(cube: Cube, array: Live, path: string, variables: Variable[], url: string | null = null): Promise<(Labels | null)[]> {
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
      if (v.is_coordinate) return isText(v) || isTime(v) || role(v.path, v.attributes) ? 0 : 2;
      if (isText(v)) return isNamed ? 1 : /^times?$/i.test(v.path.slice(v.path.lastIndexOf("/") + 1)) ? 4 : 9;
      return isTime(v) ? (isNamed ? 3 : 5) : 9;
    };
    const best = along.filter((v) => rank(v) < 9).sort((a, b) => rank(a) - rank(b));
    for (const v of best) {
      const from = v.dtype.startsWith("|S") ? url : cube;
      const found = from === null ? null : await read(from, v.path, v.dtype).catch(() => null);
      if (found) return found;
    }
    return null;
  }));
}

export async function locate(cube: Cube, array: Live, path: string, variables: Variable[], labels: (Labels | null)[]): Promise<Grid> {
  const group = path.includes("/") ? path.slice(0, path.lastIndexOf("/") + 1) : "";
  const find = (name: string) => variables.find((x) => x.path === group + name) ?? variables.find((x) => x.path === name);
  const { dims } = array;
  const n = dims.length;
  const roles = dims.map((dim, axis) => (labels[axis]?.kind === "number" && find(dim)?.is_coordinate ? role(find(dim)!.path, find(dim)!.attributes) : null));
  const [x, y] = [roles.findIndex((r) => r?.isX), roles.findIndex((r) => r && !r.isX)];
  const isLined = x >= 0 && y >= 0;
  const mapping = await readMapping();
  const [lat, lon] = [false, true].map((isX) => curved(isX));
  if (lat && lon && !(isLined && (mapping || roles[x]!.isGeographic))) return curvilinear(lat, lon);
  const axes: Pair = isLined ? [Math.min(x, y), Math.max(x, y)] : [n - 2, n - 1];
  const plane = isLined ? await planeOf() : null;
  const lines = plane && [x, y].map((axis, i) => edges(labels[axis]!.values.map((v) => v * plane.factor), plane.plane === LONLAT && !i, plane.plane === LONLAT && i ? 90 : Infinity));
  const isSwapped = Boolean(lines?.[0] && lines[1] && x < y);
  const isUp = (labels[axes[0]]?.values[0] ?? 0) < (labels[axes[0]]?.values[1] ?? 0);
  return {
    axes,
    isSwapped,
    geometry: kept(async (begin, sides) => {
      const part = (made: Float64Array, row: number) => made.subarray(begin[row], begin[row] + sides[row] + 1);
      const [columns, rows] = isSwapped ? [0, 1] : [1, 0];
      if (lines?.[0] && lines[1]) return lattice(plane!.plane, part(lines[0], columns), part(lines[1], rows), isSwapped);
      const count = (length: number, sign: number) => Float64Array.from({ length: length + 1 }, (_, i) => sign * (i - 0.5));
      return lattice(INDEX, count(sides[1], 1), count(sides[0], isUp && find(dims[axes[0]])?.attributes.positive !== "down" ? 1 : -1), false);
    }),
  };

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
    const factor = kind === "metres" ? (METRES[a.toLowerCase()] ?? 1) : isAngle && /^micro|^u|^µ/.test(a) ? 1e-6 : 1;
    const plain: Plane = { kind, units: a, toLonLat: null, fromLonLat: null };
    if (!mapping) return { plane: plain, factor };
    if (/^latitude_longitude$/.test(name)) return { plane: LONLAT, factor };
    const crs = await import("./crs");
    const text = crs.definition(mapping);
    return { plane: (text && crs.project(text, kind, a, isAngle ? Number(mapping.perspective_point_height) : 1)) || plain, factor };
  }

  /** A coordinate of two or more dimensions, all of the variable, that says latitude or longitude. */
  function curved(isX: boolean): Variable | undefined {
    const fits = (v: Variable | undefined): v is Variable => {
      const found = v && v.dims.length > 1 && v.dims.every((dim, i) => dims.includes(dim) && (!i || dims.indexOf(dim) > dims.indexOf(v.dims[i - 1]))) && role(v.path, v.attributes);
      return Boolean(found && found.isGeographic && found.isX === isX);
    };
    const named = String(array.attributes.coordinates ?? "").split(/\s+/).map(find).find(fits);
    return named ?? variables.find((v) => v.path.slice(0, v.path.lastIndexOf("/") + 1) === group && v.path !== path && fits(v));
  }

  async function curvilinear(lat: Variable, lon: Variable): Promise<Grid> {
    const found = await Promise.all([lat, lon].map((v) => open(cube, v.path)));
    const axes = found[0].dims.slice(-2).map((dim) => dims.indexOf(dim)) as Pair;
    const part = (v: Live, begin: Pair, sides: Pair, at: (axis: number) => number) =>
      v.read(v.dims.map((dim, i) => {
        const side = axes.indexOf(dims.indexOf(dim));
        return side < 0 ? at(i) : [begin[side], begin[side] + sides[side]];
      }));
    // most models write the same coordinates for each time; those of nests that move are read for each
    const moves = (await Promise.all(found.map(async (v) => {
      const most = v.shape.map((length, i) => (axes.includes(dims.indexOf(v.dims[i])) ? 0 : length - 1));
      if (most.every((x) => x === 0)) return false;
      const sides = axes.map((axis) => Math.min(array.shape[axis], 64)) as Pair;
      const [first, last] = await Promise.all([part(v, [0, 0], sides, () => 0), part(v, [0, 0], sides, (i) => most[i])]);
      return first.some((x, i) => x !== last[i]);
    }))).some(Boolean);
    const make = async (begin: Pair, sides: Pair, index: number[]): Promise<Geometry> => {
      const [lats, lons] = await Promise.all(found.map((v) => part(v, begin, sides, (i) => (moves ? index[dims.indexOf(v.dims[i])] : 0))));
      const isPlace = (i: number) => Math.abs(lats[i]) <= 90 && Math.abs(lons[i]) <= 720;
      for (let i = 0; i < lats.length; i += 1) if (!isPlace(i)) lats[i] = lons[i] = NaN;
      const all = around(lons);
      const least = lats.reduce((a, b) => (Math.abs(b) < Math.abs(a) ? b : a), 90);
      if (all[1] - all[0] < 360 || Math.abs(least) < 25 || lats.some((v) => v * least < 0)) return mesh(LONLAT, lons, lats, ...sides);
      // around a pole: a map that has the pole in its middle
      const { project } = await import("./crs");
      const plane = project(`+proj=stere +lat_0=${least > 0 ? 90 : -90} +lat_ts=${least > 0 ? 70 : -70} +lon_0=0 +ellps=WGS84`, "metres", "m", 1)!;
      lats.forEach((v, i) => ([lons[i], lats[i]] = plane.fromLonLat!(lons[i], v)));
      return mesh(plane, lons, lats, ...sides);
    };
    return { axes, isSwapped: false, geometry: kept((begin, sides, index) => make(begin, sides, index), moves) };
  }
}

/** The last geometry is kept: it is the same at each time, unless the grid moves. */
function kept(make: Grid["geometry"], moves = false): Grid["geometry"] {
  let [last, found]: [string, Promise<Geometry> | null] = ["", null];
  return (begin, sides, index) => {
    const key = [begin, sides, moves ? index : []].join("/");
    if (key !== last || !found) [last, found] = [key, make(begin, sides, index)];
    return found;
  };
}
