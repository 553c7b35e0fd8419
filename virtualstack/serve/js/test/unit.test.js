/** Parts that need no store: `npm test`. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { deflateSync, gzipSync } from "node:zlib";

import { adler32, crc32, crc32c } from "../dist/checks.js";
import { decodeChunk } from "../dist/codecs/pipeline.js";
import { bzip2, lz4Block, lzf } from "../dist/codecs/streams.js";
import { inflate, parseDocument } from "../dist/documents.js";
import { Client } from "../dist/http.js";
import { fromHalf, parseDtype, toLittleEndian } from "../dist/dtype.js";
import { isPrivate, percentDecode, relocate, urlOf } from "../dist/locations.js";
import { Cache } from "../dist/lru.js";

const bytes = (text) => new TextEncoder().encode(text);

test("checksums are those of their standards", () => {
  assert.equal(crc32(bytes("123456789")), 0xcbf43926);
  assert.equal(crc32c(bytes("1234"), bytes("56789")), 0xe3069283);
  assert.equal(adler32(bytes("Wikipedia")), 0x11e60398);
});

test("relocations are applied in their order, and escape what web servers need", () => {
  const moves = [
    { old: "file:///a/", new: "https://h/", nPrefixes: 1 },
    { old: "https://h/", new: "s3://b/", nPrefixes: 2 },
  ];
  assert.equal(relocate("file:///a/50%#?.nc", 0, moves.slice(0, 1)), "https://h/50%25%23%3F.nc");
  assert.equal(relocate("file:///a/50%#?.nc", 0, moves), "s3://b/50%#?.nc");
  assert.equal(relocate("file:///a/x", 1, moves), "file:///a/x");
  assert.equal(percentDecode("%C3%A9%zz%"), "é%zz%");
});

test("locations that are relative lie below the store or its folder", () => {
  const store = new URL("https://h/d/x.vstack/?key=1");
  assert.equal(urlOf("./.vstack/a", store), "https://h/d/x.vstack/.vstack/a?key=1");
  assert.equal(urlOf("../a b%/ü#.nc", store), "https://h/d/a%20b%25/%C3%BC%23.nc?key=1");
  assert.equal(urlOf("s3://b/a b", store), "https://b.s3.amazonaws.com/a%20b");
  assert.equal(urlOf("https://other.example/a?b=c", store), "https://other.example/a?b=c");
  for (const root of ["https://a.example/", "http://h:80/"]) {
    assert.throws(() => urlOf("../.evil.example/x", new URL(root)), { name: "ForbiddenLocationError" });
  }
  for (const wrong of ["../../a", ".././a", "..//a", "../a\u0000", "../%2e%2e/a", "../a%2f%2e%2e%5ca", "ftp://h/a", "a.nc", "data:,a"]) {
    assert.throws(() => urlOf(wrong, store), { name: "ForbiddenLocationError" }, wrong);
  }
  assert.throws(() => urlOf("https://h/", store, () => "file:///etc/passwd"), { name: "ForbiddenLocationError" });
});

test("hosts of private networks are known by their names", () => {
  const given = ["127.0.0.1", "10.1.2.3", "169.254.169.254", "172.31.0.1", "192.168.0.1", "100.64.0.1", "0.0.0.0", "[::1]", "[fd00::1]", "[fe80::1]", "[::ffff:7f00:1]", "[64:ff9b::a00:1]", "localhost", "a.localhost", "printer", "nas.local", "metadata.google.internal"];
  for (const host of given) assert.ok(isPrivate(host), host);
  for (const host of ["8.8.8.8", "172.32.0.1", "100.128.0.1", "[2606:4700::1111]", "example.com", "local.example.com"]) assert.ok(!isPrivate(host), host);
});

test("nothing is decompressed beyond its limit", async () => {
  const bomb = new Uint8Array(2 ** 20);
  await assert.rejects(inflate(deflateSync(bomb), "deflate", 2 ** 19), RangeError);
  assert.equal((await inflate(deflateSync(bomb), "deflate", 2 ** 20)).length, 2 ** 20);
  const bzip2Zeros = Uint8Array.from(atob("QlpoOTFBWSZTWThXHOUACAhAAMAEAAggADDMBSmmCAbEIB4u5IpwoSBwrjnK"), (x) => x.charCodeAt(0));
  assert.throws(() => bzip2(bzip2Zeros, 1000), /more than 1000 bytes/);
  assert.equal(bzip2(bzip2Zeros, 2 ** 20).length, 2 ** 20);
  assert.throws(() => lzf(Uint8Array.of(0xe0, 255, 0), 100), RangeError);
  assert.throws(() => lz4Block(Uint8Array.of(0x0f, 1, 0, 255, 255), new Uint8Array(10), 0, 10), RangeError);
});

test("documents are gzip members of JSON objects", async () => {
  assert.deepEqual(await parseDocument(gzipSync('{"a": [1]}'), "k"), { a: [1] });
  assert.deepEqual(await parseDocument(bytes('{"a": 1}'), "k"), { a: 1 }); // what fetch has decompressed already
  for (const wrong of [gzipSync("[]"), gzipSync("{"), gzipSync(Uint8Array.of(123, 34, 255, 34, 58, 49, 125)), bytes("\u001f\u008b")]) {
    await assert.rejects(parseDocument(wrong, "k"), { name: "ManifestError" });
  }
  await assert.rejects(parseDocument(gzipSync(`{"a": "${",".repeat(2 ** 23)}"}`), "k"), /not at most/);
});

test("data types of numpy", () => {
  assert.equal(parseDtype([["a", "<i2"], ["", "|V6"], [["title", "b"], ">f8", [2]]]).itemsize, 24);
  const nested = [["a", [["b", ">u2", 2]]]];
  assert.deepEqual([...toLittleEndian(Uint8Array.of(1, 2, 3, 4), parseDtype(nested), parseDtype(nested))], [2, 1, 4, 3]);
  for (const wrong of ["|O8", "<i3", "i4", 7, null, [["a"]], [["a", "string"]], [["a", "|V0", [2 ** 17]]]]) assert.throws(() => parseDtype(wrong));
  const halves = new Float32Array(fromHalf(Uint8Array.of(0, 0x3c, 1, 0, 0, 0xfc, 0, 0x80)).buffer);
  assert.deepEqual([...halves], [1, 2 ** -24, -Infinity, -0]);
});

test("a cache keeps what was used last, and shares what is being read", async () => {
  const cache = new Cache(2);
  const made = [];
  const get = (key) => cache.get(key, async () => made.push(key), () => 1);
  await Promise.all([get("a"), get("a")]);
  await get("b");
  await get("a");
  await get("c");
  await get("a");
  await get("b");
  assert.deepEqual(made, ["a", "b", "c", "b"]);
  await assert.rejects(cache.get("d", async () => Promise.reject(new Error("no")), () => 1));
  assert.equal(await cache.get("d", async () => 4, () => 1), 4);
});

test("a public server does not lead to a private one", async () => {
  const client = new Client(async (url) => {
    const response = new Response("secret");
    Object.defineProperties(response, { redirected: { value: true }, url: { value: url.replace("a.example.com", "10.0.0.1") } });
    return response;
  }, "https://store.example.com");
  await assert.rejects(client.read("https://a.example.com/x", {}), { name: "ForbiddenLocationError" });
  assert.equal((await client.read("https://b.example.com/x", {})).bytes.length, 6);
});

test("frames of Zstandard that do not say their size are bounded by their blocks", async () => {
  const header = [0x28, 0xb5, 0x2f, 0xfd, 0x00, 0x58];
  const block = (last, kind, n, content) => [((last | (kind << 1) | (n << 3)) >>> 0) & 255, (n >> 5) & 255, n >> 13, ...content];
  const u1 = parseDtype("|u1");
  const encoding = { dtype: u1, shape: [23], codecs: [{ name: "zstd", configuration: {} }], strides: [1], packing: null };
  const frame = new Uint8Array([...header, ...block(0, 0, 3, [1, 2, 3]), ...block(1, 1, 20, [7])]);
  assert.deepEqual([...(await decodeChunk(frame, encoding, u1))], [1, 2, 3, ...Array(20).fill(7)]);
  const repeated = Array.from({ length: 4000 }, () => block(0, 1, 2 ** 17, [0])).flat();
  const bomb = new Uint8Array([...header, ...repeated, ...block(1, 1, 1, [0])]);
  await assert.rejects(decodeChunk(bomb, encoding, u1), { name: "ChunkDecodeError", message: /blocks of the frame/ });
  const skipped = [0x50, 0x2a, 0x4d, 0x18, 0, 0, 0, 0];
  await assert.rejects(decodeChunk(new Uint8Array([...skipped, ...bomb]), encoding, u1), { name: "ChunkDecodeError" });
});
