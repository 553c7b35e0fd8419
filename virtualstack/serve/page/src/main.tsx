import { render } from "preact";
import { App } from "./app";
import { EmbeddedFacts, type Facts, ServerFacts } from "./facts";

declare const LIVE: boolean;

const place = document.getElementById("page")!;
const embedded = document.getElementById("facts");
const report = embedded ? JSON.parse(embedded.textContent!) : null;

/** Return where the facts come from: the report itself, a vstack that `page.html` names, or a server. */
async function findFacts(): Promise<Facts> {
  if (report) return new EmbeddedFacts(report);
  const base = location.href.replace(/[?#].*$/s, "");
  if (LIVE && place.dataset.store !== undefined) {
    const named = new URLSearchParams(location.search);
    const store = named.get("store") || place.dataset.store;
    const written = named.get("facts") || (named.get("store") ? "" : place.dataset.facts); // which is about its own store
    if (!store) throw new Error("Name a vstack in the address of this page: page.html?store=URL");
    const { StoreFacts } = await import("./store");
    return new StoreFacts(new URL(store, base).href, written ? new URL(written, base).href : null);
  }
  return new ServerFacts(new URL("./", base).href, readCells);
}

const live = LIVE && !report ? () => import("./live") : null;
const readCells = LIVE ? () => import("../../js/src/served") : () => Promise.reject();

findFacts().then(
  (facts) => render(<App facts={facts} made={report?.made ?? null} live={live} />, place),
  (error) => render(<p class="failure" role="alert">{error instanceof Error ? error.message : String(error)}</p>, place),
);
