/** The files and objects that hold the bytes. */

import { useRef, useState } from "preact/hooks";
import { Guard, useLoaded, Waiting, type Shown } from "../common";
import type { List, Overview, Source, Verified } from "../facts";
import { count, counted, moment, size } from "../text";

const LIMIT = 100;

export function SourcesPanel(props: Shown & { overview: Overview; isReport: boolean }) {
  const [before, setBefore] = useState<number[]>([]);
  const [offset, setOffset] = useState(0);
  const find = () => Promise.all([props.facts.find(props.cube, "sources", { offset, limit: LIMIT }), props.facts.find(props.cube, "verified")]);
  const sources = useLoaded(find, [offset]);
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
        {([found, verified]) => (
          <>
            {found.total === 0 && <p class="quiet">No chunk refers to a source.</p>}
            {found.total > 0 && (
              <>
                <Guard key={offset}><VerifiedNote of={verified} overview={props.overview} /></Guard>
                <Pages of={found} before={before} go={go} />
                <table class="sources">
                  <thead><tr><th scope="col">Source</th>{verified.found && <th scope="col">State</th>}<th scope="col" class="number">Size</th><th scope="col" class="number">Chunks</th><th scope="col" class="number">Used</th><th scope="col">Variables</th></tr></thead>
                  <tbody>
                    {found.items.map((x) => (
                      <tr key={x.url}>
                        <th scope="row" class="url">{x.url}</th>
                        {verified.found && <td data-label="state"><State of={x.status ?? ""} /></td>}
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

/** States in which a source is not what was indexed, or may not be read. */
const BAD = ["changed", "missing", "unreachable", "different"];

function State({ of }: { of: string }) {
  return <span class={BAD.includes(of) ? "alarm" : ""} data-state={of}>{of}</span>;
}

/** When which snapshot was verified, and what was found. */
function VerifiedNote({ of, overview }: { of: Verified; overview: Overview }) {
  if (of.error) return <p class="failure" role="alert" data-note="verified">What verify found cannot be shown: {of.error}</p>;
  if (!of.found) {
    return (
      <p class="note" data-note="verified">
        Not verified: this page was not told whether the sources are still what was indexed.
        {overview.kind === "vstack" && <> <code>virtualstack verify {overview.url ?? "CUBE"} --json {">"} verified.json</code> checks them, and <code>--verified verified.json</code> of <code>virtualstack serve</code> and <code>virtualstack report</code> shows it.</>}
      </p>
    );
  }
  const { time, snapshot, counts, n_problems, problems, chunks } = of.found;
  const states = (n: Record<string, number>) => Object.entries(n).map(([state, x], i) => <>{i > 0 && ", "}<span data-count={state}>{count(x)} <State of={state} /></span></>);
  const isOther = overview.version !== String(snapshot);
  return (
    <div class="note" data-note="verified">
      <p>Snapshot {snapshot} was verified on {moment(Date.parse(time) / 1000)}: {states(counts)}.</p>
      {isOther && <p>This page shows snapshot {overview.version}, so some sources may not be among those that were verified.</p>}
      {counts.unknown > 0 && <p>Unknown: the store has neither size nor etag nor time of these sources, so a change cannot be detected.</p>}
      {Object.keys(chunks).length > 0 && <p>Chunks compared with their sources: {states(chunks)}.</p>}
      {problems.length > 0 && (
        <details>
          <summary>{counted(n_problems, "source")} with a problem</summary>
          <ul class="problems">
            {problems.map((x, i) => <li key={i}><span class="url">{x.url}</span> <State of={x.status} /><small>{x.reason}</small></li>)}
          </ul>
          {n_problems > problems.length && <p>{count(n_problems - problems.length)} more</p>}
        </details>
      )}
    </div>
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
