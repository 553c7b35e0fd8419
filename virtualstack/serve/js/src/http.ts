/** Requests: ranges of objects, with every answer checked. */

import { ForbiddenLocationError, SourceNotFoundError, StorageError } from "./errors.js";
import { isPrivate } from "./locations.js";

export type Fetch = (url: string, init: RequestInit) => Promise<Response>;

/** What a server says about an object; null where it does not say it, or CORS hides it. */
export interface Answer {
  bytes: Uint8Array;
  size: number | null;
  etag: string | null;
  /** Seconds since 1970 (UTC). */
  lastModified: number | null;
}

export interface Request {
  offset?: number;
  /** Bytes from `offset`; without it the whole object is read. */
  length?: number;
  /** Bytes that a whole object may have. */
  limit?: number;
  /** Whether what is at the URL may change: then caches of the browser ask the server again. */
  mayChange?: boolean;
  /** Whether the request gets the headers of the caller: those to URLs below the store get them if this is not said. */
  isOwn?: boolean;
  signal?: AbortSignal;
}

const MAX_REQUESTS = 32;
const REASONS: Record<number, string> = {
  401: "access denied",
  403: "access denied, or there is no such object in a bucket that nobody may list",
};

/** Requests of one reader: at most 32 at the same time. */
export class Client {
  private waiting: (() => void)[] = [];
  private running = 0;

  /**
   * @param send Such as `globalThis.fetch`.
   * @param store URL of the store, which ends in a slash. URLs below it get `headers`.
   * @param headers Headers of the caller, for example with a token.
   */
  constructor(
    private readonly send: Fetch,
    private readonly store: URL,
    private readonly headers: Record<string, string> = {},
  ) {}

  /** Read an object or a range of it; null if there is no such object. */
  async find(url: string, request: Request): Promise<Answer | null> {
    if (this.running >= MAX_REQUESTS) await new Promise<void>((resolve) => this.waiting.push(resolve));
    this.running += 1;
    try {
      return await this.request(url, request);
    } finally {
      this.running -= 1;
      this.waiting.shift()?.();
    }
  }

  /** Read an object or a range of it. */
  async read(url: string, request: Request): Promise<Answer> {
    const found = await this.find(url, request);
    if (found === null) throw new SourceNotFoundError(`there is nothing at '${url}' (HTTP status 404)`, { url, status: 404 });
    return found;
  }

  /** Raise an error if a public server led to a private one: its bytes are not for the values of a stranger's store. */
  private checkRedirect(url: string, response: Response): void {
    if (!response.redirected) return;
    const to = new URL(response.url);
    if (isPrivate(to.hostname) && !isPrivate(new URL(url).hostname) && to.origin !== this.store.origin) {
      throw new ForbiddenLocationError(`'${url}' redirects to '${to.host}', which is in a private network`, { url });
    }
  }

  /** Whether a URL is below the store. Servers may decode escaped slashes and dots, and then it is elsewhere. */
  private isBelow({ origin, pathname }: URL): boolean {
    const { store } = this;
    return origin === store.origin && pathname.startsWith(store.pathname) && !/%(?:2e|2f|5c)/i.test(pathname.slice(store.pathname.length));
  }

  /** Whether a server answers at all, even if it does not let this page see what. */
  async answers(url: string): Promise<boolean> {
    try {
      const response = await this.send(url, { mode: "no-cors", cache: "no-store", credentials: "omit", referrerPolicy: "no-referrer" });
      await response.body?.cancel().catch(() => undefined);
      return true;
    } catch {
      return false;
    }
  }

  private async request(url: string, { offset = 0, length, limit = 2 ** 29, mayChange, isOwn, signal }: Request): Promise<Answer | null> {
    if (length === 0) return { bytes: new Uint8Array(0), size: null, etag: null, lastModified: null };
    const own = (isOwn ?? this.isBelow(new URL(url))) ? this.headers : {};
    const headers: Record<string, string> = { ...own };
    if (length !== undefined) headers["Range"] = `bytes=${offset}-${offset + length - 1}`;
    // Chromium reads ranges of one object one after the other if it may cache them, and could mix versions of it
    const cache: RequestCache = length !== undefined ? "no-store" : mayChange ? "no-cache" : "default";
    const redirect: RequestRedirect = Object.keys(own).length ? "error" : "follow";
    let response: Response;
    try {
      response = await this.send(url, { headers, redirect, cache, credentials: "omit", referrerPolicy: "no-referrer", signal });
    } catch (cause) {
      if (signal?.aborted) throw cause;
      const why = cause instanceof Error ? `${cause.message}${cause.cause instanceof Error ? `: ${cause.cause.message}` : ""}` : cause;
      throw new StorageError(
        `'${url}' cannot be requested: ${why}. A browser says no more if the server does not allow this page (CORS)`,
        { url, status: 0 },
        { cause },
      );
    }
    try {
      this.checkRedirect(url, response);
      if (response.status === 404) return null;
      const wanted = length === undefined ? 200 : 206;
      if (response.status !== wanted) {
        const why = response.status === 200 ? "the server ignores ranges of bytes" : (REASONS[response.status] ?? (response.statusText || "an error"));
        throw new StorageError(`'${url}' answers with HTTP status ${response.status} instead of ${wanted}: ${why}`, {
          url,
          status: response.status,
        });
      }
      const said = /^bytes (\d+)-(\d+)\/(\d+|\*)$/.exec(response.headers.get("content-range") ?? "");
      if (length !== undefined && said && (Number(said[1]) !== offset || Number(said[2]) !== offset + length - 1)) {
        const got = `bytes ${said[1]} to ${said[2]}`;
        throw new StorageError(`'${url}' answers with ${got} instead of ${offset} to ${offset + length - 1}`, { url, status: 206 });
      }
      const bytes = await body(response, length ?? limit, url);
      if (length !== undefined && bytes.length !== length) {
        throw new StorageError(`'${url}' answers with ${bytes.length} bytes instead of ${length}`, { url, status: 206 });
      }
      const modified = Date.parse(response.headers.get("last-modified") ?? "") / 1000;
      return {
        bytes,
        size: length === undefined ? bytes.length : said && said[3] !== "*" ? Number(said[3]) : null,
        etag: response.headers.get("etag"),
        lastModified: Number.isNaN(modified) ? null : modified,
      };
    } finally {
      if (!response.bodyUsed) await response.body?.cancel().catch(() => undefined);
    }
  }
}

/** Read a body that must not have more bytes than a limit. */
async function body(response: Response, limit: number, url: string): Promise<Uint8Array> {
  if (!response.body) return new Uint8Array(await response.arrayBuffer());
  try {
    return await collect(response.body, limit, () => new StorageError(`'${url}' answers with more than ${limit} bytes`, { url }));
  } catch (cause) {
    if (cause instanceof StorageError || (cause instanceof Error && cause.name === "AbortError")) throw cause;
    throw new StorageError(`the answer of '${url}' breaks off: ${cause instanceof Error ? cause.message : cause}`, { url }, { cause });
  }
}

/** Read a stream to its end, or raise an error where it has more bytes than a limit. */
export async function collect(stream: ReadableStream<Uint8Array>, limit: number, tooLong: () => Error): Promise<Uint8Array> {
  const reader = stream.getReader();
  const parts: Uint8Array[] = [];
  let n = 0;
  for (;;) {
    const { done, value } = await reader.read();
    if (done) break;
    n += value.length;
    if (n > limit) {
      await reader.cancel().catch(() => undefined);
      throw tooLong();
    }
    parts.push(value);
  }
  if (parts.length === 1) return parts[0];
  const whole = new Uint8Array(n);
  let at = 0;
  for (const part of parts) {
    whole.set(part, at);
    at += part.length;
  }
  return whole;
}
