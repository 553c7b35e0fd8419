/** Where sources are, and which of them a store may name. */

import { ForbiddenLocationError, ManifestError } from "./errors.js";
import { PRIVATE_HOSTS } from "./private_hosts.js";

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

const { "has a name of a private network": DOMAINS, ...NETWORKS } = PRIVATE_HOSTS;

/** Whether a host of a URL is on this machine or in a private network, as far as its name says. */
export function isPrivate(host: string): boolean {
  const address = host.startsWith("[") ? bitsOf6(host.slice(1, -1)) : bitsOf4(host);
  if (address) return Object.values(NETWORKS).flat().some((network) => contains(network, address));
  const labels = host.replace(/\.$/, "").split(".");
  return labels.length === 1 || DOMAINS.includes(labels[labels.length - 1]);
}

type Address = { bits: bigint; width: number };

function bitsOf4(host: string): Address | null {
  if (!/^\d+\.\d+\.\d+\.\d+$/.test(host)) return null;
  return { bits: host.split(".").reduce((bits, x) => (bits << 8n) | BigInt(x), 0n), width: 32 };
}

/** Return an IPv6 address as URLs spell it; one that stands for an IPv4 address is that address. */
function bitsOf6(host: string): Address {
  const [before, after] = host.split("::").map((x) => (x ? x.split(":") : []));
  const groups = after ? [...before, ...Array(8 - before.length - after.length).fill("0"), ...after] : before;
  const bits = groups.reduce((all, x) => (all << 16n) | BigInt(`0x${x}`), 0n);
  const isInner = bits >> 32n === 0xffffn || bits >> 32n === 0x64ff9bn << 64n;
  return isInner ? { bits: bits & 0xffffffffn, width: 32 } : { bits, width: 128 };
}

function contains(network: string, { bits, width }: Address): boolean {
  const [text, length] = network.split("/");
  const { bits: first, width: own } = bitsOf4(text) ?? bitsOf6(text);
  const shift = BigInt(width - Number(length));
  return own === width && bits >> shift === first >> shift;
}
