/** What a store lacks: labels that are late or missing, files that do not fit, and growth. */

import { Stat, useLoaded, Waiting, type Shown } from "../common";
import type { LabelRange } from "../facts";
import { count, counted, moment, size } from "../text";

/** States of files and labels that somebody should look at. */
const BAD = ["quarantined", "masked", "vanished", "late", "missing"];

export function HealthPanel(props: Shown) {
  const health = useLoaded(() => props.facts.find(props.cube, "health"), []);
  return (
    <>
      <h2>Health</h2>
      <Waiting of={health}>
        {(found) => (
          <>
            <p class="quiet">
              Snapshot {found.snapshot}, checked on {moment(found.time)}.
              {found.last_placed !== null && ` The last file was placed on ${moment(found.last_placed)}.`}
            </p>
            <h3>Files</h3>
            <Counts of={found.files} what="files" />
            {found.odd.length > 0 && <ul class="problems" data-list="odd">{found.odd.map((x) => <li key={x}>{x}</li>)}</ul>}
            <h3>Expected labels</h3>
            {found.labels ? <Counts of={found.labels} what="labels" /> : <p class="quiet">The recipe does not say which labels are expected: <code>expected.DIM = {"{"}every = "1h", late = "2h"{"}"}</code>.</p>}
            <Ranges of={found.late} n={found.n_late} state="late" />
            <Ranges of={found.missing} n={found.n_missing} state="missing" />
            <h3>Growth</h3>
            <table data-list="growth">
              <thead><tr><th scope="col">Within</th><th scope="col" class="number">Files</th><th scope="col" class="number">Bytes</th></tr></thead>
              <tbody>
                {found.growth.map((x) => (
                  <tr key={x.days}>
                    <th scope="row">{counted(x.days, "day")}</th>
                    <td class="number" data-label="files">{count(x.n_files)}</td>
                    <td class="number" data-label="bytes">{size(x.n_bytes)}</td>
                  </tr>
                ))}
              </tbody>
            </table>
          </>
        )}
      </Waiting>
    </>
  );
}

function Counts({ of, what }: { of: Record<string, number>; what: string }) {
  return (
    <dl class="stats">
      {Object.entries(of).map(([state, n]) => (
        <Stat key={state} label={state === "there" ? "in the store" : state} id={`${what}-${state}`}>
          <span class={n > 0 && BAD.includes(state) ? "alarm" : ""}>{count(n)}</span>
        </Stat>
      ))}
    </dl>
  );
}

function Ranges({ of, n, state }: { of: LabelRange[]; n: number; state: string }) {
  if (!of.length) return null;
  const more = n - of.reduce((sum, x) => sum + x.n, 0);
  return (
    <details open={of.length < 10}>
      <summary><span class="alarm">{counted(n, "label")} {state}</span></summary>
      <ul class="problems" data-list={state}>
        {of.map((x) => <li key={x.first}>{x.n === 1 ? x.first : `${x.first} to ${x.last}: ${counted(x.n, "label")}`}</li>)}
        {more > 0 && <li>{counted(more, "more label")}</li>}
      </ul>
    </details>
  );
}
