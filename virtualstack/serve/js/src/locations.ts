/** Where sources are, and which of them a store may name. */

import { ForbiddenLocationError, ManifestError } from "./errors.js";

export interface Relocation {
  old: string;
  new: string;
  nPrefixes: number;
}

const MAX_CHARACTERS = 8192;
const WEB = /^https?:\/\//i;

/** Return a location after relocations. */
export function relocate(location: string, prefix: number, relocations: readonly Relocation[]): string {
  for (const { old, new: now, nPrefixes } of relocations) {
    if (prefix >= nPrefixes || !location.startsWith(old)) continue;
    let rest = location.slice(old.length);
    if (WEB.test(now) && !WEB.test(old)) rest = rest.replace(/[%#?]/g, (x) => ESCAPES[x]);
    else if (WEB.test(old) && !WEB.test(now)) rest = percentDecode(rest);
    location = now + rest;
    if (location.length > MAX_CHARACTERS) throw new ManifestError(`a relocated location has more than ${MAX_CHARACTERS} characters`);
  }
  return location;
}

const ESCAPES: Record<string, string> = { "%": "%25", "#": "%23", "?": "%3F" };

/** Decode `%41` and the like as UTF-8, and leave all else. */
export function percentDecode(value: string): string {
  return value.replace(/(?:%[0-9a-fA-F]{2})+/g, (run) => {
    const bytes = Uint8Array.from(run.slice(1).split("%"), (x) => Number.parseInt(x, 16));
    return new TextDecoder("utf-8", { ignoreBOM: true }).decode(bytes);
  });
}

export const isRelative = (location: string): boolean => location.startsWith("./") || location.startsWith("../");
export const isWeb = (location: string): boolean => WEB.test(location);
export const scheme = (location: string): string => /^([a-z][a-z0-9+.-]*):\/\//i.exec(location)?.[1].toLowerCase() ?? "";

/** What the author of a page or program says: the URL of a source, or undefined for the URL that this package finds. */
export type Resolve = (location: string) => string | undefined;

/**
 * Return the URL that is requested for a location.
 *
 * @param location Location after relocations.
 * @param store URL of the store, which ends in a slash.
 * @param resolve What the caller says about it; a URL that it returns is allowed.
 */
export function urlOf(location: string, store: URL, resolve?: Resolve): string {
  const given = resolve?.(location);
  if (given !== undefined) {
    const url = parseUrl(given, location);
    if (!WEB.test(url.href)) throw new ForbiddenLocationError(`'${location}' resolves to '${given}', which is no web server`, { url: location });
    return url.href;
  }
  if (isRelative(location)) return relativeUrl(location, store);
  const url = parseUrl(publicUrl(location), location);
  if (!WEB.test(url.href)) {
    throw new ForbiddenLocationError(
      `'${location}' is not on a web server, so it cannot be fetched: give 'resolve', which returns its URL`,
      { url: location },
    );
  }
  if (url.username || url.password) throw new ForbiddenLocationError("a location has credentials", { url: url.host });
  if (url.origin !== store.origin && isPrivate(url.hostname)) {
    throw new ForbiddenLocationError(
      `'${location}' is in a private network, and the store does not come from there: give 'resolve' to allow it`,
      { url: location },
    );
  }
  return url.href;
}

function parseUrl(url: string, location: string): URL {
  if (!URL.canParse(url)) throw new ForbiddenLocationError(`'${location}' is not a URL`, { url: location });
  return new URL(url);
}

/** Return the public URL of an object of S3 or Google Cloud Storage. */
function publicUrl(location: string): string {
  const match = /^(s3|gs):\/\/([a-z0-9][a-z0-9._-]*)\/(.+)$/.exec(location);
  if (!match) return location;
  const path = escapePath(match[3], location);
  return match[1] === "s3" ? `https://${match[2]}.s3.amazonaws.com/${path}` : `https://storage.googleapis.com/${match[2]}/${path}`;
}

function relativeUrl(location: string, store: URL): string {
  const up = location.startsWith("../");
  if (up && store.pathname === "/") throw new ForbiddenLocationError(`'${location}' is above the root of the server`, { url: location });
  const path = location.slice(up ? 3 : 2);
  for (const form of [path, percentDecode(path)]) {
    const parts = form.split(/[/\\?#]/);
    if (/[\0-\x1f\x7f-\x9f]/.test(form) || parts.some((x) => x === "" || x === "." || x === "..")) {
      throw new ForbiddenLocationError(`'${location}' is not a path inside a folder`, { url: location });
    }
  }
  const folder = up ? store.pathname.replace(/[^/]*\/$/, "") : store.pathname;
  return `${store.origin}${folder}${escapePath(path, location)}${store.search}`;
}

function escapePath(path: string, location: string): string {
  try {
    return path.split("/").map(encodeURIComponent).join("/");
  } catch (cause) {
    throw new ForbiddenLocationError(`'${location}' has characters that no URL has`, { url: location }, { cause });
  }
}

/** Whether a host is on this machine or in a private network, as far as its name says. */
export function isPrivate(host: string): boolean {
  if (host.startsWith("[")) {
    const address = host.slice(1, -1);
    const mapped = /^::(?:ffff:(?:0:)?)?([0-9a-f]{1,4}):([0-9a-f]{1,4})$/.exec(address) ?? /^64:ff9b::([0-9a-f]{1,4}):([0-9a-f]{1,4})$/.exec(address);
    if (mapped) {
      const [a, b] = [Number.parseInt(mapped[1], 16), Number.parseInt(mapped[2], 16)];
      return isPrivateAddress([a >> 8, a & 255, b >> 8, b & 255]);
    }
    return !/^[23]/.test(address) || address.startsWith("2001:db8:");
  }
  const match = /^(\d+)\.(\d+)\.(\d+)\.(\d+)$/.exec(host);
  if (match) return isPrivateAddress(match.slice(1).map(Number));
  const name = host.replace(/\.$/, "");
  return !name.includes(".") || /\.(localhost|local|internal|intranet|lan|home|corp|test|invalid|home\.arpa)$/.test(name);
}

function isPrivateAddress([a, b, c]: number[]): boolean {
  return (
    a === 0 || a === 10 || a === 127 || a >= 224 ||
    (a === 100 && b >= 64 && b < 128) ||
    (a === 169 && b === 254) ||
    (a === 172 && b >= 16 && b < 32) ||
    (a === 192 && b === 168) ||
    (a === 192 && b === 0 && (c === 0 || c === 2)) ||
    (a === 198 && (b === 18 || b === 19))
  );
}
