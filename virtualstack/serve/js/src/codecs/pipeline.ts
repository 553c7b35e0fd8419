/** Stored bytes to the elements of a decoded chunk. */

import { registry } from "zarrita";

import { adler32, crc32, crc32c, integer, type Json, list, product, view } from "../checks.js";
import { inflate } from "../documents.js";
import { bytesOf, cast, checkText, type DType, numbers, parseDtype, toLittleEndian } from "../dtype.js";
import { ChunkDecodeError, UnsupportedFeatureError, VStackError } from "../errors.js";
import { collect } from "../http.js";
import type { CodecJson, Encoding } from "../snapshot.js";
import { bitshuffle } from "./bitshuffle.js";
import { bloscSizes } from "./blosc.js";
import { decodeCf } from "./cf.js";
import { elements, storedSize } from "./elements.js";
import { nbit, scaleOffset } from "./packed.js";
import { bzip2, lz4Blocks, lzf } from "./streams.js";

/** Elements of a decoded chunk in C order: little-endian bytes, or texts of any length. */
export type Elements = Uint8Array | string[];

/** Bytes by which a stream may be longer than the values, for example for checksums. */
const SLACK_BYTES = 2 ** 16;

const ELEMENTS = "virtualstack.elements";

interface State {
  dtype: DType;
  shape: number[];
}

type ArrayStep = (bytes: Uint8Array) => Uint8Array;

/**
 * Decode a chunk to the layout of the array's data type.
 *
 * @param url Location of the source, for errors.
 */
export async function decodeChunk(stored: Uint8Array, encoding: Encoding, target: DType, url?: string): Promise<Elements> {
  let codec = "";
  try {
    const state: State = { dtype: encoding.dtype, shape: encoding.shape };
    const arraySteps: [string, ArrayStep][] = [];
    let at = 0;
    let order: string | null = null; // byte order of the codec before, which `bytes` overrides
    for (; at < encoding.codecs.length; at++) {
      codec = encoding.codecs[at].name;
      const step = arrayStep(encoding.codecs[at], state);
      if (!step) break;
      arraySteps.push([codec, step]);
      order = state.dtype.bigEndian ? ">" : "<";
    }
    const first = encoding.codecs[at]?.name;
    const isText = state.dtype.kind === "string";
    const explicit = first === "bytes" || first === "vlen-utf8" || first === "numcodecs.vlen-utf8";
    const size = isText ? 2 ** 29 : product(state.shape) * state.dtype.itemsize;
    let bytes = stored;
    for (let i = encoding.codecs.length - 1; i >= at + (explicit ? 1 : 0); i--) {
      codec = encoding.codecs[i].name;
      const isInside = i > at && first === ELEMENTS;
      bytes = await decodeBytes(bytes, encoding.codecs[i], isInside ? storedSize(encoding.codecs[at].configuration, size) : size);
    }
    codec = explicit ? first : "bytes";
    if (isText) {
      if (!explicit || first === "bytes") throw new UnsupportedFeatureError("text of any length without the codec vlen-utf8");
      if (arraySteps.length) throw new UnsupportedFeatureError(`text of any length behind the codec ${arraySteps[0][0]}`);
      return texts(bytes, product(encoding.shape));
    }
    if (bytes.length !== size) throw new ChunkDecodeError(`the chunk decodes to ${bytes.length} bytes instead of ${size}`);
    const configuration = explicit ? encoding.codecs[at].configuration : {};
    if (configuration["endian"] !== undefined) order = configuration["endian"] === "big" ? ">" : "<";
    else order ??= state.dtype.bigEndian ? ">" : "<";
    const stored_ = state.dtype.fields ? state.dtype : { ...state.dtype, bigEndian: order === ">" };
    const last = arraySteps.length ? { ...state.dtype, bigEndian: false } : target;
    bytes = toLittleEndian(bytes, stored_, last);
    for (const [name, step] of arraySteps.reverse()) {
      codec = name;
      bytes = step(bytes);
    }
    if (bytes.length !== product(encoding.shape) * target.itemsize) throw new ChunkDecodeError(`the codecs give ${bytes.length} bytes`);
    checkText(bytes, target);
    return bytes;
  } catch (cause) {
    if (cause instanceof VStackError) {
      cause.url ??= url;
      throw cause;
    }
    throw new ChunkDecodeError(`codec '${codec}' cannot decode the chunk: ${cause instanceof Error ? cause.message : cause}`, { url }, { cause });
  }
}

/** Return the step of a codec that turns arrays into arrays, and change the state to what it stores; null for others. */
function arrayStep({ name, configuration: options }: CodecJson, state: State): ArrayStep | null {
  const before = { ...state };
  switch (name) {
    case "transpose": {
      const order = list(options["order"], "order of transpose", (x) => integer(x, "an axis", 0, before.shape.length - 1), before.shape.length);
      state.shape = order.map((i) => before.shape[i]);
      return (bytes) => transpose(bytes, before.shape, order, before.dtype.itemsize);
    }
    case "numcodecs.astype": {
      state.dtype = parseDtype(options["encode_dtype"]);
      const [from, to] = [{ ...state.dtype, bigEndian: false }, { ...before.dtype, bigEndian: false }];
      return (bytes) => bytesOf(cast(numbers(from, bytes), to));
    }
    case "numcodecs.fixedscaleoffset": {
      state.dtype = parseDtype(options["astype"] ?? options["dtype"]);
      const from = state.dtype;
      // numpy computes with float32 in float32: it rounds the parameters, and the result of each step
      const isSingle = from.kind === "f" && from.itemsize === 4;
      const [scale, offset] = ["scale", "offset"].map((x) => (isSingle ? Math.fround(Number(options[x])) : Number(options[x])));
      return (bytes) => {
        const encoded = numbers(from, bytes);
        const work = isSingle ? new Float32Array(encoded.length) : new Float64Array(encoded.length);
        for (let i = 0; i < work.length; i++) {
          work[i] = Number(encoded[i]) / scale;
          work[i] += offset;
        }
        return bytesOf(cast(work, before.dtype));
      };
    }
    case "numcodecs.delta": {
      state.dtype = parseDtype(options["astype"] ?? options["dtype"]);
      const from = state.dtype;
      return (bytes) => {
        const out = cast(numbers(from, bytes), before.dtype);
        // @ts-expect-error numbers and bigints add alike
        for (let i = 1; i < out.length; i++) out[i] += out[i - 1];
        return bytesOf(out);
      };
    }
    case "numcodecs.quantize": {
      state.dtype = parseDtype(options["astype"] ?? options["dtype"]);
      const from = state.dtype;
      return (bytes) => bytesOf(cast(numbers(from, bytes), before.dtype));
    }
    case "numcodecs.bitround":
    case "bitround":
      return (bytes) => bytes;
    default:
      return null;
  }
}

function transpose(bytes: Uint8Array, shape: number[], order: number[], itemsize: number): Uint8Array {
  const out = new Uint8Array(bytes.length);
  const stored = order.map((i) => shape[i]);
  const strides = new Array<number>(shape.length);
  for (let i = shape.length - 1, step = 1; i >= 0; step *= shape[i--]) strides[i] = step;
  const index = new Array<number>(shape.length).fill(0);
  const n = product(shape);
  for (let k = 0; k < n; k++) {
    let to = 0;
    for (let i = 0; i < order.length; i++) to += index[i] * strides[order[i]];
    for (let b = 0; b < itemsize; b++) out[to * itemsize + b] = bytes[k * itemsize + b];
    for (let i = index.length - 1; i >= 0 && ++index[i] === stored[i]; i--) index[i] = 0;
  }
  return out;
}

/** Decode a codec that turns bytes into bytes; `size` is how many bytes the values have. */
async function decodeBytes(bytes: Uint8Array, { name, configuration: options }: CodecJson, size: number): Promise<Uint8Array> {
  const limit = size + SLACK_BYTES;
  switch (name) {
    case "gzip":
    case "numcodecs.gzip":
      return inflate(bytes, "gzip", limit);
    case "zlib":
    case "numcodecs.zlib":
      return inflate(bytes, "deflate", limit);
    case "numcodecs.bz2":
      return bzip2(bytes, limit);
    case "numcodecs.lzma":
      return xz(bytes, options, limit);
    case "numcodecs.shuffle":
      if (bytes.length % integer(options["elementsize"] ?? 4, "elementsize", 1)) throw new RangeError("the bytes are not whole elements");
      return unshuffle(bytes, Number(options["elementsize"] ?? 4));
    case "virtualstack.shuffle":
      return unshuffle(bytes, integer(options["elementsize"], "elementsize", 1));
    case "crc32c":
    case "numcodecs.crc32c":
      return withoutSum(bytes, crc32c, options["location"] ?? "end");
    case "numcodecs.crc32":
      return withoutSum(bytes, crc32, options["location"] ?? "start");
    case "numcodecs.adler32":
      return withoutSum(bytes, adler32, options["location"] ?? "start");
    case "numcodecs.fletcher32":
      return withoutFletcher32(bytes);
    case "virtualstack.lzf":
      return lzf(bytes, limit);
    case "virtualstack.lz4":
      return lz4Blocks(bytes, limit);
    case ELEMENTS:
      return elements(bytes, options, limit);
    case "virtualstack.nbit":
      return nbit(bytes, options, limit);
    case "virtualstack.scaleoffset":
      return scaleOffset(bytes, options, limit);
    case "virtualstack.bitshuffle":
      return bitshuffle(bytes, options, size, limit, (x) => zstd("zstd", {}, x, limit));
    case "blosc":
    case "numcodecs.blosc": {
      const [declared, compressed] = bloscSizes(bytes, "the chunk");
      if (declared > limit || compressed > bytes.length) throw new RangeError(`the frame declares ${declared} bytes, ${compressed} compressed`);
      return declared === 0 ? new Uint8Array(0) : registered(name, options, bytes);
    }
    case "zstd":
    case "numcodecs.zstd":
      return zstd(name, options, bytes, limit);
    case "lz4":
    case "numcodecs.lz4":
      if (bytes.length < 4 || view(bytes).getUint32(0, true) > limit) throw new RangeError("the header declares too many bytes");
      return registered(name, options, bytes);
    default:
      return registered(name, options, bytes);
  }
}

/** Decode with a codec of zarrita's registry, to which an application can add its own. */
async function registered(name: string, configuration: Json, bytes: Uint8Array): Promise<Uint8Array> {
  const entry = await registry.get(name)?.();
  if (!entry) {
    throw new UnsupportedFeatureError(
      `this program has no codec '${name}': add one to the registry of zarrita, or read the store with virtualstack in Python`,
    );
  }
  const codec = entry.fromConfig({ id: name, ...configuration }, { dataType: "uint8", shape: [bytes.length], codecs: [], fillValue: 0 });
  if (codec.kind !== undefined && codec.kind !== "bytes_to_bytes") throw new UnsupportedFeatureError(`the codec '${name}' in this place`);
  return (await codec.decode(bytes)) as Uint8Array;
}

/** Decode Zstandard. A frame need not declare its size; then that of its blocks must not be much too large. */
async function zstd(name: string, configuration: Json, bytes: Uint8Array, limit: number): Promise<Uint8Array> {
  const declared = zstdSize(bytes);
  if (declared !== null && declared > limit) throw new RangeError(`the frame declares ${declared} bytes`);
  if (declared === null && zstdBound(bytes) > limit + ZSTD_SLACK_BYTES) throw new RangeError(`blocks of the frame may have more than ${limit + ZSTD_SLACK_BYTES} bytes`);
  return registered(name, configuration, bytes);
}

/** Bytes by which blocks of Zstandard may seem longer than the values: a compressed block does not say its size. */
const ZSTD_SLACK_BYTES = 2 ** 26;
const ZSTD_BLOCK_BYTES = 2 ** 17;

/** Return how many bytes the blocks of all frames have at most (RFC 8878, 3.1.1). */
function zstdBound(bytes: Uint8Array): number {
  const data = view(bytes);
  let bound = 0;
  for (let at = 0; at + 6 <= bytes.length; ) {
    const magic = data.getUint32(at, true);
    if (magic >>> 4 === 0x184d2a5) {
      at += 8 + (at + 8 <= bytes.length ? data.getUint32(at + 4, true) : 0); // a frame to skip
      continue;
    }
    if (magic !== 0xfd2fb528) return bound; // the decoder says what is wrong
    const descriptor = bytes[at + 4];
    const single = (descriptor >> 5) & 1;
    at += 5 + (single ? 0 : 1) + [0, 1, 2, 4][descriptor & 3] + [single, 2, 4, 8][descriptor >> 6];
    for (let isLast = false; !isLast && at + 3 <= bytes.length; ) {
      const header = bytes[at] | (bytes[at + 1] << 8) | (bytes[at + 2] << 16);
      const [kind, length] = [(header >> 1) & 3, header >> 3];
      isLast = (header & 1) === 1;
      bound += kind === 2 ? ZSTD_BLOCK_BYTES : length;
      at += 3 + (kind === 1 ? 1 : length);
    }
    at += (descriptor >> 2) & 1 ? 4 : 0;
  }
  return bound;
}

/** Return the size that a frame of Zstandard declares, or null. */
function zstdSize(bytes: Uint8Array): number | null {
  if (bytes.length < 14 || view(bytes).getUint32(0, true) !== 0xfd2fb528) return null;
  const descriptor = bytes[4];
  const single = (descriptor >> 5) & 1;
  const flag = descriptor >> 6;
  const at = 5 + (single ? 0 : 1) + [0, 1, 2, 4][descriptor & 3];
  if (flag === 0) return single ? bytes[at] : null;
  if (flag === 1) return view(bytes).getUint16(at, true) + 256;
  return flag === 2 ? view(bytes).getUint32(at, true) : Number(view(bytes).getBigUint64(at, true));
}

type Xz = typeof import("xz-decompress");

async function xz(bytes: Uint8Array, options: Json, limit: number): Promise<Uint8Array> {
  if ((options["format"] ?? 1) !== 1) throw new UnsupportedFeatureError("numcodecs.lzma in another format than XZ");
  const loaded = (await import("xz-decompress")) as Xz & { default?: Xz };
  const { XzReadableStream } = loaded.default ?? loaded; // a CommonJS module, which bundlers and node import differently
  const stream = new XzReadableStream(new Blob([bytes as BlobPart]).stream());
  return collect(stream, limit, () => new RangeError(`more than ${limit} bytes`));
}

/** Undo the shuffle filter; bytes after the last whole element stay where they are. */
function unshuffle(bytes: Uint8Array, size: number): Uint8Array {
  const out = new Uint8Array(bytes.length);
  const n = Math.floor(bytes.length / size);
  if (n > 0) for (let b = 0; b < size; b++) for (let i = 0; i < n; i++) out[i * size + b] = bytes[b * n + i];
  out.set(bytes.subarray(n * size), n * size);
  return out;
}

function withoutSum(bytes: Uint8Array, sum: (x: Uint8Array) => number, location: unknown): Uint8Array {
  if (bytes.length < 4) throw new RangeError("there is no checksum");
  const atEnd = location === "end";
  const rest = atEnd ? bytes.subarray(0, -4) : bytes.subarray(4);
  if (sum(rest) !== view(bytes).getUint32(atEnd ? bytes.length - 4 : 0, true)) throw new RangeError("the checksum is wrong");
  return rest;
}

/** Check and remove the checksum of the filter fletcher32 of HDF5. */
function withoutFletcher32(bytes: Uint8Array): Uint8Array {
  if (bytes.length < 4) throw new RangeError("there is no checksum");
  const rest = bytes.subarray(0, -4);
  let [a, b] = [0, 0];
  for (let i = 0; i < rest.length; i += 2) {
    a = (a + (rest[i] << 8) + (rest[i + 1] ?? 0)) % 65535;
    b = (b + a) % 65535;
  }
  const data = view(bytes);
  const [low, high] = [data.getUint16(rest.length, true), data.getUint16(rest.length + 2, true)];
  if (low % 65535 !== a || high % 65535 !== b) throw new RangeError("the checksum is wrong");
  return rest;
}

/** Return the texts of zarr's codec vlen-utf8. */
export function texts(bytes: Uint8Array, n: number): string[] {
  const data = view(bytes);
  if (bytes.length < 4 || data.getUint32(0, true) !== n) throw new RangeError("the chunk has another number of texts than its shape");
  const decoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
  const out = new Array<string>(n);
  let at = 4;
  for (let i = 0; i < n; i++) {
    const length = data.getUint32(at, true);
    at += 4;
    if (at + length > bytes.length) throw new RangeError("a text reaches outside the chunk");
    out[i] = decoder.decode(bytes.subarray(at, at + length));
    at += length;
  }
  return out;
}

/** Turn packed numbers into values. */
export function unpack(packed: Uint8Array, from: DType, to: DType, packing: Json): Uint8Array {
  return bytesOf(decodeCf(numbers(from, packed), from, { ...to, bigEndian: false }, packing));
}

/** Encode texts as zarr's codec vlen-utf8 does. */
export function encodeTexts(values: readonly string[]): Uint8Array {
  const encoder = new TextEncoder();
  const parts = values.map((x) => encoder.encode(x));
  const out = new Uint8Array(4 + parts.reduce((n, x) => n + 4 + x.length, 0));
  const data = view(out);
  data.setUint32(0, values.length, true);
  let at = 4;
  for (const part of parts) {
    data.setUint32(at, part.length, true);
    out.set(part, at + 4);
    at += 4 + part.length;
  }
  return out;
}

