/** Facts that only Python finds, from the file that `virtualstack report CUBE -o NAME.json` wrote. */

import { EmbeddedFacts, type Embedded, type Kinds, type Options, type Verified, type Written } from "./facts";

const ANEW = "Write it anew: virtualstack report CUBE -o NAME.json";

/** State of a source that the file does not hold, or holds twice. */
const NOT_KNOWN = "not known";

export class WrittenFacts extends EmbeddedFacts implements Written {
  readonly made: string;

  private constructor(embedded: Embedded, readonly version: string) {
    super(embedded);
    this.made = embedded.made;
  }

  /** Read a file about a store, of which `timeOf` returns the time of a snapshot, or `null` if there is none. */
  static async load(url: string, timeOf: (snapshot: number) => Promise<number | null>): Promise<WrittenFacts> {
    const name = `The file of facts ${url.replace(/[?#].*$/s, "").replace(/\/\/[^/@]*@/, "//")}`;
    const answer = await fetch(url, { cache: "no-cache" }).catch(() => {
      throw new Error(`${name} cannot be read: its server does not answer, or does not let this page read it (CORS).`);
    });
    if (!answer.ok) throw new Error(`${name} cannot be read: the server answered with status ${answer.status}.`);
    const found: Embedded | null = await answer.json().catch(() => {
      throw new Error(`${name} is no JSON. ${ANEW}`);
    });
    const version = (found?.answers?.["variables?offset=0"] as Kinds["variables"] | undefined)?.version;
    const newest = (found?.answers?.["snapshots?"] as Kinds["snapshots"] | undefined)?.items?.[0];
    if (typeof found?.made !== "string" || typeof found.cubes?.[0]?.url !== "string" || typeof version !== "string" || !newest) {
      throw new Error(`${name} has no facts about a vstack. ${ANEW}`);
    }
    if (newest.time !== (await timeOf(newest.number))) { // a store that does not have it any more has none before it
      throw new Error(`${name} is about another cube, ${found.cubes[0].url}, or about snapshots that this one does not have any more. ${ANEW}`);
    }
    return new WrittenFacts(found, version);
  }

  protected override missing(kind: keyof Kinds, options: Options): string {
    if (kind !== "diff") return `The file of facts does not hold it. ${ANEW}`;
    if (Number(options.after) > Number(this.version)) return `The file of facts is about snapshot ${this.version}, so it does not hold this comparison. ${ANEW}`;
    return `The file of facts holds comparisons of the newest snapshots alone. virtualstack diff CUBE ${options.before} ${options.after} shows this one.`;
  }

  verified(): Promise<Verified> {
    return this.find("", "verified");
  }

  /** Return a function from the URL of a source of the store, which is at a URL here, to its state. */
  async states(store: string): Promise<(url: string) => string> {
    const states = new Map<string, string>();
    let seen = 0;
    let total = 0;
    for (let offset: number | null = 0; offset !== null; ) {
      const page: Kinds["sources"] | null = await this.find("", "sources", { limit: 100, offset }).catch(() => null);
      for (const { url, status } of page?.items ?? []) {
        for (const key of new Set([url, seenFrom(this.embedded.cubes[0].url!, url)])) {
          states.set(key, status === null || (states.get(key) ?? status) !== status ? NOT_KNOWN : status);
        }
      }
      seen += page?.items.length ?? 0;
      total = page?.total ?? total;
      offset = page?.next ?? null;
    }
    const other = seen < total ? NOT_KNOWN : "not verified";
    return (url) => states.get(url) ?? states.get(seenFrom(store, url)) ?? other;
  }
}

/** Return where a URL is, seen from a store on the same server; the file was written where the store may have another URL. */
function seenFrom(store: string, url: string): string {
  const [from, to] = [store.replace(/\/+$/, "").split("/"), url.split("/")];
  let same = 0;
  while (same < from.length && from[same] === to[same]) same += 1;
  return same < 3 ? url : "../".repeat(from.length - same) + to.slice(same).join("/"); // the first three are scheme and host
}
