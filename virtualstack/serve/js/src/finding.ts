/** Which snapshot is the newest. */

import { MAX_DOCUMENT_BYTES } from "./documents.js";
import { ManifestError, SourceNotFoundError, StorageError } from "./errors.js";
import type { Client } from "./http.js";
import { HINT, parseHint, snapshotKey, snapshotNumber } from "./snapshot.js";

export interface Place {
  /** URL of the store, which ends in a slash. */
  base: URL;
  client: Client;
  /** URL of the bucket that holds it, if the bucket can be listed. */
  bucket?: string;
}

const FOLDER = ".vstack/snapshots/";
const MAX_HINT_BYTES = 2 ** 19;
const MAX_LISTING_BYTES = 2 ** 24;
const MAX_LISTINGS = 1000;
const MAX_PROBED = 1000;
/** How many snapshots may be missing one after the other, before older ones are no longer looked for. */
export const MAX_MISSING = 1000;

/** Return the URL of an object of the store. */
export const objectUrl = (base: URL, key: string): string => `${base.origin}${base.pathname}${key}${base.search}`;

/** Read a snapshot; null if the server says that there is no such object. */
export async function readSnapshot({ base, client }: Place, n: number): Promise<Uint8Array | null> {
  return (await client.find(objectUrl(base, snapshotKey(n)), { limit: MAX_DOCUMENT_BYTES, mayChange: true }))?.bytes ?? null;
}

export interface Newest {
  number: number;
  bytes: Uint8Array;
  /** Key of the object that has the bytes, if it is not that of the snapshot. */
  key?: string;
}

/** Return the newest snapshot: by a listing, or else by the hint, which may carry it, and requests for the next numbers. */
export async function findNewest(place: Place): Promise<Newest> {
  const listed = await list(place, 1);
  if (listed) {
    if (listed.length === 0) throw missing(place);
    const bytes = await readSnapshot(place, listed[0]);
    if (bytes) return { number: listed[0], bytes };
  }
  const hint = await place.client.find(objectUrl(place.base, HINT), { limit: MAX_HINT_BYTES, mayChange: true });
  if (!hint) throw missing(place);
  const { number: first, bytes: carried } = parseHint(hint.bytes);
  let number = first;
  let [bytes, next] = await Promise.all([carried ?? probe(place, number), probe(place, number + 1)]);
  for (let n = 0; next; n += 1) {
    if (n === MAX_PROBED) throw new ManifestError(`'${place.base}' has more than ${MAX_PROBED} snapshots after the one that its hint names: its server may answer every request`);
    [bytes, number] = [next, number + 1];
    next = await probe(place, number + 1);
  }
  if (bytes) return { number, bytes, key: bytes === carried ? HINT : undefined };
  throw new SourceNotFoundError(
    `'${place.base}' has neither snapshot ${first}, which its hint names, nor the next one: give the number of a snapshot`,
    { url: String(place.base), status: 404 },
  );
}

/**
 * Read a snapshot that may not exist.
 *
 * Buckets that nobody may list answer 403 for objects that do not exist. Some web servers do not let pages of other
 * servers see any error; then the browser says no more than that the request failed.
 */
export async function probe(place: Place, n: number): Promise<Uint8Array | null> {
  try {
    return await readSnapshot(place, n);
  } catch (error) {
    if (!(error instanceof StorageError)) throw error;
    if (error.status === 403 || (error.status === 0 && error.url && (await place.client.answers(error.url)))) return null;
    throw error;
  }
}

function missing({ base }: Place): SourceNotFoundError {
  return new SourceNotFoundError(`'${base}' is no vstack: it has no '.vstack/zarr.json', or no snapshot`, { url: String(base), status: 404 });
}

/** Return the numbers of snapshots up to one that is known, newest first; where nothing can be listed, all that may exist. */
export async function listNumbers(place: Place, known: number): Promise<Iterable<number>> {
  return (await list(place, Infinity)) ?? countDown(known);
}

function* countDown(n: number): Generator<number> {
  for (; n >= 0; n -= 1) yield n;
}

/** List snapshots, newest first, as S3 does (ListObjectsV2); null where nothing can be listed. */
async function list(place: Place, n: number): Promise<number[] | null> {
  const bucket = place.bucket === undefined ? bucketOf(place.base) : new URL(place.bucket);
  if (!bucket) return null;
  const root = bucket.pathname.endsWith("/") ? bucket.pathname : `${bucket.pathname}/`;
  if (bucket.origin !== place.base.origin || !place.base.pathname.startsWith(root)) {
    throw new StorageError(`'${place.base}' is not in the bucket '${bucket}'`, { url: String(place.base) });
  }
  const prefix = decodeURIComponent(place.base.pathname.slice(root.length)) + FOLDER;
  const found: number[] = [];
  let token: string | undefined;
  for (let page = 0; page < MAX_LISTINGS; page += 1) {
    const query = new URLSearchParams({ "list-type": "2", prefix, ...(n === 1 ? { "max-keys": "1" } : {}), ...(token ? { "continuation-token": token } : {}) });
    let answer;
    try {
      answer = await place.client.find(`${bucket.origin}${root}?${query}`, { limit: MAX_LISTING_BYTES, mayChange: true, isOwn: true });
    } catch (error) {
      if (error instanceof StorageError && place.bucket === undefined) return null;
      throw error;
    }
    if (!answer) return null;
    const xml = new TextDecoder().decode(answer.bytes);
    for (const match of xml.matchAll(/(\d{12})\.json\.gz<\/Key>/g)) found.push(snapshotNumber(match[1]));
    token = /<NextContinuationToken>([^<]+)</.exec(xml)?.[1].replaceAll("&amp;", "&");
    if (!token || found.length >= n) return found.sort((a, b) => b - a);
  }
  throw new StorageError(`the listing of '${bucket}' does not end: it has more than ${MAX_LISTINGS} pages`, { url: String(bucket) });
}

/** Return the bucket of a URL of Amazon or Google, or null. */
function bucketOf({ hostname, origin, pathname }: URL): URL | null {
  const first = pathname.split("/")[1];
  if (/\.s3[.-][a-z0-9.-]*amazonaws\.com$/.test(hostname)) return new URL(origin);
  if (/^s3[.-][a-z0-9.-]*amazonaws\.com$|^storage\.googleapis\.com$/.test(hostname) && first) return new URL(`${origin}/${first}/`);
  return null;
}
