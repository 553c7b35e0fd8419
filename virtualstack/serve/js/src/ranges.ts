/** Ranges of sources that are asked for at the same time: what is near each other comes with one request. */

import { StorageError } from "./errors.js";
import type { Answer, Client } from "./http.js";

const MAX_GAP_BYTES = 2 ** 15;
const MAX_MERGED_BYTES = 2 ** 20;

interface Wanted {
  offset: number;
  length: number;
  signal?: AbortSignal;
  resolve: (answer: Answer) => void;
  reject: (error: unknown) => void;
}

/** Merges ranges of one object that are asked for before the program waits for something else. */
export class Ranges {
  private readonly wanted = new Map<string, Wanted[]>();

  constructor(private readonly client: Client) {}

  /** Read a range of an object. */
  read(url: string, offset: number, length: number, signal?: AbortSignal): Promise<Answer> {
    return new Promise((resolve, reject) => {
      if (this.wanted.size === 0) setTimeout(() => this.flush());
      const some = this.wanted.get(url);
      const one = { offset, length, signal, resolve, reject };
      if (some) some.push(one);
      else this.wanted.set(url, [one]);
    });
  }

  private flush(): void {
    for (const [url, some] of this.wanted) for (const group of merged(some)) void this.request(url, group);
    this.wanted.clear();
  }

  private async request(url: string, group: Wanted[]): Promise<void> {
    const offset = group[0].offset;
    const length = group.reduce((end, x) => Math.max(end, x.offset + x.length), 0) - offset;
    const controller = new AbortController();
    const giveUp = (): void => {
      if (group.every((x) => x.signal?.aborted)) controller.abort();
    };
    for (const { signal, reject } of group) {
      signal?.addEventListener("abort", () => (reject(signal.reason), giveUp()), { once: true });
    }
    giveUp();
    try {
      const answer = await this.client.read(url, { offset, length, signal: controller.signal });
      for (const x of group) {
        const [begin, end] = [x.offset - offset, x.offset - offset + x.length];
        // a copy, as a small part in a cache would keep all of it in memory
        x.resolve({ ...answer, bytes: group.length === 1 ? answer.bytes : answer.bytes.slice(begin, end) });
      }
    } catch (error) {
      // a range beyond the end of the object must not fail those that are in it
      const isRange = error instanceof StorageError && (error.status === 206 || error.status === 416);
      if (isRange && group.length > 1) for (const x of group) void this.request(url, [x]);
      else for (const x of group) x.reject(error);
    }
  }
}

/** Return groups of ranges, in the order of their offsets. */
function merged(some: Wanted[]): Wanted[][] {
  const groups: Wanted[][] = [];
  let [begin, end] = [0, -Infinity];
  for (const one of some.toSorted((a, b) => a.offset - b.offset)) {
    const stop = one.offset + one.length;
    if (one.offset - end <= MAX_GAP_BYTES && Math.max(end, stop) - begin <= MAX_MERGED_BYTES) {
      groups.at(-1)!.push(one);
      end = Math.max(end, stop);
    } else {
      groups.push([one]);
      [begin, end] = [one.offset, stop];
    }
  }
  return groups;
}
