/** Small parts that all panels use. */

import type { ComponentChildren } from "preact";
import { useEffect, useErrorBoundary, useState } from "preact/hooks";
import type { Facts, Overview, Variable, Written } from "./facts";
import { attribute, message } from "./text";

/** What a panel gets. */
export interface Shown {
  facts: Facts;
  /** `NAME` or `NAME@SNAPSHOT`. */
  cube: string;
  variables: Variable[];
  variable: Variable | null;
  choose: (change: Partial<Place>) => void;
}

/** What is shown; it is in the part of the URL after `#`. */
export interface Place {
  cube: string;
  at: string;
  panel: string;
  variable: string;
}

type Loaded<T> = { state: "loading" } | { state: "there"; value: T } | { state: "failed"; text: string };

/** Load something when what it depends on has changed. */
export function useLoaded<T>(load: () => Promise<T>, on: unknown[]): Loaded<T> {
  const [loaded, set] = useState<Loaded<T>>({ state: "loading" });
  useEffect(() => {
    let isWanted = true;
    set({ state: "loading" });
    load().then(
      (value) => isWanted && set({ state: "there", value }),
      (error) => isWanted && set({ state: "failed", text: message(error) }),
    );
    return () => {
      isWanted = false;
    };
  }, on);
  return loaded;
}

export function Waiting<T>(props: { of: Loaded<T>; children: (value: T) => ComponentChildren }) {
  if (props.of.state === "there") return <>{props.children(props.of.value)}</>;
  return props.of.state === "loading" ? <p class="quiet" role="status">Loading …</p> : <Failure text={props.of.text} />;
}

type File = Loaded<Written | null | undefined>;

/** The file that has the facts which are not found here, if there is one; `undefined` if all are found. */
export function useFile(facts: Facts): File {
  return useLoaded(async () => facts.file?.(), []);
}

export function hasFacts(file: File): boolean {
  return file.state === "there" && file.value !== null;
}

/** A line about the file that a panel shows facts of: its snapshot and time, or how to write one. */
export function FileNote({ file, of, what, overview }: { file: File; of: string; what: string; overview: Overview }) {
  return (
    <Waiting of={file}>
      {(found) => found === undefined ? null : found ? (
        <p class="quiet small" data-note="facts">
          {of} snapshot {found.version}, written {found.made}.
          {found.version !== overview.version && ` This page shows snapshot ${overview.version}.`}
        </p>
      ) : (
        <p class="note" data-note="facts">
          {what} by Python: <code>virtualstack report {overview.url ?? "CUBE"} -o facts.json</code> writes the file that <code>&facts=URL</code> in the address of this page names.
        </p>
      )}
    </Waiting>
  );
}

/** Show what is inside; of facts that are not as this page knows them, say so. */
export function Guard(props: { children: ComponentChildren }) {
  const [error] = useErrorBoundary();
  return error ? <Failure text={`This cannot be shown, as the file of facts has another form (${message(error)}). Write it anew: virtualstack report CUBE -o NAME.json`} /> : <>{props.children}</>;
}

export function Failure(props: { text: string }) {
  return <p class="failure" role="alert">{props.text}</p>;
}

/** True if the colours of the page are dark; it follows the settings of the system. */
export function useDark(): boolean {
  const query = matchMedia("(prefers-color-scheme: dark)");
  const [isDark, set] = useState(query.matches);
  useEffect(() => {
    const follow = () => set(query.matches);
    query.addEventListener("change", follow);
    return () => query.removeEventListener("change", follow);
  }, []);
  return isDark;
}

/** The width of an element in CSS pixels, which follows the window. */
export function useWidth(ref: { current: HTMLElement | null }): number {
  const [width, set] = useState(0);
  useEffect(() => {
    const element = ref.current!;
    const watch = new ResizeObserver(() => set(element.clientWidth));
    watch.observe(element);
    set(element.clientWidth);
    return () => watch.disconnect();
  }, []);
  return width;
}

/** Variables that say something about others: scalars, coordinates, bounds, grid mappings, and what `coordinates` names. */
export function auxiliary(variables: Variable[]): Variable[] {
  const words = (x: Variable, names: string[]) => names.flatMap((name) => String(x.attributes[name] ?? "").split(/[\s:]+/));
  const named = new Set(variables.flatMap((x) => words(x, ["bounds", "climatology", "coordinates", "grid_mapping", "ancillary_variables"])));
  return variables.filter((x) => x.is_coordinate || x.shape.length === 0 || x.attributes.virtualstack_layout_of !== undefined || named.has(nameOf(x)) || /^(expver|spatial_ref)$|_(bnds|bounds)$/.test(nameOf(x)));
}

const nameOf = (x: Variable): string => x.path.slice(x.path.lastIndexOf("/") + 1);

export function VariableChoice(props: Shown & { among?: (x: Variable) => boolean }) {
  const { variables, variable, choose, among = () => true } = props;
  const [helpers, shown] = [new Set(auxiliary(variables)), variables.filter((x) => among(x) || x === variable)];
  const options = (some: Variable[]) => some.map((x) => <option key={x.path} value={x.path}>{x.path}</option>);
  const [data, others] = [shown.filter((x) => !helpers.has(x)), shown.filter((x) => helpers.has(x))];
  return (
    <label class="choice">
      <span>Variable</span>
      <select value={variable?.path} onChange={(e) => choose({ variable: e.currentTarget.value })}>
        {options(data)}
        {others.length > 0 && <optgroup label="Coordinates and others">{options(others)}</optgroup>}
      </select>
    </label>
  );
}

export function Radios(props: { legend: string; name: string; values: [string, string][]; value: string; onChange: (x: string) => void }) {
  return (
    <fieldset class="radios">
      <legend>{props.legend}</legend>
      {props.values.map(([value, text]) => (
        <label key={value}>
          <input type="radio" name={props.name} checked={value === props.value} onChange={() => props.onChange(value)} />
          <span>{text}</span>
        </label>
      ))}
    </fieldset>
  );
}

export function Stat(props: { label: string; children: ComponentChildren; id?: string }) {
  return (
    <div class="stat">
      <dt>{props.label}</dt>
      <dd data-stat={props.id}>{props.children}</dd>
    </div>
  );
}

export function Swatch(props: { of: string }) {
  return <span class={`swatch ${props.of.startsWith("#") ? "" : props.of}`} style={props.of.startsWith("#") ? { background: props.of } : {}} aria-hidden="true" />;
}

export function AttributeList(props: { attributes: Record<string, unknown> }) {
  return (
    <dl class="pairs">
      {Object.entries(props.attributes).map(([name, x]) => (
        <div key={name}><dt>{name}</dt><dd>{attribute(x)}</dd></div>
      ))}
    </dl>
  );
}
