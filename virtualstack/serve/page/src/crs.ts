/** Projections: grid mappings of the CF conventions, or well-known text, for proj4. */

import proj4 from "proj4";
import type { Attributes } from "./facts";
import type { Pair, Plane } from "./geometry";

type Numbers = (name: string, instead?: number) => number;

/** What each grid mapping is for proj4; latitudes and longitudes of its attributes are numbers. */
const MAPPINGS: Record<string, (a: Numbers, all: Attributes) => string> = {
  rotated_latitude_longitude: (a) => `+proj=ob_tran +o_proj=longlat +o_lon_p=${a("north_pole_grid_longitude", 0)} +o_lat_p=${a("grid_north_pole_latitude")} +lon_0=${180 + a("grid_north_pole_longitude")}`,
  lambert_conformal_conic: (a, all) => {
    const parallels = Array.isArray(all.standard_parallel) ? all.standard_parallel : [all.standard_parallel];
    return `+proj=lcc +lat_1=${Number(parallels[0])} +lat_2=${Number(parallels.at(-1))} +lat_0=${a("latitude_of_projection_origin")} +lon_0=${a("longitude_of_central_meridian")}`;
  },
  albers_conical_equal_area: (a, all) => {
    const parallels = Array.isArray(all.standard_parallel) ? all.standard_parallel : [all.standard_parallel];
    return `+proj=aea +lat_1=${Number(parallels[0])} +lat_2=${Number(parallels.at(-1))} +lat_0=${a("latitude_of_projection_origin")} +lon_0=${a("longitude_of_central_meridian")}`;
  },
  polar_stereographic: (a, all) => {
    const pole = a("latitude_of_projection_origin", a("standard_parallel", 90) < 0 ? -90 : 90);
    const scale = all.standard_parallel === undefined ? `+k_0=${a("scale_factor_at_projection_origin", 1)}` : `+lat_ts=${a("standard_parallel")}`;
    return `+proj=stere +lat_0=${pole} ${scale} +lon_0=${a("straight_vertical_longitude_from_pole", a("longitude_of_projection_origin", 0))}`;
  },
  geostationary: (a, all) => {
    // the axis that is not said to be fixed sweeps
    const sweep = all.sweep_angle_axis ?? (all.fixed_angle_axis === "x" ? "y" : all.fixed_angle_axis === "y" ? "x" : "y");
    return `+proj=geos +lon_0=${a("longitude_of_projection_origin", 0)} +h=${a("perspective_point_height")} +sweep=${sweep}`;
  },
  transverse_mercator: (a) => `+proj=tmerc +lat_0=${a("latitude_of_projection_origin", 0)} +lon_0=${a("longitude_of_central_meridian")} +k_0=${a("scale_factor_at_central_meridian", 1)}`,
  mercator: (a, all) => `+proj=merc +lon_0=${a("longitude_of_projection_origin", 0)} ${all.standard_parallel === undefined ? `+k_0=${a("scale_factor_at_projection_origin", 1)}` : `+lat_ts=${a("standard_parallel")}`}`,
  lambert_azimuthal_equal_area: (a) => `+proj=laea +lat_0=${a("latitude_of_projection_origin")} +lon_0=${a("longitude_of_projection_origin")}`,
};

/** What 1 of the coordinates of a projected system is in metres, as its well-known text says: some are in feet. */
export function metresOf({ crs_wkt, spatial_ref }: Attributes): number {
  const [horizontal] = String(crs_wkt ?? spatial_ref ?? "").split(/VERT/);
  const units = [...horizontal.matchAll(/UNIT\["([^"]*)",\s*([\d.e+-]+)/g)];
  return Number(units.findLast(([, name]) => /foot|feet|metre|meter/i.test(name))?.[2] ?? 1);
}

/** Return the text of a projection for proj4, and what 1 of its numbers is in metres; or `null` if the attributes name none that is known. */
export function definition(attributes: Attributes): [string, number] | null {
  const name = String(attributes.grid_mapping_name ?? "");
  const wkt = attributes.crs_wkt ?? attributes.spatial_ref;
  const unit = metresOf(attributes);
  const number: Numbers = (key, instead) => Number(attributes[key] ?? instead ?? NaN);
  const made = MAPPINGS[name]?.(number, attributes);
  if (made && !made.includes("NaN")) return [`${made} +x_0=${number("false_easting", 0) * unit} +y_0=${number("false_northing", 0) * unit} ${ellipsoid(number)} +no_defs`, 1];
  return typeof wkt === "string" ? [wkt, unit] : null;
}

function ellipsoid(a: Numbers): string {
  const major = a("semi_major_axis", a("earth_radius"));
  if (Number.isNaN(major)) return "+ellps=WGS84";
  if (!Number.isNaN(a("semi_minor_axis"))) return `+a=${major} +b=${a("semi_minor_axis")}`;
  const inverse = a("inverse_flattening");
  // without a flattening, an axis of some ellipsoids says which one it is
  if (Number.isNaN(inverse) && major === 6378137) return Number.isNaN(a("earth_radius")) ? "+ellps=GRS80" : `+a=${major} +b=${major}`;
  return inverse ? `+a=${major} +rf=${inverse}` : `+a=${major} +b=${major}`;
}

/** Return a plane of a projection; `unit` is what 1 of its coordinates is in numbers of proj4. */
export function project(text: string, kind: Plane["kind"], units: string, unit: number): Plane | null {
  let found: { forward(at: Pair): number[]; inverse(at: Pair): number[] };
  try {
    found = proj4(text);
  } catch {
    return null;
  }
  const safe = (run: (at: Pair) => number[], at: Pair): Pair => {
    try {
      const [x, y] = run(at);
      return [x, y];
    } catch {
      return [NaN, NaN]; // a place that the projection does not show
    }
  };
  return {
    kind,
    units,
    fromLonLat: (lon, lat) => {
      const [x, y] = safe((at) => found.forward(at), [lon, lat]);
      return [x / unit, y / unit];
    },
    toLonLat: (x, y) => safe((at) => found.inverse(at), [x * unit, y * unit]),
  };
}
