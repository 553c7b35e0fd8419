/** A slice as a picture, and a series at a point, read with zarrita from the endpoint of the cube. */

import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import type { LoadLive } from "../app";
import { palette } from "../colours";
import { Failure, useLoaded, VariableChoice, Waiting, type Shown } from "../common";
import type { Variable } from "../facts";
import type { Box, Pair } from "../geometry";
import { enlarged, overviewOf, plan, readLayer, seen, wholeOf, type Layer, type Source } from "../layers";
import type { Grid, Labels, Live } from "../live";
import { attribute, count, counted, message, size, value } from "../text";
import { Picture, where } from "./picture";
import { Series, type SeriesData } from "./series";

const MAX_SERIES_CHUNKS = 200;
/** From here on a series is read only when it is asked for. */
const MAX_SERIES_BYTES = 20e6;

interface Opened {
  array: Live;
  labels: (Labels | null)[];
  grid: Grid | null;
  overview: Source | null;
  /** The same values in other chunks. */
  layouts: Live[];
  /** Values that the range of colours is for, if they were asked for before the axes of the picture are known. */
  sampling: Promise<Float64Array[]> | null;
  live: Awaited<ReturnType<NonNullable<LoadLive>>>;
}

export function LookPanel(props: Shown & { live: NonNullable<LoadLive> }) {
  const variable = props.variable!;
  const about = variable.attributes.long_name ?? variable.attributes.description ?? variable.attributes.standard_name;
  return (
    <>
      <h2>Quick look at {variable.path}</h2>
      <div class="controls"><VariableChoice {...props} />{typeof about === "string" && about && <span class="about quiet">{about}</span>}</div>
      <Opening {...props} key={variable.path} />
    </>
  );
}

function Opening(props: Shown & { live: NonNullable<LoadLive> }) {
  const variable = props.variable!;
  const opened = useLoaded(async (): Promise<Opened> => {
    const live = await props.live();
    const cube = await props.facts.store!(props.cube);
    if (/^\|[SV]/.test(variable.dtype)) throw new Error(`Values of type ${variable.dtype} cannot be drawn.`); // zarrita has no words
    let sampling: Opened["sampling"] = null;
    const find = async ({ path }: Variable) => {
      const array = await live.open(cube, path);
      if (path === variable.path && array.shape.filter((x) => x > 1).length > 2 && live.hasSample(array)) sampling = live.sample(array, []);
      // every picture has this chunk, unless an overview is drawn; the store keeps it
      if (path === variable.path && array.some && live.hasSample(array) && !overviewOf(variable, props.variables)) array.read(array.shape.map(() => 0)).catch(() => {});
      const labels = await live.labelsOf(cube, array, path, props.variables);
      return { array, labels, grid: array.shape.length ? await live.locate(cube, array, path, props.variables, labels) : null };
    };
    const found = await find(variable);
    const coarse = found.grid && overviewOf(variable, props.variables);
    const { array, grid } = coarse ? await find(coarse) : { array: null, grid: null };
    const group = variable.path.slice(0, variable.path.lastIndexOf("/") + 1);
    const isLayout = (x: Variable) => x.attributes.virtualstack_layout_of !== undefined && group + x.attributes.virtualstack_layout_of === variable.path && x.path.startsWith(group) && String(x.shape) === String(variable.shape);
    const layouts = await Promise.all(props.variables.filter(isLayout).map((x) => live.open(cube, x.path)));
    return { ...found, layouts, overview: array && grid ? { path: coarse!.path, array, grid } : null, sampling, live };
  }, []);
  return (
    <Waiting of={opened}>
      {(found) => <Look {...found} units={plainUnits(variable.attributes.units)} name={variable.path} />}
    </Waiting>
  );
}

/** Units as they are written beside a number: nothing for numbers without one. */
function plainUnits(units: unknown): string {
  const text = attribute(units ?? "");
  return text === "1" ? "" : text;
}

/** Which index along each dimension, from which on the picture shows its own two, and the point of the series. */
interface View {
  index: number[];
  point: Pair | null;
}

interface Drawn extends Layer {
  view: View;
  /** What is said of a layer that has not all cells. */
  note: string;
  /** Read all chunks, if the layer has those of a sample. */
  more: (() => void) | null;
}

interface Asked {
  what: "slice" | "series";
  n: number;
  bytes: number;
  read: () => void;
}

function Look({ array, labels, grid, overview, layouts, sampling: begun, live, units, name }: Opened & { units: string; name: string }) {
  const { shape, dims } = array;
  const n = shape.length;
  const [drawn, setDrawn] = useState<Drawn | null>(null);
  const [detail, setDetail] = useState<(Drawn & { of: Drawn }) | null>(null);
  const [box, setBox] = useState<Box | null>(null);
  const [series, setSeries] = useState<SeriesData | null>(null);
  const [isReading, setReading] = useState(false);
  const [isRefining, setRefining] = useState(false);
  const [asked, ask] = useState<Asked | null>(null);
  const [failure, setFailure] = useState("");
  const [sample, setSample] = useState<Float64Array | null>(null);
  const [coast, setCoast] = useState<Pair[][] | null>(null);
  const [playing, play] = useState<number | null>(null);
  const last = useRef(0);
  const lastSeries = useRef(0);
  const axes: number[] = grid?.axes ?? [];
  const [view, setView] = useState<View>({ index: shape.map(() => 0), point: null });
  const others = dims.map((_, axis) => axis).filter((axis) => n > 1 && !axes.includes(axis) && shape[axis] > 1);
  const label = (axis: number, i: number) => labels[axis]?.text(i) ?? `${dims[axis] ?? ""} ${count(i)}`;

  const [xAxis, yAxis] = grid?.isSwapped ? axes : [...axes].reverse();
  const labelAt = (isX: boolean, i: number) => label(isX ? xAxis : yAxis, i);
  const hasLabels = axes.every((axis) => axis < 0 || labels[axis]);

  const source: Source | null = grid && { path: name, array, grid };
  const readPart = async (spans: [Pair, Pair], isWanted: boolean, ofSlice: View): Promise<Drawn | null> => {
    const { part, n, all, bytes, isTooMuch } = plan(source!, spans, isWanted);
    if (isTooMuch) {
      ask({ what: "slice", n, bytes, read: () => readSlice(true) });
      return null;
    }
    const by = part.steps.filter((x) => x > 1).length ? `One of ${part.steps.join(" × ")} cells is drawn: zoom in to see all.` : "";
    const note = part.keep > 1 ? `A sample is drawn: ${count(n)} of ${counted(all, "chunk")}. Zoom in to see all cells, or read all, ${size(bytes)} when decoded.` : by;
    const layer = await readLayer(source!, ofSlice.index, part);
    return { ...layer, view: ofSlice, note, more: part.keep > 1 ? () => readSlice(true) : null };
  };
  /** The whole slice: an overview if there is one and not all cells can be drawn. */
  const readWhole = async (isWanted: boolean): Promise<Drawn | null> => {
    const whole = wholeOf(source!);
    const { part } = plan(source!, whole);
    if (overview && !isWanted && (part.keep > 1 || part.steps.some((x) => x > 1))) {
      const coarse = plan(overview, wholeOf(overview));
      const [layer, geometry] = await Promise.all([readLayer(overview, view.index, coarse.part), grid!.geometry(part, view.index)]);
      if (isSamePlace(layer, geometry)) return { ...enlarged(layer, whole), view, note: `The overview ${overview.path} is drawn: zoom in to see all cells.`, more: null };
    }
    return readPart(whole, isWanted, view);
  };

  // One range of colours for all slices, so nothing is drawn before it is known.
  const isOnly = shape.every((length, axis) => length === 1 || axes.includes(axis));
  const sampling = useRef<Promise<Float64Array[]> | null>(begun);
  const readSlice = async (isWanted = false) => {
    const turn = ++last.current;
    ask(null);
    setReading(true);
    setFailure("");
    try {
      const reading = readWhole(isWanted);
      sampling.current ??= isOnly ? Promise.resolve([]) : live.sample(array, axes);
      const [layer, some] = await Promise.all([reading, sampling.current]);
      if (turn !== last.current) return;
      if (layer) {
        setSample((known) => known ?? live.inOrder([layer.values, ...some]));
        setDrawn(layer);
        setDetail(null);
        if (layer.geometry.plane.fromLonLat && !coast) void live.coast().then(setCoast);
      }
    } catch (error) {
      if (turn === last.current) setFailure(message(error));
      play(null);
    }
    if (turn === last.current) setReading(false);
  };
  useEffect(() => {
    if (!grid) return;
    const timer = setTimeout(readSlice, drawn && playing === null ? 120 : 0);
    return () => clearTimeout(timer);
  }, [view.index.join()]);
  // A part that is zoomed into is read with more cells.
  useEffect(() => {
    if (!drawn?.note || !box) return setDetail(null);
    const spans = seen(drawn, box);
    if (!spans || (detail?.of === drawn && covers(detail, drawn, box))) return;
    setDetail(null);
    const { part } = plan(source!, spans);
    if (part.keep >= drawn.part.keep && part.steps.every((x, i) => x >= drawn.part.steps[i])) return;
    let isWanted = true;
    const timer = setTimeout(async () => {
      setRefining(true);
      const found = await readPart(spans, false, drawn.view).catch((error) => setFailure(message(error)));
      if (!isWanted) return;
      if (found) setDetail({ ...found, of: drawn });
      setRefining(false);
    }, 150);
    return () => {
      isWanted = false;
      clearTimeout(timer);
      setRefining(false);
    };
  }, [drawn, box]);
  const go = (axis: number, i: number) => {
    setView({ point: null, index: view.index.map((x, a) => (a === axis ? i : x)) });
  };
  useEffect(() => {
    if (playing === null || isReading || drawn?.view.index !== view.index) return;
    const timer = setTimeout(() => go(playing, (view.index[playing] + 1) % shape[playing]), 300);
    return () => clearTimeout(timer);
  }, [playing, isReading, drawn]);

  // The series runs along time, or along the first dimension that is not one of the picture.
  const free = dims.map((_, axis) => axis).filter((axis) => !axes.includes(axis) || (axes[0] >= 0 && n < 3) || labels[axis]?.kind === "time");
  const along = free.find((axis) => labels[axis]?.kind === "time" && shape[axis] > 1) ?? free.find((axis) => /^(valid_)?t(ime)?s?$/i.test(dims[axis]) && shape[axis] > 1) ?? free.find((axis) => shape[axis] > 1) ?? free[0] ?? 0;
  const readSeries = async (point: Pair | null, isWanted = false) => {
    if (!free.length || (n > 1 && shape[along] < 2)) return; // one value is no series
    const cost = (of: Live) => Math.ceil(shape[along] / of.chunks[along]) * of.chunkBytes;
    const from = layouts.reduce((best, x) => (cost(x) < cost(best) ? x : best), array);
    // A series of very many chunks is cut to those around the slice.
    const most = MAX_SERIES_CHUNKS * from.chunks[along];
    const begin = shape[along] <= most ? 0 : Math.max(0, Math.min(view.index[along] - most / 2, shape[along] - most) | 0);
    const stop = Math.min(shape[along], begin + most);
    const at = view.index.map((i, axis) => (point && axes.includes(axis) ? point[axes.indexOf(axis)] : i));
    const turn = ++lastSeries.current;
    setFailure("");
    setSeries(null);
    const nChunks = Math.ceil(stop / from.chunks[along]) - Math.floor(begin / from.chunks[along]);
    const bytes = nChunks * from.chunkBytes;
    if (bytes > MAX_SERIES_BYTES && !isWanted) return ask({ what: "series", n: nChunks, bytes, read: () => readSeries(point, true) });
    ask(null);
    try {
      const values = await from.read(at.map((i, axis) => (axis === along ? [begin, stop] : i)));
      const isPlace = point !== null && drawn !== null && !axes.includes(along);
      const texts = at.map((i, axis) => (axis === along || shape[axis] === 1 || (isPlace && axes.includes(axis)) ? "" : label(axis, i)));
      if (isPlace) texts.push(where(shown!, point, labelAt, hasLabels, grid!.isSwapped));
      const place = texts.filter(Boolean).join(", ");
      const title = `${name} along ${dims[along]}${place && ` at ${place}`}`;
      const places = labels[along] && labels[along].kind !== "text" ? labels[along].values.slice(begin, stop) : null;
      if (turn === lastSeries.current) setSeries({ values, places, isTime: labels[along]?.kind === "time", tick: labels[along]?.tick, title, units, classes: kind.classes, begin, isCut: stop - begin < shape[along], text: (i) => label(along, begin + i) });
    } catch (error) {
      if (turn === lastSeries.current) setFailure(message(error));
    }
  };
  useEffect(() => {
    if (n === 1) void readSeries(null);
  }, []);
  const kind = useMemo(() => palette(array.attributes, sample ?? [], array.bits), [sample]);
  const shown: Drawn | null = detail?.of === drawn && detail ? detail : drawn;

  return (
    <>
      {n === 0 && <Single array={array} units={units} />}
      {others.map((axis) => (
        <Dimension
          key={axis} name={dims[axis]} max={shape[axis] - 1} value={view.index[axis]} label={(i) => label(axis, i)} isDates={labels[axis]?.kind === "time" && labels[axis].isUsual === true}
          isPlaying={playing === axis} onPlay={() => play(playing === axis ? null : axis)} onChange={(i) => go(axis, i)}
        />
      ))}
      {asked && (
        <p class="note" data-note="asks">This {asked.what} is {counted(asked.n, "chunk")}, {size(asked.bytes)} when decoded. <button type="button" onClick={asked.read}>Read it</button></p>
      )}
      {failure && <Failure text={failure} />}
      {shown?.note && <p class="quiet small" data-note="part">{shown.note}{shown.more && <>{" "}<button type="button" class="link" onClick={shown.more}>Read all</button></>}</p>}
      {shown && grid && (
        <Picture
          array={array} units={units} layer={shown} whole={drawn!} lengths={wholeOf(source!).map(([, stop]) => stop) as Pair} palette={kind} sample={sample!} coast={coast} isSwapped={grid.isSwapped}
          names={[dims[xAxis], dims[yAxis]]} label={labelAt} hasLabels={hasLabels} isReading={isReading || isRefining} point={view.point} onView={setBox}
          onPoint={(point, isChosen) => {
            setView({ ...view, point });
            if (isChosen) void readSeries(point);
          }}
        />
      )}
      {grid && !drawn && isReading && <p class="quiet" role="status">Reading …</p>}
      {series && <Series series={series} />}
      {array.packing.text && <p class="quiet small" data-note="packing">Stored numbers become values with the attributes {array.packing.text}.</p>}
    </>
  );
}

/** True if an overview covers what the slice covers, to a cell or two. */
function isSamePlace({ geometry: { plane, box }, part }: Layer, other: Layer["geometry"]): boolean {
  const near = ([a, b]: Pair, [c, d]: Pair, n: number) => Math.max(Math.abs(a - c), Math.abs(b - d)) <= (2 * Math.abs(b - a)) / n;
  const n = Math.min(...part.at.map((x) => x.length));
  return plane.kind === other.plane.kind && near(box.x, other.box.x, n) && near(box.y, other.box.y, n);
}

/** True if a part has all that is seen of the whole slice. */
function covers({ part }: Layer, whole: Layer, view: Box): boolean {
  const spans = seen(whole, view, 0);
  return spans !== null && spans.every(([begin, stop], i) => begin >= part.spans[i][0] && stop <= part.spans[i][1]);
}

function Single({ array, units }: { array: Live; units: string }) {
  const found = useLoaded(() => array.read([]), []);
  return <Waiting of={found}>{(x) => <p class="readout" data-readout="value">{value(x[0])} {units}</p>}</Waiting>;
}

interface DimensionProps {
  name: string;
  max: number;
  value: number;
  label: (i: number) => string;
  isPlaying: boolean;
  onPlay: () => void;
  onChange: (i: number) => void;
  /** True if labels are dates of the calendar that people use. */
  isDates: boolean;
}

/** Where the picture is along a dimension: a slider, a field for what people know, steps, and a film. */
function Dimension({ name, max, value: at, label, isDates, isPlaying, onPlay, onChange }: DimensionProps) {
  const text = label(at);
  const step = (by: number) => onChange(Math.max(0, Math.min(max, at + by)));
  const { picker, moment, limits } = useMemo(() => picking(isDates ? max : -1, label), [max]);
  return (
    <div class="slider">
      <label class="range">
        <span>{name}</span>
        <input type="range" min={0} max={max} value={at} data-dim={name} aria-valuetext={text} onInput={(e) => onChange(Number(e.currentTarget.value))} />
      </label>
      <output>{text}</output>
      <span class="steps">
        <button type="button" aria-label={`Previous ${name}`} aria-disabled={at === 0} onClick={() => step(-1)}>◀</button>
        <button type="button" aria-label={`Next ${name}`} aria-disabled={at === max} onClick={() => step(1)}>▶</button>
        <button type="button" data-play={name} aria-pressed={isPlaying} onClick={onPlay}>{isPlaying ? "Stop" : "Play"}</button>
        {picker ? (
          <input
            class="goto" type={picker} data-goto={name} aria-label={`Go to ${name}`} value={moment(at)} {...limits} step="any"
            onChange={(e) => {
              // a year that is being typed is too early
              const found = e.currentTarget.validity.valid ? nearest(e.currentTarget.value, max, label) : null;
              if (found !== null) onChange(found);
            }}
          />
        ) : (
          <input
            class="goto" type="text" data-goto={name} aria-label={`Go to ${name}`} placeholder={`go to ${label(max).slice(0, 10)}`} size={18}
            onChange={(e) => {
              const found = nearest(e.currentTarget.value, max, label);
              if (found !== null) onChange(found);
              e.currentTarget.value = "";
            }}
          />
        )}
      </span>
    </div>
  );
}

/** A field of the browser for dates, if labels are such that it knows: days, or days and minutes. */
function picking(max: number, label: (i: number) => string) {
  const all = Array.from({ length: max + 1 }, (_, i) => label(i));
  const isKnown = all.length > 0 && all.every((x) => /^[12]\d{3}-\d\d-\d\d( \d\d:\d\d(:\d\d)?)?$/.test(x) && x > "1582-10-15");
  const hasTimes = all.some((x) => x.length > 10);
  const moment = (i: number) => (hasTimes ? label(i).replace(" ", "T").padEnd(16, "T00:00") : label(i));
  const [min, latest] = all.length ? [moment(0), moment(max)].sort() : [];
  return { picker: isKnown ? (hasTimes ? "datetime-local" : "date") : null, moment, limits: { min, max: latest } };
}

/** The element whose label begins with a text; else the last one before it, if labels are in order as texts or numbers. */
function nearest(text: string, max: number, label: (i: number) => string): number | null {
  const wanted = text.trim().toLowerCase().replace("t", " ");
  const all = Array.from({ length: max + 1 }, (_, i) => label(i).toLowerCase());
  const begins = all.findIndex((x) => x.startsWith(wanted) || x.replace("t", " ").startsWith(wanted));
  if (!wanted || begins >= 0) return wanted ? begins : null;
  const [number, numbers] = [parseFloat(wanted), all.map((x) => parseFloat(x.replace("−", "-")))];
  if (/^[+-]?[\d.]+$/.test(wanted) && numbers.every(Number.isFinite)) return numbers.reduce((best, x, i) => (Math.abs(x - number) < Math.abs(numbers[best] - number) ? i : best), 0);
  return /^\d{4}-/.test(wanted) ? Math.max(0, all.findLastIndex((x) => x <= wanted)) : null;
}
