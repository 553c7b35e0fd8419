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
