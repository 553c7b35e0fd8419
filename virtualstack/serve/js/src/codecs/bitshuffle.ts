/** The filter bitshuffle of HDF5 (32008), alone or with LZ4 or Zstandard. */

import { integer, type Json, view } from "../checks.js";
import { lz4Block } from "./streams.js";

const TARGET_BYTES = 8192;
const MIN_ELEMENTS = 128;

/** Elements of a block that the filter chooses for elements of a size. */
const defaultBlock = (size: number): number => Math.max(Math.floor(Math.floor(TARGET_BYTES / size) / 8) * 8, MIN_ELEMENTS);

/** Decode a chunk; `size` is how many bytes the values have. */
export async function bitshuffle(
  bytes: Uint8Array,
  options: Json,
  size: number,
  limit: number,
  zstd: (x: Uint8Array) => Promise<Uint8Array>,
): Promise<Uint8Array> {
  const elementSize = integer(options["elementsize"], "elementsize", 1);
  const compressor = options["compressor"] ?? "none";
  if (compressor !== "none" && compressor !== "lz4" && compressor !== "zstd") throw new RangeError(`unknown compressor ${JSON.stringify(compressor)}`);
  let block = integer(options["blocksize"] ?? 0, "blocksize");
  let at = 0;
  let total = bytes.length;
  if (compressor !== "none") {
    total = Number(view(bytes).getBigUint64(0));
    block = Math.floor(view(bytes).getUint32(8) / elementSize);
    at = 12;
  }
  if (total > limit) throw new RangeError(`the header declares ${total} bytes instead of ${size}`);
  if (total % elementSize) throw new RangeError(`${total} bytes are not whole elements of ${elementSize}`);
  block ||= defaultBlock(elementSize);
  if (block % 8) throw new RangeError(`blocks of ${block} elements`);
  const out = new Uint8Array(total);
  const n = Math.floor(total / elementSize);
  const shuffled = new Uint8Array(Math.min(block, n) * elementSize); // a header may name a block that is longer than the chunk
  for (let first = 0; first < n; ) {
    const left = n - first;
    const count = left >= block ? block : left - (left % 8);
    if (count === 0) break;
    const length = count * elementSize;
    let part = bytes.subarray(at, at + length);
    if (compressor === "none") at += length;
    else {
      const stored = view(bytes).getUint32(at);
      const raw = bytes.subarray(at + 4, at + 4 + stored);
      at += 4 + stored;
      if (compressor === "zstd") part = await zstd(raw);
      else part = shuffled.subarray(0, lz4Block(raw, shuffled, 0, length));
    }
    if (part.length !== length) throw new RangeError(`a block has ${part.length} bytes instead of ${length}`);
    unshuffleBits(part, out, first * elementSize, count, elementSize);
    first += count;
  }
  const rest = (n % 8) * elementSize;
  if (at + rest > bytes.length) throw new RangeError("the chunk is cut off");
  out.set(bytes.subarray(at, at + rest), total - rest);
  return out;
}

/** Row r of the bits is bit r of all elements: turn rows into elements. */
function unshuffleBits(part: Uint8Array, out: Uint8Array, at: number, count: number, size: number): void {
  const row = count / 8;
  for (let byte = 0; byte < size; byte++) {
    for (let bit = 0; bit < 8; bit++) {
      const begin = (8 * byte + bit) * row;
      for (let k = 0; k < row; k++) {
        const bits = part[begin + k];
        if (bits === 0) continue;
        for (let e = 0; e < 8; e++) if ((bits >> e) & 1) out[at + (8 * k + e) * size + byte] |= 1 << bit;
      }
    }
  }
}
