/** Decoders of streams that neither browsers nor zarrita have. Each writes at most as many bytes as it is told. */

import { view } from "../checks.js";

/** Decode one block of LZ4 into a part of a buffer; return where it ends. */
export function lz4Block(source: Uint8Array, target: Uint8Array, at: number, end: number): number {
  let i = 0;
  const long = (n: number): number => {
    if (n < 15) return n;
    let more: number;
    do {
      if (i >= source.length) throw new RangeError("the LZ4 block is cut off");
      more = source[i++];
      n += more;
    } while (more === 255);
    return n;
  };
  while (i < source.length) {
    const token = source[i++];
    const literals = long(token >> 4);
    if (i + literals > source.length || at + literals > end) throw new RangeError("literals reach outside the LZ4 block");
    target.set(source.subarray(i, i + literals), at);
    i += literals;
    at += literals;
    if (i >= source.length) break;
    if (i + 2 > source.length) throw new RangeError("the LZ4 block is cut off");
    const distance = source[i] | (source[i + 1] << 8);
    i += 2;
    const length = long(token & 15) + 4;
    at = copyBack(target, at, distance, length, end);
  }
  return at;
}

function copyBack(target: Uint8Array, at: number, distance: number, length: number, end: number): number {
  if (distance === 0 || distance > at || at + length > end) throw new RangeError("a match reaches outside the decoded bytes");
  for (let k = 0; k < length; k++, at++) target[at] = target[at - distance];
  return at;
}

/** Decode the LZ4 filter of HDF5 (32004): blocks with big-endian lengths. */
export function lz4Blocks(source: Uint8Array, limit: number): Uint8Array {
  const data = view(source);
  const size = Number(data.getBigUint64(0));
  const block = data.getUint32(8);
  if (size > limit || (block === 0 && size > 0)) throw new RangeError(`the header declares ${size} bytes in blocks of ${block}`);
  const out = new Uint8Array(size);
  let i = 12;
  for (let at = 0; at < size; ) {
    const end = Math.min(at + block, size);
    const length = data.getUint32(i);
    i += 4;
    if (i + length > source.length) throw new RangeError("the last block is cut off");
    const part = source.subarray(i, i + length);
    i += length;
    if (length === end - at) out.set(part, at);
    else if (lz4Block(part, out, at, end) !== end) throw new RangeError("a block has another size than the header says");
    at = end;
  }
  return out;
}

/** Bytes that one byte of LZF is at most: three bytes are up to 264. */
const LZF_RATIO = 88;

/** Decode the LZF filter of HDF5 (32000), which does not say how long its bytes are. */
export function lzf(source: Uint8Array, limit: number): Uint8Array {
  limit = Math.min(limit, LZF_RATIO * source.length);
  const out = new Uint8Array(limit);
  let at = 0;
  for (let i = 0; i < source.length; ) {
    const control = source[i++];
    if (control < 32) {
      const n = control + 1;
      if (i + n > source.length || at + n > limit) throw new RangeError("literals reach outside the LZF stream");
      out.set(source.subarray(i, i + n), at);
      i += n;
      at += n;
    } else {
      let length = control >> 5;
      if (length === 7) length += source[i++];
      const distance = ((control & 31) << 8) + source[i++] + 1;
      if (i > source.length) throw new RangeError("the LZF stream is cut off");
      at = copyBack(out, at, distance, length + 2, limit);
    }
  }
  return out.subarray(0, at);
}

const MAX_CODE_LENGTH = 20;

/** Decode bzip2, with several streams one after the other. */
export function bzip2(source: Uint8Array, limit: number): Uint8Array {
  let out = new Uint8Array(Math.min(limit, 4 * source.length));
  let end = 0;
  let bit = 0;
  const bits = (n: number): number => {
    if (bit + n > 8 * source.length) throw new RangeError("the bzip2 stream is cut off");
    let found = 0;
    for (; n > 0; n--, bit++) found = found * 2 + ((source[bit >> 3] >> (7 - (bit & 7))) & 1);
    return found;
  };
  const put = (byte: number, n: number): void => {
    if (end + n > limit) throw new RangeError(`the bzip2 stream has more than ${limit} bytes`);
    if (end + n > out.length) {
      const longer = new Uint8Array(Math.min(limit, 2 * (end + n)));
      longer.set(out);
      out = longer;
    }
    out.fill(byte, end, (end += n));
  };
  while (bit < 8 * source.length) {
    if (bits(24) !== 0x425a68) throw new RangeError("this is no bzip2 stream");
    const size = (bits(8) - 48) * 100_000;
    if (size < 100_000 || size > 900_000) throw new RangeError("the bzip2 stream has blocks of an unknown size");
    let combined = 0;
    for (;;) {
      const magic = bits(48);
      const sum = bits(32);
      if (magic === 0x177245385090) {
        if (sum >>> 0 !== combined >>> 0) throw new RangeError("the bzip2 stream has a wrong checksum");
        bit = (bit + 7) & ~7;
        break;
      }
      if (magic !== 0x314159265359) throw new RangeError("the bzip2 stream is damaged");
      const begin = end;
      bzip2Block(bits, size, put);
      let crc = 0xffffffff;
      for (let i = begin; i < end; i++) crc = (crc << 8) ^ BZIP2_CRC[((crc >>> 24) ^ out[i]) & 255];
      if (~crc >>> 0 !== sum >>> 0) throw new RangeError("a bzip2 block has a wrong checksum");
      combined = ((combined << 1) | (combined >>> 31)) ^ sum;
    }
  }
  return out.subarray(0, end);
}

const BZIP2_CRC = Int32Array.from({ length: 256 }, (_, n) => {
  n <<= 24;
  for (let k = 0; k < 8; k++) n = n & 0x80000000 ? (n << 1) ^ 0x04c11db7 : n << 1;
  return n;
});

function bzip2Block(bits: (n: number) => number, size: number, put: (byte: number, n: number) => void): void {
  if (bits(1)) throw new RangeError("randomised bzip2 blocks are not supported");
  const origin = bits(24);
  const symbols: number[] = [];
  const ranges = bits(16);
  for (let i = 0; i < 16; i++) {
    if (!(ranges & (0x8000 >> i))) continue;
    const used = bits(16);
    for (let k = 0; k < 16; k++) if (used & (0x8000 >> k)) symbols.push(16 * i + k);
  }
  const nTables = bits(3);
  const nSelectors = bits(15);
  if (nTables < 2 || nTables > 6 || nSelectors < 1 || symbols.length === 0) throw new RangeError("the bzip2 block is damaged");
  const front = Array.from({ length: nTables }, (_, i) => i);
  const selectors = Array.from({ length: nSelectors }, () => {
    let k = 0;
    while (bits(1)) if (++k >= nTables) throw new RangeError("the bzip2 block is damaged");
    front.unshift(front.splice(k, 1)[0]);
    return front[0];
  });
  const alphabet = symbols.length + 2;
  const decoders = Array.from({ length: nTables }, () => {
    let length = bits(5);
    const lengths = Array.from({ length: alphabet }, () => {
      while (bits(1)) length += bits(1) ? -1 : 1;
      if (length < 1 || length > MAX_CODE_LENGTH) throw new RangeError("the bzip2 block is damaged");
      return length;
    });
    return huffman(lengths, bits);
  });
  const block = new Uint32Array(size);
  const counts = new Uint32Array(257);
  let n = 0;
  let run = 0;
  let place = 1;
  const emit = (byte: number, times: number): void => {
    if (n + times > size) throw new RangeError("the bzip2 block is too long");
    counts[byte + 1] += times;
    for (; times > 0; times--) block[n++] = byte;
  };
  for (let i = 0; ; i++) {
    const group = Math.floor(i / 50);
    if (group >= nSelectors) throw new RangeError("the bzip2 block is damaged");
    const symbol = decoders[selectors[group]]();
    if (symbol < 2) {
      run += place << symbol;
      place *= 2;
      if (run > size) throw new RangeError("the bzip2 block is too long");
      continue;
    }
    if (run) emit(symbols[0], run);
    [run, place] = [0, 1];
    if (symbol === alphabet - 1) break;
    symbols.unshift(symbols.splice(symbol - 1, 1)[0]);
    emit(symbols[0], 1);
  }
  for (let i = 0; i < 256; i++) counts[i + 1] += counts[i];
  for (let i = 0; i < n; i++) block[counts[block[i] & 255]++] |= i << 8;
  if (origin >= n) throw new RangeError("the bzip2 block is damaged");
  let at = block[origin] >>> 8;
  let before = -1;
  let same = 0;
  for (let i = 0; i < n; i++) {
    const byte = block[at] & 255;
    at = block[at] >>> 8;
    if (same === 4) {
      put(before, byte);
      same = 0;
      before = -1;
      continue;
    }
    same = byte === before ? same + 1 : 1;
    before = byte;
    put(byte, 1);
  }
}

function huffman(lengths: number[], bits: (n: number) => number): () => number {
  const ordered = lengths.map((length, symbol) => ({ length, symbol })).sort((a, b) => a.length - b.length || a.symbol - b.symbol);
  const first: number[] = [];
  const counts = new Array<number>(MAX_CODE_LENGTH + 1).fill(0);
  for (const { length } of ordered) counts[length] += 1;
  let code = 0;
  let index = 0;
  const indexes: number[] = [];
  for (let length = 1; length <= MAX_CODE_LENGTH; length++) {
    first[length] = code;
    indexes[length] = index;
    code = (code + counts[length]) * 2;
    index += counts[length];
  }
  return () => {
    let code = 0;
    for (let length = 1; length <= MAX_CODE_LENGTH; length++) {
      code = code * 2 + bits(1);
      const k = code - first[length];
      if (k >= 0 && k < counts[length]) return ordered[indexes[length] + k].symbol;
    }
    throw new RangeError("the bzip2 block is damaged");
  };
}
