/** The files and objects that hold the bytes. */

import { useRef, useState } from "preact/hooks";
import { useLoaded, Waiting, type Shown } from "../common";
import type { List, Overview, Source } from "../facts";
import { count, size } from "../text";

const LIMIT = 100;

export function SourcesPanel(props: Shown & { overview: Overview; isReport: boolean }) {
  const [before, setBefore] = useState<number[]>([]);
  const [offset, setOffset] = useState(0);
  const sources = useLoaded(() => props.facts.find(props.cube, "sources", { offset, limit: LIMIT }), [offset]);
  const last = useRef(sources); // is shown until the next page is there, so that its buttons keep the focus
  if (sources.state !== "loading") last.current = sources;
  const go = (to: number, passed: number[]) => {
    if (sources.state === "loading") return;
    setBefore(passed);
    setOffset(to);
  };
  return (
    <>
      <h2>Sources</h2>
      <Waiting of={last.current}>
        {(found) => (
          <>
            {found.total === 0 && <p class="quiet">No chunk refers to a source.</p>}
            {found.total > 0 && (
              <>
                <p class="note" data-note="verified">
                  Not verified: no record is kept of whether the sources are still what was indexed.
                  {props.overview.kind === "vstack" && <> <code>virtualstack verify {props.overview.url ?? "CUBE"}</code> checks them now.</>}
                </p>
                <Pages of={found} before={before} go={go} />
                <table class="sources">
                  <thead><tr><th scope="col">Source</th><th scope="col" class="number">Size</th><th scope="col" class="number">Chunks</th><th scope="col" class="number">Used</th><th scope="col">Variables</th></tr></thead>
                  <tbody>
                    {found.items.map((x) => (
                      <tr key={x.url}>
                        <th scope="row" class="url">{x.url}</th>
                        <td class="number" data-label="size">{x.size === null ? "not known" : size(x.size)}</td>
                        <td class="number" data-label="chunks">{count(x.n_chunks)}</td>
                        <td class="number" data-label="used">{size(x.nbytes)}</td>
                        <td data-label="variables">{x.variables.slice(0, 4).join(", ")}{x.n_variables > 4 && ` and ${x.n_variables - 4} more`}</td>
                      </tr>
                    ))}
                  </tbody>
                </table>
                {found.items.some((x) => x.size !== null && x.nbytes > x.size) && (
                  <p class="quiet small">A chunk that lies in several cells of the grid, or belongs to several variables, is counted for each.</p>
                )}
                {found.total > found.items.length && <Pages of={found} before={before} go={go} />}
              </>
            )}
          </>
        )}
      </Waiting>
    </>
  );
}

/** Buttons to the page before and after; a page of sources with long names has fewer of them than others. */
function Pages({ of, before, go }: { of: List<Source>; before: number[]; go: (offset: number, before: number[]) => void }) {
  const { offset, total, next } = of;
  const n = of.items.length;
  return (
    <nav class="pages" aria-label="Pages of sources">
      <span data-pages="text">{count(offset + 1)} to {count(offset + n)} of {count(total)}</span>
      {total > n && (
        <>
          <button type="button" aria-disabled={!before.length} onClick={() => before.length && go(before[before.length - 1], before.slice(0, -1))}>Previous</button>
          <button type="button" aria-disabled={next === null} onClick={() => next !== null && go(next, [...before, offset])}>Next</button>
        </>
      )}
    </nav>
  );
}
