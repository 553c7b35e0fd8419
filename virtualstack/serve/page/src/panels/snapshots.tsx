/** The snapshots of a store, newest first, and what each changed. */

import { useState } from "preact/hooks";
import { FileNote, Guard, hasFacts, useFile, useLoaded, Waiting, type Shown } from "../common";
import type { Overview, Snapshot } from "../facts";
import { count, moment } from "../text";

export function SnapshotsPanel(props: Shown & { overview: Overview; isReport: boolean }) {
  const file = useFile(props.facts);
  const snapshots = useLoaded(() => props.facts.find(props.cube, "snapshots"), []);
  return (
    <>
      <h2>Snapshots</h2>
      <FileNote file={file} of="Comparisons up to" what="Snapshots are compared" overview={props.overview} />
      <Waiting of={snapshots}>
        {(found) => found.items.length === 0 ? (
          <p class="quiet">Snapshots of this kind of cube are not listed. Name one in the URL: <code>#cube=NAME&at=SNAPSHOT</code>.</p>
        ) : (
          <ol class="snapshots" reversed>
            {found.items.map((x, i) => <li key={x.number}><Entry {...props} canCompare={hasFacts(file)} of={x} before={found.items[i + 1]} /></li>)}
          </ol>
        )}
      </Waiting>
    </>
  );
}

function Entry(props: Shown & { overview: Overview; isReport: boolean; canCompare: boolean; of: Snapshot; before: Snapshot | undefined }) {
  const { of, before, overview, choose } = props;
  const [isOpen, setOpen] = useState(false);
  const isShown = overview.version === String(of.number);
  return (
    <article data-snapshot={of.number} aria-label={`Snapshot ${of.number}`}>
      <h3>
        <span class="badge">{of.number}</span> {of.message ?? <span class="quiet">no message</span>}
        {isShown && <span class="badge now">shown</span>}
      </h3>
      <p class="quiet small">{moment(of.time)}</p>
      <ul class="changes">{of.changes.map((x, i) => <li key={i}>{x}</li>)}</ul>
      {of.n_changes > of.changes.length && <p class="quiet small">{count(of.n_changes - of.changes.length)} changes more</p>}
      <p class="actions">
        {before && props.canCompare && (
          <button type="button" aria-expanded={isOpen} onClick={() => setOpen(!isOpen)}>Compare with snapshot {before.number}</button>
        )}
        {!props.isReport && !isShown && (
          <button type="button" onClick={() => choose({ cube: overview.name, at: String(of.number), panel: "snapshots" })}>Show snapshot {of.number}</button>
        )}
      </p>
      {before && isOpen && <Guard><Compared {...props} before={before.number} after={of.number} /></Guard>}
    </article>
  );
}

function Compared(props: Shown & { before: number; after: number }) {
  const diff = useLoaded(() => props.facts.find(props.cube, "diff", { before: props.before, after: props.after }), []);
  return (
    <Waiting of={diff}>
      {(found) => (
        <>
          <pre class="diff" data-diff={props.after} tabIndex={0} role="region" aria-label={`Changes from snapshot ${props.before} to ${props.after}`}>{found.lines.map((x) => x.replace(/^ {2}/, "")).join("\n")}</pre>
          {found.n_lines > found.lines.length && <p class="quiet small">{count(found.n_lines - found.lines.length)} lines more</p>}
        </>
      )}
    </Waiting>
  );
}
