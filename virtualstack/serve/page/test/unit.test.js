/** Parts of the page that need no browser: `npm test`. */

import assert from "node:assert/strict";
import { dirname, join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const folder = dirname(dirname(fileURLToPath(import.meta.url)));

/** Import a module of the page. */
async function load(name) {
  const alias = Object.fromEntries(["zarrita", "xz-decompress"].map((x) => [x, join(folder, "node_modules", x)]));
  const { outputFiles } = await build({ entryPoints: [join(folder, "src", name)], absWorkingDir: folder, alias, bundle: true, write: false, format: "esm", platform: "node", target: "es2022" });
  return import(`data:text/javascript;base64,${Buffer.from(outputFiles[0].contents).toString("base64")}`);
}

/** Make a store of zarr with one array `v`. */
function storeOf(dtype, values, attributes) {
  const document = {
    zarr_format: 3, node_type: "array", shape: [values.length], data_type: dtype, fill_value: 0, attributes, dimension_names: ["v"],
    chunk_grid: { name: "regular", configuration: { chunk_shape: [values.length] } },
    chunk_key_encoding: { name: "default", configuration: { separator: "/" } },
    codecs: [{ name: "bytes", configuration: { endian: "little" } }],
  };
  return new Map([
    ["/v/zarr.json", new TextEncoder().encode(JSON.stringify(document))],
    ["/v/c/0", new Uint8Array(values.buffer)],
  ]);
}

const live = await load("live.ts");
const texts = async (...store) => {
  const { values, text } = await live.labels(storeOf(...store), "v");
  return Array.from(values, (_, i) => text(i));
};

test("labels are the numbers of the coordinate, to the last digit", async () => {
  assert.deepEqual(await texts("int8", Int8Array.of(0, 127, -128, -1), { _Unsigned: "true" }), ["0", "127", "128", "255"]);
  assert.deepEqual(await texts("int32", Int32Array.of(1234567891, -5), {}), ["1234567891", "-5"]);
  assert.deepEqual(await texts("int64", BigInt64Array.of(2n ** 60n + 1n, -3n), { units: "1" }), ["1152921504606846977", "-3"]);
  assert.deepEqual(await texts("int64", BigInt64Array.of(-1n), { _Unsigned: "true" }), ["18446744073709551615"]);
  assert.deepEqual(await texts("float64", Float64Array.of(0.1 + 0.2, 47.5), { units: "degrees_north" }), ["0.3 °N", "47.5 °N"]);
});

test("labels of times are dates in UTC", async () => {
  const hours = (units, ...values) => texts("float64", Float64Array.from(values), { units });
  assert.deepEqual(await hours("hours since 2000-01-01 00:00:00 +02:00", 0, 2), ["1999-12-31 22:00", "2000-01-01"]);
  assert.deepEqual(await hours("hours since 2000-01-01T00:00:00-0530", 0), ["2000-01-01 05:30"]);
  assert.deepEqual(await hours("hours since 2000-01-01 06:00:00.0 UTC", 1), ["2000-01-01 07:00"]);
  assert.deepEqual(await hours("hours since 2000-01-01 00:00 in Paris", 1), ["1 hours since 2000-01-01 00:00 in Paris"]);
  assert.deepEqual(await hours("microseconds since 1970-01-01", 36e8), ["1970-01-01 01:00"]);
  assert.deepEqual(await hours("minutes since 1970-01-01", 61), ["1970-01-01 01:01"]);
  const nanoseconds = BigInt64Array.of(BigInt(Date.UTC(2020, 1, 3, 4, 5)) * 1_000_000n, -(2n ** 63n));
  assert.deepEqual(await texts("int64", nanoseconds, { units: "nanoseconds since 1970-01-01", calendar: "proleptic_gregorian" }), ["2020-02-03 04:05", "no value"]);
});

test("dates of all calendars are those of cftime", async () => {
  const { dates } = await load("calendar.ts");
  const wanted = [
    ["days since 1850-01-01", "360_day", 59.5, "1850-02-30 12:00"],
    ["days since 1850-01-01", "noleap", 730, "1852-01-01"],
    ["hours since 2000-02-28", "366_day", 24, "2000-02-29"],
    ["days since 2000-02-28", "noleap", 1, "2000-03-01"],
    ["days since 1582-10-04", "standard", 1, "1582-10-15"],
    ["days since 1582-10-04", "proleptic_gregorian", 1, "1582-10-05"],
    ["days since 1582-10-04", "julian", 1, "1582-10-05"],
    ["days since 0001-01-01", "standard", 730000, "1999-09-02"],
    ["days since 0001-01-01", "proleptic_gregorian", 730000, "1999-09-04"],
    ["days since 0001-01-01", "julian", 730000.25, "1999-08-20 06:00"],
    ["hours since 1900-01-01", "gregorian", 1e6, "2014-01-29 16:00"],
    ["days since 2000-01-01", "julian", -400000, "0904-11-10"],
    ["days since 2000-01-01", "noleap", -0.5, "1999-12-31 12:00"],
    ["seconds since 1970-01-01", "standard", 1e10, "2286-11-20 17:46"],
  ];
  assert.deepEqual(wanted.map(([units, calendar, x]) => dates(units, calendar)(x)), wanted.map((x) => x[3]));
  assert.equal(dates("days since 2000-01-01", "none"), null);
});

const IN_FEET = 'PROJCS["NAD83 / New York Long Island (ftUS)",GEOGCS["NAD83",DATUM["North_American_Datum_1983",SPHEROID["GRS 1980",6378137,298.257222101]],PRIMEM["Greenwich",0],UNIT["degree",0.0174532925199433]],PROJECTION["Lambert_Conformal_Conic_2SP"],PARAMETER["latitude_of_origin",40.1666666666667],PARAMETER["central_meridian",-74],PARAMETER["standard_parallel_1",41.0333333333333],PARAMETER["standard_parallel_2",40.6666666666667],PARAMETER["false_easting",984250],PARAMETER["false_northing",0],UNIT["US survey foot",0.304800609601219],AXIS["Easting",EAST],AXIS["Northing",NORTH]]';

test("grid mappings are projected as PROJ does", async () => {
  const { definition, project } = await load("crs.ts");
  const wanted = [
    [{ grid_mapping_name: "rotated_latitude_longitude", grid_north_pole_longitude: -162, grid_north_pole_latitude: 39.25, earth_radius: 6371229 }, [10, 50], [-5.13264479951619, -0.472428087827300]],
    [{ grid_mapping_name: "lambert_conformal_conic", standard_parallel: [30, 60], latitude_of_projection_origin: 48, longitude_of_central_meridian: 10, earth_radius: 6371229 }, [0, 50], [-690432.1480828995, 258306.23525682787]],
    [{ grid_mapping_name: "polar_stereographic", standard_parallel: 70, latitude_of_projection_origin: 90, straight_vertical_longitude_from_pole: -45, semi_major_axis: 6378273, semi_minor_axis: 6356889.449 }, [0, 70], [1547131.1244912106, -1547131.124491211]],
    [{ grid_mapping_name: "polar_stereographic", standard_parallel: -71, straight_vertical_longitude_from_pole: 0, semi_major_axis: 6378273, semi_minor_axis: 6356889.449 }, [30, -70], [1097270.27814649, 1900527.8713849552]],
    [{"grid_mapping_name": "transverse_mercator", "latitude_of_projection_origin": 0.0, "longitude_of_central_meridian": 9.0, "scale_factor_at_central_meridian": 0.9996, "false_easting": 500000.0, "false_northing": 0.0, "semi_major_axis": 6378137.0, "inverse_flattening": 298.257223563}, [10.4, 47.8], [604835.7052575895, 5295020.364162755]],
    [{"grid_mapping_name": "mercator", "longitude_of_projection_origin": 10.0, "standard_parallel": 20.0, "semi_major_axis": 6378137.0, "inverse_flattening": 298.257223563}, [12, -40], [209294.172619724, -4548457.151506275]],
    [{"grid_mapping_name": "lambert_azimuthal_equal_area", "latitude_of_projection_origin": 52.0, "longitude_of_projection_origin": 10.0, "false_easting": 4321000.0, "false_northing": 3210000.0, "semi_major_axis": 6378137.0, "inverse_flattening": 298.257222101}, [5, 50], [3962799.4509550678, 2999718.853159564]],
    [{"grid_mapping_name": "albers_conical_equal_area", "standard_parallel": [29.5, 45.5], "latitude_of_projection_origin": 23.0, "longitude_of_central_meridian": -96.0, "semi_major_axis": 6378137.0, "inverse_flattening": 298.257222101}, [-100, 40], [-338390.5875508669, 1894100.1400425644]],
    [{"grid_mapping_name": "geostationary", "perspective_point_height": 35785831.0, "longitude_of_projection_origin": 0.0, "sweep_angle_axis": "y", "semi_major_axis": 6378169.0, "semi_minor_axis": 6356583.8}, [20, 45], [1457418.5808184515, 4211689.806267617]],
    [{ crs_wkt: IN_FEET }, [-73.9, 40.7], [308451.53470084065, 59229.20984642272]],
    [{ crs_wkt: IN_FEET, grid_mapping_name: "lambert_conformal_conic", standard_parallel: [41.0333333333333, 40.6666666666667], latitude_of_projection_origin: 40.1666666666667, longitude_of_central_meridian: -74, false_easting: 984250, semi_major_axis: 6378137, inverse_flattening: 298.257222101 }, [-73.9, 40.7], [308451.53470084065, 59229.20984642272]],
    [{"grid_mapping_name": "lambert_conformal_conic", "standard_parallel": 25.0, "latitude_of_projection_origin": 25.0, "longitude_of_central_meridian": -95.0, "earth_radius": 6371229.0}, [-100, 40], [-441546.8791987769, 1696174.1446000328]],
  ];
  for (const [attributes, at, [x, y]] of wanted) {
    const [text, metres] = definition(attributes);
    const plane = project(text, "metres", "m", 1 / metres);
    const found = plane.fromLonLat(...at);
    assert.ok(Math.hypot(found[0] - x, found[1] - y) < 1e-3, `${attributes.grid_mapping_name}: ${found}`);
    const back = plane.toLonLat(...found);
    assert.ok(Math.hypot(back[0] - at[0], back[1] - at[1]) < 1e-6, `${attributes.grid_mapping_name}: ${back}`);
  }
  const far = project(definition({ grid_mapping_name: "geostationary", perspective_point_height: 35786023, longitude_of_projection_origin: -75 })[0], "metres", "m", 1);
  assert.deepEqual(far.fromLonLat(100, 20), [NaN, NaN]);
});

test("fill values of 64 bits are compared exactly", async () => {
  const read = async (dtype, values, attributes) => [...(await (await live.open(storeOf(dtype, values, attributes), "v")).read([[0, values.length]]))];
  const values = BigInt64Array.of(2n ** 62n, 2n ** 62n + 1n, 7n);
  assert.deepEqual(await read("int64", values, { _FillValue: String(2n ** 62n) }), [NaN, 2 ** 62, 7]);
  assert.deepEqual(await read("int64", values, { _FillValue: 7 }), [2 ** 62, 2 ** 62, NaN]);
  assert.deepEqual(await read("uint64", BigUint64Array.of(2n ** 64n - 1n, 1n), { missing_value: [2 ** 64] }), [NaN, 1]); // as JSON.parse rounds it
  assert.deepEqual(await read("int8", Int8Array.of(-1, -2, 3), { _FillValue: -1, _Unsigned: "true" }), [NaN, 254, 3]);
  assert.deepEqual(await read("float32", Float32Array.of(0.1, 2), { _FillValue: 0.1 }), [NaN, 2]);
});

test("chunks of a few arrays are counted at once", async () => {
  const name = (i) => i.toString(16).padStart(24, "0");
  const array = (i) => ({
    dtype: "|u1", shape: [2], chunk_shapes: [1], dimension_names: ["x"], attributes: {}, cf: {}, fill_values: [[0, 1]], bundled: null,
    encodings: [], placements: { pages: [[name(i), 1, 0, 2]], tail: [] }, generation: 0,
  });
  const table = { pages: [], tail: [] };
  const root = { attributes: {}, dimensions: {}, unlimited: [], coordinates: [] };
  const snapshot = {
    vstack_format: 1, number: 0, time: 0, message: null, changes: [], groups: { "": root }, heap: "AA==", segments: table, prefixes: [],
    relocations: [], bundle: null, arrays: Object.fromEntries(Array.from({ length: 60 }, (_, i) => [`/a${i}`, array(i)])),
  };
  const hint = { zarr_format: 3, node_type: "group", attributes: { virtualstack: { format: 1, snapshot: 0 } } };
  let [running, most] = [0, 0];
  globalThis.fetch = async (url) => {
    if (url.endsWith("/zarr.json")) return Response.json(hint);
    if (url.endsWith("/999999999999.json.gz")) return Response.json(snapshot);
    running += 1;
    most = Math.max(most, running);
    await new Promise((resolve) => setTimeout(resolve, 2));
    running -= 1;
    return new Response("", { status: 404 });
  };
  const { StoreFacts } = await load("store.ts");
  const facts = new StoreFacts("https://h/x.vstack/");
  const { items } = await facts.find("x.vstack", "counts");
  assert.equal(items.length, 50);
  assert.ok(items.every((x, i) => x.path === `a${i}` && /there is nothing at/.test(x.error)));
  assert.ok(most <= 4, String(most));
});

test("values have the digits that tell them apart", async () => {
  const { value } = await load("text.ts");
  assert.deepEqual([273.1499938964844, 12.349999999999994, 1.2345678e-5, 5.3e31, 123456789.5, 7, NaN, Infinity].map((x) => value(x)), ["273.15", "12.35", "1.234568e-5", "5.3e+31", "1.234568e+8", "7", "no value", "Infinity"]);
  assert.deepEqual([101325.0041, 101325.0042].map((x) => value(x, 0.005)), ["101325.0041", "101325.0042"]);
  const { tickText } = await load("geometry.ts");
  assert.deepEqual([[4e-21, 1e-21], [-2e7, 1e7], [101325.004, 0.002], [0, 1e-21]].map((x) => tickText(...x)), ["4e−21", "−2e+7", "101,325.004", "0"]);
});

test("classes have a colour each, and their values are those of the variable", async () => {
  const { palette, rangeOf } = await load("colours.ts");
  const values = [...Array(38).keys()];
  const { classes } = palette({ flag_values: values, flag_meanings: values.map((x) => `kind_${x}`).join(" ") }, []);
  assert.equal(new Set(classes.map((x) => x.colour)).size, 38);
  assert.deepEqual(classes[37].text, "kind 37");
  const own = palette({ flag_values: [0, 120, -56], flag_colors: "#000000 #ffff64 #aaf0f0", _Unsigned: "true" }, [], 8);
  assert.deepEqual(own.classes, [{ value: 0, text: "0", colour: "#000000" }, { value: 120, text: "120", colour: "#ffff64" }, { value: 200, text: "200", colour: "#aaf0f0" }]);
  assert.deepEqual(palette({ dtype: "bool" }, [0, 1]).classes.map((x) => x.text), ["false", "true"]);
  assert.deepEqual(palette({ flag_masks: [1, 2], flag_meanings: "cloud snow" }, [0, 3]).masks, [{ mask: 1, value: 1, text: "cloud" }, { mask: 2, value: 2, text: "snow" }]);
  assert.equal(palette({ long_name: "Temperature anomaly" }, [1, 3]).kind, "diverging");
  assert.deepEqual(rangeOf([-3, -1], 0), [-3, 3]);
});

test("an extent has its units once, and longitudes around the earth as they are counted", async () => {
  const extent = async (values, units) => live.extent(await live.labels(storeOf("float64", Float64Array.from(values), { units }), "v"), values.length);
  assert.equal(await extent([0, 180, 358.5], "degrees_east"), "0° to 358.5 °E");
  assert.equal(await extent([-180, 0, 178], "degrees_east"), "180 °W to 178 °E");
  assert.equal(await extent([150, 180, 214], "degrees_east"), "150 °E to 146 °W");
  assert.equal(await extent([5837500, 0, -5312500], "m"), "5837500 to −5312500 m");
  assert.equal(await extent([0, 20], "seconds since 2024-06-01 12:00"), "2024-06-01 12:00:00 to 2024-06-01 12:00:20");
  assert.equal(await extent([0, 60], "seconds since 2024-06-01 12:00"), "2024-06-01 12:00 to 2024-06-01 12:01");
});

test("times beside a counter of steps are the labels", async () => {
  const { labelsOf } = await load("locate.ts");
  const [times, counter] = [storeOf("float64", Float64Array.of(15.5, 45), { units: "days since 2015-01-01" }), storeOf("float64", Float64Array.of(0, 1), { axis: "T" })];
  const cube = { get: async (key) => (key.startsWith("/time_counter") ? counter : times).get(key.replace(/^.time_\w+/, "/v")) };
  const of = (path, attributes, is_coordinate) => ({ path, dims: ["time_counter"], shape: [2], dtype: "float64", attributes, is_coordinate });
  const variables = [of("time_counter", { axis: "T" }, true), of("time_centered", { units: "days since 2015-01-01" }, false)];
  const [labels] = await labelsOf(cube, { dims: ["time_counter"], shape: [2], attributes: {} }, "tos", variables);
  assert.equal(labels.text(0), "2015-01-16 12:00");
});

test("texts of lines of longitude and latitude do not overlap", async () => {
  const { graticule } = await load("geometry.ts");
  const plane = { kind: "metres", units: "m", toLonLat: (x, y) => [x, y], fromLonLat: (x, y) => [x, y] };
  for (const width of [275, 430, 900]) {
    const { texts } = graticule(plane, { x: [128.6554, 128.66089], y: [37.66643, 37.67078] }, width, width);
    assert.ok(texts.length > 2);
    for (const a of texts) {
      for (const b of texts) {
        if (a !== b && Math.abs(a.at[1] - b.at[1]) < 14) assert.ok(a.at[0] > b.at[0] || a.at[0] + 6.8 * a.text.length < b.at[0], `${a.text} ${b.text} ${width}`);
      }
    }
  }
});
