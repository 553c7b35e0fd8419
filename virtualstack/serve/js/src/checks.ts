/** Checks of what a store says, and checksums. */

import { ManifestError } from "./errors.js";

export type Json = Record<string, unknown>;

/** Return an integer within limits, or raise an error that says what it is. */
export function integer(value: unknown, what: string, min = 0, max = Number.MAX_SAFE_INTEGER): number {
  if (typeof value !== "number" || !Number.isSafeInteger(value) || value < min || value > max) {
    throw new ManifestError(`the store is damaged: ${what} is ${show(value)}, not an integer from ${min} to ${max}`);
  }
  return value;
}

export function text(value: unknown, what: string): string {
  if (typeof value !== "string") throw new ManifestError(`the store is damaged: ${what} is ${show(value)}, not text`);
  return value;
}

export function object(value: unknown, what: string): Json {
  if (typeof value !== "object" || value === null || Array.isArray(value)) {
    throw new ManifestError(`the store is damaged: ${what} is ${show(value)}, not an object`);
  }
  return value as Json;
}

/** Return a list, each of whose items passes a check. */
export function list<T>(value: unknown, what: string, item: (x: unknown, what: string) => T, length?: number): T[] {
  if (!Array.isArray(value) || (length !== undefined && value.length !== length)) {
    const wanted = length === undefined ? "a list" : `a list of ${length} items`;
    throw new ManifestError(`the store is damaged: ${what} is ${show(value)}, not ${wanted}`);
  }
  return value.map((x) => item(x, what));
}

export function orNull<T>(value: unknown, what: string, check: (x: unknown, what: string) => T): T | null {
  return value === null ? null : check(value, what);
}

export function finite(value: unknown, what: string): number {
  if (typeof value !== "number") throw new ManifestError(`the store is damaged: ${what} is ${show(value)}, not a number`);
  return value;
}

function show(value: unknown): string {
  const shown = JSON.stringify(value) ?? String(value);
  return shown.length > 60 ? `${shown.slice(0, 60)}...` : shown;
}

function table(polynomial: number): Uint32Array {
  return Uint32Array.from({ length: 256 }, (_, n) => {
    for (let k = 0; k < 8; k++) n = n & 1 ? (n >>> 1) ^ polynomial : n >>> 1;
    return n;
  });
}

const CRC32 = table(0xedb88320);
const CRC32C = table(0x82f63b78);

function crc(table: Uint32Array, parts: Uint8Array[]): number {
  let n = 0xffffffff;
  for (const part of parts) for (let i = 0; i < part.length; i++) n = (n >>> 8) ^ table[(n ^ part[i]) & 255];
  return ~n >>> 0;
}

/** Return the CRC-32 of gzip, of parts one after the other. */
export const crc32 = (...parts: Uint8Array[]): number => crc(CRC32, parts);
/** Return the CRC-32C. */
export const crc32c = (...parts: Uint8Array[]): number => crc(CRC32C, parts);

/** Return the adler32 checksum of zlib. */
export function adler32(bytes: Uint8Array): number {
  let a = 1;
  let b = 0;
  for (let i = 0; i < bytes.length; i++) {
    a = (a + bytes[i]) % 65521;
    b = (b + a) % 65521;
  }
  return ((b << 16) | a) >>> 0;
}

/** Return a view of the bytes, for numbers. */
export const view = (x: Uint8Array): DataView => new DataView(x.buffer, x.byteOffset, x.byteLength);

/** Return the bytes of padded base64. */
export function fromBase64(value: string, what: string): Uint8Array {
  let raw: string;
  try {
    raw = atob(value);
  } catch (cause) {
    throw new ManifestError(`the store is damaged: ${what} is not base64`, {}, { cause });
  }
  return Uint8Array.from(raw, (x) => x.charCodeAt(0));
}

/** Return the product of lengths. */
export const product = (shape: readonly number[]): number => shape.reduce((a, b) => a * b, 1);
