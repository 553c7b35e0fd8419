/** All variables: dimensions, data type, chunks, codecs, stored bytes and attributes. */

import { AttributeList, auxiliary, Swatch, type Shown } from "../common";
import type { Count, Overview, Variable } from "../facts";
import { attribute, codecs, count, counted, shape, size } from "../text";

export const STATES: { name: "n_referenced" | "n_inline" | "n_empty" | "n_absent"; text: string; swatch: string; at: number }[] = [
  { name: "n_referenced", text: "referenced", swatch: "referenced", at: 3 },
  { name: "n_inline", text: "inline", swatch: "inline", at: 2 },
  { name: "n_empty", text: "never written", swatch: "empty", at: 0 },
  { name: "n_absent", text: "lost", swatch: "absent", at: 1 },
];

export function VariablesPanel(props: Shown & { counts: Map<string, Count>; live: boolean }) {
  const helpers = new Set(auxiliary(props.variables));
  const data = props.variables.filter((x) => !helpers.has(x));
  const coordinates = props.variables.filter((x) => helpers.has(x));
  return (
    <>
      <Group {...props} title="Variables" group={data} />
      <Group {...props} title="Coordinates and others" group={coordinates} />
    </>
  );
}

function Group(props: Shown & { counts: Map<string, Count>; live: boolean; title: string; group: Variable[] }) {
  if (!props.group.length) return null;
  return (
    <>
      <h2>{props.title}</h2>
      <ul class="variables">
        {props.group.map((x) => <li key={x.path}><Row {...props} of={x} found={props.counts.get(x.path)} /></li>)}
      </ul>
    </>
  );
}

function Row({ of, found, choose, live }: Shown & { of: Variable; found: Count | undefined; live: boolean }) {
  const about = of.attributes.long_name ?? of.attributes.standard_name;
  const units = of.attributes.units;
  return (
    <details class="variable" data-variable={of.path}>
      <summary>
        <span class="name">{of.path}{typeof about === "string" && <small>{about}</small>}</span>
        <span class="dims">{of.dims.length ? shape(of.dims, of.shape) : "one value"}</span>
        <span class="type">{of.dtype}{typeof units === "string" && units.length < 20 && <small>{attribute(units)}</small>}</span>
        <span class="stored">
          {!found ? "…" : found.error ? <span class="alarm">not readable</span> : <>{size(found.nbytes)}<small>{counted(found.n_chunks, "chunk")}</small></>}
        </span>
        {found && !found.error ? <Bar found={found} /> : <span />}
      </summary>
      <div class="inside">
        {found?.error && <p class="failure">{found.error}</p>}
        <dl class="pairs">
          <div><dt>Chunks</dt><dd>{of.dims.length ? shape(of.dims, of.chunks) : "one value"}, in a grid of {of.grid.join(" × ") || 1}</dd></div>
          {found && !found.error && (
            <>
              <div><dt>States</dt><dd>{STATES.filter((x) => found[x.name] > 0).map((x) => `${count(found[x.name])} ${x.text}`).join(", ") || "no chunk"}</dd></div>
              <div><dt>Size</dt><dd>{size(found.nbytes)} stored, {size(of.nbytes)} as values{found.nbytes > 0 && `, factor ${(of.nbytes / found.nbytes).toFixed(1)}`}</dd></div>
              <div><dt>Sources</dt><dd>{count(found.n_sources)}</dd></div>
            </>
          )}
        </dl>
        {found && !found.error && found.encodings.length > 0 && <Encodings found={found} />}
        <h3>Attributes</h3>
        {Object.keys(of.attributes).length ? <AttributeList attributes={of.attributes} /> : <p class="quiet">There are none.</p>}
        <p class="actions">
          <button type="button" onClick={() => choose({ variable: of.path, panel: "chunks" })}>Chunk map of {of.path}</button>
          {live && <button type="button" onClick={() => choose({ variable: of.path, panel: "look" })}>Quick look at {of.path}</button>}
        </p>
      </div>
    </details>
  );
}

function Encodings({ found }: { found: Count }) {
  return (
    <>
      <h3>Stored {found.n_encodings === 1 ? "in one form" : `in ${found.n_encodings} forms`}</h3>
      <ul class="forms">
        {found.encodings.map((x, i) => (
          <li key={i}>
            <code>{x.dtype}</code> in chunks of {x.chunk_shape.join(" × ") || 1}, {codecs(x.codecs)}: {counted(x.n_chunks, "chunk")}, {size(x.nbytes)}
            {x.settings !== x.codecs.join(", ") && <small>{x.settings}</small>}
          </li>
        ))}
      </ul>
      {found.n_encodings > found.encodings.length && <p class="quiet">The first {found.encodings.length} are listed.</p>}
    </>
  );
}

/** The states of the chunks of a variable as a bar; each state that occurs is visible. */
function Bar({ found }: { found: Count }) {
  const there = STATES.filter((x) => found[x.name] > 0);
  const text = there.map((x) => `${count(found[x.name])} ${x.text}`).join(", ") || "no chunk";
  return (
    <span class="bar" role="img" aria-label={`chunks: ${text}`} title={text}>
      {there.map((x) => <i key={x.name} class={x.swatch} style={{ flex: `${Math.max(found[x.name] / found.n_chunks, 0.04)}` }} />)}
    </span>
  );
}

export function Legend() {
  return <ul class="legend">{STATES.map((x) => <li key={x.name}><Swatch of={x.swatch} />{x.text}</li>)}</ul>;
}

/** Variables that cannot be shown, and notes of the reader. */
export function Refused({ overview }: { overview: Overview }) {
  return (
    <>
      <div class="quiet small bars"><span>Bars:</span><Legend /></div>
      {overview.n_refused > 0 && (
        <>
          <h2>Not served</h2>
          <dl class="pairs refused">{overview.refused.map((x) => <div key={x.path}><dt>{x.path}</dt><dd>{x.reason}</dd></div>)}</dl>
          {overview.n_refused > overview.refused.length && <p class="quiet">{count(overview.n_refused - overview.refused.length)} more</p>}
        </>
      )}
      {overview.n_noted > 0 && (
        <details>
          <summary>{counted(overview.n_noted, "note")} of the reader</summary>
          <dl class="pairs">{overview.noted.map((x, i) => <div key={i}><dt>{x.path}</dt><dd>{x.kind}: {x.reason}</dd></div>)}</dl>
        </details>
      )}
    </>
  );
}
