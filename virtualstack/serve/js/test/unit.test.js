/** Parts that need no store: `npm test`. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { deflateSync, gzipSync } from "node:zlib";

import { attributeToJson } from "../dist/index.js";
import { attribute, Heap } from "../dist/attributes.js";
import { adler32, crc32, crc32c } from "../dist/checks.js";
import { bitshuffle } from "../dist/codecs/bitshuffle.js";
import { decodeChunk } from "../dist/codecs/pipeline.js";
import { bzip2, lz4Block, lzf } from "../dist/codecs/streams.js";
import { inflate, parseDocument } from "../dist/documents.js";
import { Client } from "../dist/http.js";
import { fromHalf, parseDtype, toLittleEndian } from "../dist/dtype.js";
import { isPrivate, percentDecode, relocate, urlOf } from "../dist/locations.js";
import { Cache } from "../dist/lru.js";
import { Ranges } from "../dist/ranges.js";

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
  const given = ["127.0.0.1", "10.1.2.3", "169.254.169.254", "172.31.0.1", "192.168.0.1", "100.64.0.1", "0.0.0.0", "[::1]", "[fd00::1]", "[fe80::1]", "[::ffff:7f00:1]", "[64:ff9b::a00:1]", "[2002:a00:1::]", "[2001:db8::1]", "[3fff::1]", "[ff02::1]", "168.63.129.16", "198.51.100.7", "203.0.113.9", "255.255.255.255", "localhost", "a.localhost", "printer", "nas.local", "metadata.google.internal"];
  for (const host of given) assert.ok(isPrivate(host), host);
  for (const host of ["8.8.8.8", "172.32.0.1", "100.128.0.1", "[2606:4700::1111]", "[64:ff9b::808:808]", "[::ffff:808:808]", "1.1.1.1", "example.com", "local.example.com"]) assert.ok(!isPrivate(host), host);
});

test("JSON that is too deep is a typed error", async () => {
  const deep = (n, inner = "") => new TextEncoder().encode(`{"a": "${"[".repeat(2000)}\\"[", "b": ${"[".repeat(n)}${inner}${"]".repeat(n)}}`);
  await assert.rejects(parseDocument(deep(1024), "x"), { name: "ManifestError" });
  await assert.rejects(parseDocument(deep(1_000_000), "x"), { name: "ManifestError" });
  assert.equal((await parseDocument(deep(1023), "x"))["b"].length, 1);
});

test("attributes of too many axes are a typed error", () => {
  const ones = (n) => Array(n).fill(1);
  const kinds = (n) => [{ array: ["<f4", ones(n), [0, 4]] }, { strings: [ones(n), ["a"]] }, { scalar: [[["a", "<f4", ones(n)]], [], [0, 4]] }];
  for (const value of kinds(20_000)) assert.throws(() => attribute(value, new Heap(new Uint8Array(4))), { name: "ManifestError" });
  for (const value of kinds(64)) assert.ok(attribute(value, new Heap(new Uint8Array(4))));
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
  }, new URL("https://store.example.com/"));
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

test("headers of the caller go to URLs below the store alone", async () => {
  const got = [];
  const send = async (url, { headers, redirect }) => {
    if (headers.Authorization) got.push(url);
    assert.equal(redirect, headers.Authorization ? "error" : "follow");
    return new Response("x");
  };
  const client = new Client(send, new URL("https://h/a/x.vstack/"), { Authorization: "Bearer 1" });
  const own = ["https://h/a/x.vstack/.vstack/zarr.json", "https://h/a/x.vstack/b%20c%25?q=%2e"];
  const others = [
    "https://h/a/b.nc", "https://h/a/x.vstack", "https://h/a/x.vstack2/b", "https://h/", "https://h:444/a/x.vstack/b", "http://h/a/x.vstack/b",
    "https://other/a/x.vstack/b", "https://h/a/x.vstack/../b", "https://h/a/x.vstack/%2E%2e/b", "https://h/a/x.vstack/..%2fb", "https://h/a/x.vstack/..%5Cb", "https://h/a/x.vstack/%252e%2e%2fb",
  ];
  for (const url of [...own, ...others]) await client.read(url, {});
  assert.deepEqual(got, own);
  await client.read("https://h/?list-type=2", { isOwn: true });
  assert.equal(got.length, 3);
});

test("who gives up does not fail others who wait for the same value", async () => {
  const cache = new Cache(100);
  const signals = [];
  const make = (signal) => new Promise((resolve, reject) => {
    signals.push(signal);
    signal.addEventListener("abort", () => reject(signal.reason));
    setTimeout(() => resolve(7), 20);
  });
  const get = (signal) => cache.get("a", make, () => 1, signal);
  for (const reason of [undefined, "a text", new DOMException("late", "TimeoutError")]) {
    const [first, second] = [new AbortController(), new AbortController()];
    const jobs = [get(first.signal), get(second.signal), get(second.signal)];
    first.abort(reason);
    await assert.rejects(jobs[0], (error) => error === first.signal.reason);
    assert.equal(await jobs[1], 7);
    assert.equal(await jobs[2], 7);
    cache.kept.clear();
  }
  assert.equal(signals.length, 3);
  const [first, second] = [new AbortController(), new AbortController()];
  const settled = Promise.allSettled([get(first.signal), get(second.signal)]);
  first.abort();
  assert.ok(!signals[3].aborted);
  second.abort();
  assert.ok(signals[3].aborted); // nobody wants it any more
  assert.equal(await get(), 7); // and whoever asks next begins again
  assert.equal(signals.length, 5);
  assert.deepEqual((await settled).map((x) => x.reason?.name), ["AbortError", "AbortError"]);
  await assert.rejects(get(AbortSignal.abort()), { name: "AbortError" });
});

const FILE = Uint8Array.from({ length: 100 }, (_, i) => i);

/** Answer ranges of a file of 100 bytes as web servers do. */
const serve = async (url, { headers }) => {
  const [begin, end] = /(\d+)-(\d+)/.exec(headers.Range).slice(1).map(Number);
  if (begin >= FILE.length) return new Response("", { status: 416 });
  const part = FILE.slice(begin, end + 1);
  return new Response(part, { status: 206, headers: { "Content-Range": `bytes ${begin}-${begin + part.length - 1}/${FILE.length}` } });
};

test("a range outside of a file does not fail those near it", async () => {
  let n = 0;
  const ranges = new Ranges(new Client((...x) => (n++, serve(...x)), new URL("https://h/")));
  const wanted = [[0, 10], [95, 10], [90, 5], [200, 1]];
  const found = await Promise.allSettled(wanted.map(([offset, length]) => ranges.read("https://h/a", offset, length)));
  assert.deepEqual(found.map((x) => x.status), ["fulfilled", "rejected", "fulfilled", "rejected"]);
  assert.deepEqual([...found[0].value.bytes, ...found[2].value.bytes], [...FILE.slice(0, 10), ...FILE.slice(90, 95)]);
  assert.deepEqual(found.flatMap((x) => x.reason?.status ?? []), [206, 416]);
  assert.equal(n, 5);
});

test("very many ranges come with one request", async () => {
  const ranges = new Ranges(new Client(serve, new URL("https://h/")));
  const found = await Promise.all(Array.from({ length: 150_000 }, (_, i) => ranges.read("https://h/a", i % 100, 1)));
  assert.ok(found.every((x, i) => x.bytes[0] === i % 100));
});

test("attributes with many bytes are shown", () => {
  const found = attributeToJson({ a: Uint8Array.from({ length: 1_000_000 }, (_, i) => i % 251) });
  assert.equal(found.a, Buffer.from(Uint8Array.from({ length: 1_000_000 }, (_, i) => i % 251)).toString("base64"));
});

test("no more memory is taken than a chunk needs, whatever a header says", async () => {
  const allocated = [];
  const plain = globalThis.Uint8Array;
  globalThis.Uint8Array = new Proxy(plain, {
    construct(target, given, made) {
      if (typeof given[0] === "number") allocated.push(given[0]);
      return Reflect.construct(target, given, made);
    },
  });
  try {
    const header = [0, 0, 0, 0, 0, 0, 0, 64, 0xff, 0xff, 0xff, 0xc0];
    const stream = plain.from([...header, 0, 0, 0, 1, 0]);
    await assert.rejects(bitshuffle(stream, { elementsize: 8, compressor: "lz4" }, 64, 100, null));
    assert.deepEqual([...(await bitshuffle(plain.of(1, 2, 3), { elementsize: 1, blocksize: 2 ** 40 }, 64, 100, null))], [1, 2, 3]);
    await assert.rejects(bitshuffle(plain.of(1, 2, 3), { elementsize: 2 }, 64, 100, null), /not whole elements/);
    await assert.rejects(bitshuffle(stream, { elementsize: 1, compressor: "gzip" }, 64, 100, null), /unknown compressor/);
    assert.equal(lzf(plain.of(1, 7, 8), 2 ** 30).length, 2);
    assert.throws(() => bzip2(plain.of(0x42, 0x5a, 0x68, 0x39), 2 ** 30));
  } finally {
    globalThis.Uint8Array = plain;
  }
  assert.ok(Math.max(...allocated) < 1000, String(allocated));
});

test("elements that are longer than a chunk take no time", async () => {
  const u1 = parseDtype("|u1");
  const encoding = { dtype: u1, shape: [3], codecs: [{ name: "virtualstack.shuffle", configuration: { elementsize: 2 ** 52 } }], strides: [1], packing: null };
  assert.deepEqual([...(await decodeChunk(Uint8Array.of(1, 2, 3), encoding, u1))], [1, 2, 3]);
  for (const codec of ["nbit", "scaleoffset"]) {
    const parameters = { nbit: [8, 0, 2 ** 32 - 1, 1, 4, 0, 1, 0], scaleoffset: [2, 0, 2 ** 32 - 1, 0, 4, 0, 0, 0, ...Array(12).fill(0)] }[codec];
    const one = { ...encoding, codecs: [{ name: `virtualstack.${codec}`, configuration: { values: parameters } }] };
    await assert.rejects(decodeChunk(new Uint8Array(30), one, u1), { name: "ChunkDecodeError", message: /declare 17179869180 bytes/ });
  }
});
