/** The page: which cube, which snapshot, which panel. */

import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { AttributeList, auxiliary, Failure, Stat, useLoaded, Waiting, type Place, type Shown } from "./common";
import { findAll, type Count, type CubeName, type Facts, type Overview, type Variable } from "./facts";
import { placeOf } from "./geometry";
import { plan, wholeOf } from "./layers";
import { ChunksPanel } from "./panels/chunks";
import { HealthPanel } from "./panels/health";
import { LookPanel } from "./panels/look";
import { OpenPanel } from "./panels/open";
import { SnapshotsPanel } from "./panels/snapshots";
import { SourcesPanel } from "./panels/sources";
import { TimelinePanel } from "./panels/timeline";
import { Refused, VariablesPanel } from "./panels/variables";
import { count, message, size } from "./text";

export type LoadLive = (() => Promise<typeof import("./live")>) | null;

const PANELS: [string, string][] = [
  ["look", "Quick look"],
  ["variables", "Variables"],
  ["chunks", "Chunk map"],
  ["timeline", "Timeline"],
  ["sources", "Sources"],
  ["health", "Health"],
  ["snapshots", "Snapshots"],
  ["open", "Open this"],
];

const KINDS: Record<string, string> = { memory: "In the memory of the server", files: "Joined files", hdf5: "HDF5", netcdf3: "netCDF-3", tiff: "TIFF", grib: "GRIB" };

function readPlace(): Place {
  const found = new URLSearchParams(location.hash.slice(1));
  const get = (name: string) => found.get(name) ?? "";
  return { cube: get("cube"), at: get("at"), panel: get("panel"), variable: get("variable") };
}

function usePlace(): [Place, (change: Partial<Place>) => void] {
  const [place, set] = useState(readPlace);
  useEffect(() => {
    const follow = () => set(readPlace());
    addEventListener("hashchange", follow);
    return () => removeEventListener("hashchange", follow);
  }, []);
  const choose = (change: Partial<Place>) => {
    const next = Object.entries({ ...readPlace(), ...change }).filter(([, x]) => x);
    location.hash = new URLSearchParams(next).toString();
    set(readPlace()); // the event comes later
  };
  return [place, choose];
}

export function App(props: { facts: Facts; made: string | null; live: LoadLive }) {
  const [place, choose] = usePlace();
  const cubes = useLoaded(() => props.facts.cubes(), []);
  const all = cubes.state === "there" ? cubes.value : [];
  const cube = all.find((x) => x.name === place.cube) ?? all[0];
  const shown = [place.cube, place.at, place.panel].join("\n");
  const before = useRef(shown);
  useEffect(() => {
    // The button that was pressed may have gone: keys go on in what it opened.
    if (before.current !== shown && document.activeElement === document.body) document.getElementById("panel")?.focus();
    before.current = shown;
  }, [shown]);
  return (
    <>
      <a class="skip" href="#content" onClick={(e) => { e.preventDefault(); document.getElementById("content")?.focus(); }}>
        Skip to the content
      </a>
      <header class="top">
        <p class="brand"><Logo />virtualstack{props.made ? " report" : ""}</p>
        {cube && all.length > 1 && (
          <label class="choice">
            <span>Cube</span>
            <select value={cube.name} onChange={(e) => choose({ cube: e.currentTarget.value, at: "", variable: "" })}>
              {all.map((x) => <option key={x.name} value={x.name}>{x.name}</option>)}
            </select>
          </label>
        )}
      </header>
      <Waiting of={cubes}>
        {() => cube ? <CubeView key={`${cube.name}@${place.at}`} {...props} cube={cube} place={place} choose={choose} /> : <Failure text="This server has no cube." />}
      </Waiting>
    </>
  );
}

interface CubeViewProps {
  facts: Facts;
  made: string | null;
  live: LoadLive;
  cube: CubeName;
  place: Place;
  choose: (change: Partial<Place>) => void;
}

function CubeView({ facts, made, live, cube, place, choose }: CubeViewProps) {
  const id = place.at ? `${cube.name}@${place.at}` : cube.name;
  const [overview, setOverview] = useState<Overview | null>(null);
  const [variables, setVariables] = useState<Variable[]>([]);
  const [counts, setCounts] = useState<Map<string, Count>>(new Map());
  const [failure, setFailure] = useState("");
  useEffect(() => {
    let isWanted = true;
    findAll(facts, id, "variables", (page) => {
      if (!isWanted) return;
      if (page.offset === 0) setOverview(page);
      setVariables((before) => [...before, ...page.items]);
    }).catch((error) => isWanted && setFailure(message(error)));
    findAll(facts, id, "counts", (page) => {
      if (isWanted) setCounts((before) => new Map([...before, ...page.items.map((x) => [x.path, x] as const)]));
    }).catch(() => undefined); // variables without counts say so
    document.title = `${id} · virtualstack`;
    return () => {
      isWanted = false;
    };
  }, []);
  const panels = PANELS.filter(([name]) => (live || name !== "look") && (cube.has_snapshots || name !== "snapshots") && (overview?.has_recipe || name !== "health"));
  const variable = variables.find((x) => x.path === place.variable) ?? typical(variables);
  const first = live && variable && (isPicture(variable) || (isSeries(variable) && variable.grid[0] <= MAX_FIRST_CHUNKS)) ? "look" : "variables";
  const panel = panels.some(([name]) => name === place.panel) ? place.panel : overview || failure ? first : "";
  const shown: Shown = { facts, cube: id, variables, variable, choose };
  return (
    <>
      <main id="content" tabIndex={-1}>
        <h1>{cube.name}{place.at && <span class="quiet"> @ {place.at}</span>}</h1>
        {overview && <Heading overview={overview} made={made} open={() => choose({ panel: "open" })} extent={live && variable && <Extent {...shown} live={live} />} />}
        {made && overview?.map && <div class="map" dangerouslySetInnerHTML={{ __html: overview.map }} />}
        {place.at && !made && (
          <p class="note">
            This is {cube.kind === "vstack" ? "snapshot" : "version"} {place.at}.{" "}
            <button type="button" class="link" onClick={() => choose({ at: "" })}>Show the newest one</button>
          </p>
        )}
        {failure && <Failure text={failure} />}
        <Tabs panels={panels} panel={panel} choose={(name) => choose({ cube: cube.name, panel: name })} />
        <section class="panel" role="tabpanel" id="panel" aria-labelledby={`tab-${panel}`} tabIndex={-1}>
          {!overview && !failure && <p class="quiet" role="status">Loading …</p>}
          {overview?.total === 0 && ["variables", "chunks", "look"].includes(panel) && <p class="quiet">This cube has no variable that can be shown.</p>}
          {overview && panel === "variables" && <><Stats overview={overview} variables={variables} counts={counts} /><VariablesPanel {...shown} counts={counts} live={live !== null} /><Refused overview={overview} /></>}
          {variable && panel === "chunks" && <ChunksPanel {...shown} />}
          {variable && panel === "look" && live && <LookPanel {...shown} live={live} />}
          {overview && panel === "timeline" && <TimelinePanel {...shown} overview={overview} />}
          {overview && panel === "sources" && <SourcesPanel {...shown} overview={overview} isReport={made !== null} />}
          {overview && panel === "health" && <HealthPanel {...shown} />}
          {overview && panel === "snapshots" && <SnapshotsPanel {...shown} overview={overview} isReport={made !== null} />}
          {overview && panel === "open" && <OpenPanel {...shown} overview={overview} isReport={made !== null} />}
        </section>
      </main>
    </>
  );
}

/** The variable that is chosen at first: the largest one that makes a picture, or else a series, or else the largest one. */
function typical(variables: Variable[]): Variable | null {
  const [helpers, pictures] = [new Set(auxiliary(variables)), variables.filter(isPicture)];
  const series = variables.filter((x) => isSeries(x) && !helpers.has(x));
  const some = [pictures.filter((x) => !helpers.has(x)), pictures, series, variables].find((x) => x.length) ?? [];
  return some.reduce<Variable | null>((a, b) => (a && a.nbytes >= b.nbytes ? a : b), null);
}

/** Chunks of a series that is read before somebody asks for it. */
const MAX_FIRST_CHUNKS = 24;
const hasNumbers = (x: Variable): boolean => /^[<>|]?(u?int|float|bool|[iufb]\d)/.test(x.dtype);
const isPicture = (x: Variable): boolean => x.shape.length > 1 && x.shape.slice(-2).every((n) => n > 1) && hasNumbers(x);
const isSeries = (x: Variable): boolean => x.shape.length === 1 && hasNumbers(x);

/** Where the first variable that is shown begins and ends along its dimensions, as its coordinates say. */
function Extent(props: Shown & { live: NonNullable<LoadLive> }) {
  const { facts, cube, variable, variables } = props;
  const found = useLoaded(async () => {
    const [live, store] = await Promise.all([props.live(), facts.store?.(cube)]);
    if (!store) return "";
    const array = await live.open(store, variable!.path);
    const labels = await live.labelsOf(store, array, variable!.path, variables);
    const grid = array.shape.length ? await live.locate(store, array, variable!.path, variables, labels) : null;
    const isLine = (axis: number) => / °[NSEW]$/.test(labels[axis]?.text(0) ?? "") || / °[NSEW]$/.test(labels[axis]?.text(array.shape[axis] - 1) ?? "");
    const axes: number[] = grid && !grid.axes.every(isLine) ? grid.axes : [];
    const source = { path: variable!.path, array, grid: grid! };
    const { part } = axes.length ? plan(source, wholeOf(source)) : { part: null };
    // coordinates of two dimensions are read for the picture, too
    const place = part?.keep === 1 ? placeOf(await grid!.geometry(part, array.shape.map(() => 0))) : "";
    const ends = array.dims.map((dim, i) => {
      const [along, n] = [labels[i], array.shape[i]];
      const isNumberOfOne = n === 1 && /^\d+$/.test(along?.text(0) ?? ""); // "band 1" says nothing
      return along && n && !isNumberOfOne && !(place && axes.includes(i) && along.kind !== "time") ? `${dim} ${live.extent(along, n)}` : "";
    });
    return [...ends, place].filter(Boolean).join("; ");
  }, [variable!.path]);
  return found.state === "there" && found.value ? <p class="extent" data-extent="first">{found.value}</p> : null;
}

function Stats(props: { overview: Overview; variables: Variable[]; counts: Map<string, Count> }) {
  const { overview, counts } = props;
  const all = [...counts.values()].filter((x) => !x.error);
  const sum = (pick: (x: Count) => number) => all.reduce((total, x) => total + pick(x), 0);
  const isWhole = counts.size >= overview.total;
  const { title: _, ...others } = overview.attributes;
  const names = Object.keys(others);
  return (
    <>
      <dl class="stats">
        <Stat label={overview.total === 1 ? "variable" : "variables"} id="variables">{count(overview.total)}</Stat>
        <Stat label="chunks" id="chunks">{isWhole ? count(sum((x) => x.n_chunks)) : "…"}</Stat>
        <Stat label="stored" id="stored">{isWhole ? size(sum((x) => x.nbytes)) : "…"}</Stat>
        <Stat label="as values" id="values">{props.variables.length >= overview.total ? size(props.variables.reduce((n, x) => n + x.nbytes, 0)) : "…"}</Stat>
        {sum((x) => x.n_absent) > 0 && <Stat label="chunks lost" id="lost"><span class="alarm">{count(sum((x) => x.n_absent))}</span></Stat>}
      </dl>
      {names.length > 0 && (
        <details class="attributes">
          <summary>{names.length} more attribute{names.length === 1 ? "" : "s"} of the cube</summary>
          <AttributeList attributes={others} />
        </details>
      )}
    </>
  );
}

function Heading(props: { overview: Overview; made: string | null; extent: ComponentChildren; open: () => void }) {
  const { overview } = props;
  const { title } = overview.attributes;
  return (
    <div class="heading">
      {typeof title === "string" && <p class="title">{title}</p>}
      {props.extent}
      <p class="quiet place">
        {KINDS[overview.kind] ?? overview.kind}{overview.url && <> at <span class="url">{overview.url}</span></>}
        {overview.kind === "vstack" && <>, snapshot {overview.version}</>}
        {props.made && <>, as of {props.made}</>}
        {" · "}<button type="button" class="link" onClick={props.open}>how to open it</button>
      </p>
    </div>
  );
}

function Tabs(props: { panels: [string, string][]; panel: string; choose: (name: string) => void }) {
  const list = useRef<HTMLDivElement>(null);
  const names = props.panels.map(([name]) => name);
  const onKeyDown = (event: KeyboardEvent) => {
    const tabs = [...list.current!.querySelectorAll<HTMLButtonElement>("[role=tab]")];
    const at = tabs.indexOf(event.target as HTMLButtonElement); // keys may be faster than the page
    const to = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: names.length - 1 }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    const next = (to + names.length) % names.length;
    props.choose(names[next]);
    tabs[next].focus();
  };
  return (
    <div class="tabs" role="tablist" aria-label="Panels" ref={list} onKeyDown={onKeyDown}>
      {props.panels.map(([name, text]) => (
        <button
          type="button" role="tab" key={name} id={`tab-${name}`} aria-selected={name === props.panel} aria-controls="panel"
          tabIndex={name === props.panel ? 0 : -1} onClick={() => props.choose(name)}
        >
          {text}
        </button>
      ))}
    </div>
  );
}

function Logo() {
  return (
    <svg width="22" height="22" viewBox="0 0 22 22" aria-hidden="true">
      <path d="M11 2 20 6.5 11 11 2 6.5Z" fill="var(--accent)" />
      <path d="M2 11l9 4.5 9-4.5M2 15.5 11 20l9-4.5" fill="none" stroke="var(--accent)" stroke-width="1.8" stroke-linejoin="round" stroke-linecap="round" />
    </svg>
  );
}
