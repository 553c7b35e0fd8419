/** The files and objects that hold the bytes. */

import { useState } from "preact/hooks";
import { useLoaded, Waiting, type Shown } from "../common";
import type { Overview } from "../facts";
import { count, size } from "../text";

const LIMIT = 100;

export function SourcesPanel(props: Shown & { overview: Overview; isReport: boolean }) {
  const [offset, setOffset] = useState(0);
  const sources = useLoaded(() => props.facts.find(props.cube, "sources", { offset, limit: LIMIT }), [offset]);
  return (
    <>
      <h2>Sources</h2>
      <Waiting of={sources}>
        {(found) => (
          <>
            {found.total === 0 && <p class="quiet">No chunk refers to a source.</p>}
            {found.total > 0 && (
              <>
                <p class="note" data-note="verified">
                  Not verified: no record is kept of whether the sources are still what was indexed.
                  {props.overview.kind === "vstack" && <> <code>virtualstack verify {props.overview.url ?? "CUBE"}</code> checks them now.</>}
                </p>
                <Pages offset={offset} n={found.items.length} total={found.total} go={setOffset} />
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
                {found.total > LIMIT && <Pages offset={offset} n={found.items.length} total={found.total} go={setOffset} />}
              </>
            )}
          </>
        )}
      </Waiting>
    </>
  );
}

function Pages({ offset, n, total, go }: { offset: number; n: number; total: number; go: (offset: number) => void }) {
  return (
    <nav class="pages" aria-label="Pages of sources">
      <span data-pages="text">{count(offset + 1)} to {count(offset + n)} of {count(total)}</span>
      {total > n && (
        <>
          <button type="button" disabled={offset === 0} onClick={() => go(Math.max(0, offset - LIMIT))}>Previous</button>
          <button type="button" disabled={offset + n >= total} onClick={() => go(offset + LIMIT)}>Next</button>
        </>
      )}
    </nav>
  );
}
