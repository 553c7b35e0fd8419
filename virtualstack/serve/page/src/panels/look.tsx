/** A slice as a picture, and a series at a point, read with zarrita from the endpoint of the cube. */

import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import type { LoadLive } from "../app";
import { palette } from "../colours";
import { Failure, useLoaded, VariableChoice, Waiting, type Shown } from "../common";
import type { Geometry, Pair } from "../geometry";
import type { Grid, Labels, Live } from "../live";
import { attribute, count, counted, message, size, value } from "../text";
import { Picture, where } from "./picture";
import { Series, type SeriesData } from "./series";

const MAX_SIDE = 1024;
const MAX_BYTES = 64e6;
const MAX_SERIES_CHUNKS = 200;
/** From here on a series is read only when it is asked for. */
const MAX_SERIES_BYTES = 20e6;

interface Opened {
  array: Live;
  labels: (Labels | null)[];
  grid: Grid | null;
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
    const url = new URL(`./${encodeURIComponent(props.cube).replace("%40", "@")}`, location.href.split("#")[0]).href;
    const cube = (await props.facts.store?.(props.cube)) ?? url;
    if (/^\|[SV]/.test(variable.dtype)) throw new Error(`Values of type ${variable.dtype} cannot be drawn.`); // zarrita has no words
    const array = await live.open(cube, variable.path);
    const labels = await live.labelsOf(cube, array, variable.path, props.variables, props.facts.file ? null : url);
    const grid = array.shape.length > 1 ? await live.locate(cube, array, variable.path, props.variables, labels) : null;
    return { array, labels, grid, live };
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

interface Drawn {
  values: Float64Array;
  geometry: Geometry;
  view: View;
}

interface Asked {
  what: "slice" | "series";
  n: number;
  bytes: number;
  read: () => void;
}

function Look({ array, labels, grid, live, units, name }: Opened & { units: string; name: string }) {
  const { shape, dims, chunks } = array;
  const n = shape.length;
  const [drawn, setDrawn] = useState<Drawn | null>(null);
  const [series, setSeries] = useState<SeriesData | null>(null);
  const [isReading, setReading] = useState(false);
  const [asked, ask] = useState<Asked | null>(null);
  const [failure, setFailure] = useState("");
  const [sample, setSample] = useState<Float64Array>(new Float64Array());
  const sampling = useRef<Promise<unknown> | null>(null);
  const [isSampled, setSampled] = useState(false);
  const [coast, setCoast] = useState<Pair[][] | null>(null);
  const [playing, play] = useState<number | null>(null);
  const last = useRef(0);
  const lastSeries = useRef(0);
  const axes: number[] = grid?.axes ?? [];
  const sides = axes.map((axis) => Math.min(shape[axis], MAX_SIDE)) as Pair;
  // of a large picture, the middle comes first: the corners of a disk or a tile are often empty
  const middle = (axis: number) => (axes.includes(axis) ? Math.floor((shape[axis] - Math.min(shape[axis], MAX_SIDE)) / 2 / chunks[axis]) * chunks[axis] : 0);
  const [view, setView] = useState<View>({ index: shape.map((_, axis) => middle(axis)), point: null });
  const isCut = axes.some((axis) => shape[axis] > MAX_SIDE);
  const others = dims.map((_, axis) => axis).filter((axis) => n > 1 && (axes.includes(axis) ? shape[axis] > MAX_SIDE : shape[axis] > 1));
  const label = (axis: number, i: number) => labels[axis]?.text(i) ?? `${dims[axis]} ${count(i)}`;

  const [xAxis, yAxis] = grid?.isSwapped ? axes : [...axes].reverse();
  const labelAt = (isX: boolean, i: number) => label(isX ? xAxis : yAxis, drawn!.view.index[isX ? xAxis : yAxis] + i);
  const hasLabels = axes.every((axis) => labels[axis] !== null);

  // The range of colours is that of the first slice, until somebody reaches for another one.
  const first = useRef<Float64Array | null>(null);
  const sampleAll = () => {
    if (!first.current) return;
    sampling.current ??= live.sample(array, first.current).then((x) => {
      setSample(x);
      setSampled(true);
    });
  };

  const readSlice = async (isWanted = false) => {
    const turn = ++last.current;
    const nChunks = axes.reduce((a, axis, i) => a * Math.ceil(sides[i] / chunks[axis]), 1);
    const bytes = nChunks * array.chunkBytes;
    if (bytes > MAX_BYTES && !isWanted) return ask({ what: "slice", n: nChunks, bytes, read: () => readSlice(true) });
    ask(null);
    setReading(true);
    setFailure("");
    try {
      const selection = shape.map((length, axis): number | Pair => {
        const begin = view.index[axis];
        return axes.includes(axis) ? [begin, Math.min(begin + MAX_SIDE, length)] : begin;
      });
      const [values, geometry] = await Promise.all([array.read(selection), grid!.geometry(axes.map((axis) => view.index[axis]) as Pair, sides, view.index)]);
      if (turn !== last.current) return;
      setDrawn({ values, geometry, view });
      first.current ??= values;
      if (!sampling.current) setSample(values.filter((x) => Number.isFinite(x)).sort());
      if (geometry.plane.fromLonLat && !coast) void live.coast().then(setCoast);
    } catch (error) {
      if (turn === last.current) setFailure(message(error));
      play(null);
    }
    if (turn === last.current) setReading(false);
  };
  useEffect(() => {
    if (n < 2) return;
    const timer = setTimeout(readSlice, drawn && playing === null ? 120 : 0);
    return () => clearTimeout(timer);
  }, [view.index.join()]);
  const go = (axis: number, i: number) => {
    sampleAll();
    setView({ point: null, index: view.index.map((x, a) => (a === axis ? i : x)) });
  };
  useEffect(() => {
    if (playing === null || isReading || drawn?.view.index !== view.index) return;
    const timer = setTimeout(() => go(playing, (view.index[playing] + 1) % (maxOf(playing) + 1)), 300);
    return () => clearTimeout(timer);
  }, [playing, isReading, drawn]);
  const maxOf = (axis: number) => shape[axis] - (axes.includes(axis) ? Math.min(shape[axis], MAX_SIDE) : 1);

  // The series runs along time, or along the first dimension that is not one of the picture.
  const free = dims.map((_, axis) => axis).filter((axis) => n < 3 || !axes.includes(axis));
  const along = free.find((axis) => labels[axis]?.kind === "time" && shape[axis] > 1) ?? free.find((axis) => /^(valid_)?t(ime)?s?$/i.test(dims[axis]) && shape[axis] > 1) ?? free.find((axis) => shape[axis] > 1) ?? free[0] ?? 0;
  const readSeries = async (point: Pair | null, isWanted = false) => {
    // A series of very many chunks is cut to those around the slice.
    const most = MAX_SERIES_CHUNKS * chunks[along];
    const begin = shape[along] <= most ? 0 : Math.max(0, Math.min(view.index[along] - most / 2, shape[along] - most) | 0);
    const stop = Math.min(shape[along], begin + most);
    const at = view.index.map((i, axis) => (point && axes.includes(axis) ? i + point[axes.indexOf(axis)] : i));
    const turn = ++lastSeries.current;
    setFailure("");
    setSeries(null);
    const nChunks = Math.ceil(stop / chunks[along]) - Math.floor(begin / chunks[along]);
    const bytes = nChunks * array.chunkBytes;
    if (bytes > MAX_SERIES_BYTES && !isWanted) return ask({ what: "series", n: nChunks, bytes, read: () => readSeries(point, true) });
    ask(null);
    try {
      const values = await array.read(at.map((i, axis) => (axis === along ? [begin, stop] : i)));
      const isPlace = point !== null && drawn !== null && !axes.includes(along);
      const texts = at.map((i, axis) => (axis === along || shape[axis] === 1 || (isPlace && axes.includes(axis)) ? "" : label(axis, i)));
      if (isPlace) texts.push(where(drawn.geometry, point, labelAt, hasLabels, grid!.isSwapped));
      const place = texts.filter(Boolean).join(", ");
      const title = `${name} along ${dims[along]}${place && ` at ${place}`}`;
      const places = labels[along] && labels[along].kind !== "text" ? labels[along].values.slice(begin, stop) : null;
      if (turn === lastSeries.current) setSeries({ values, places, isTime: labels[along]?.kind === "time", title, units, begin, isCut: stop - begin < shape[along], text: (i) => label(along, begin + i) });
    } catch (error) {
      if (turn === lastSeries.current) setFailure(message(error));
    }
  };
  useEffect(() => {
    if (n === 1) void readSeries(null);
  }, []);
  const kind = useMemo(() => palette(array.attributes, sample, array.bits), [sample]);

  return (
    <>
      {array.packing.text && <p class="note" data-note="packing">Stored numbers become values with the attributes {array.packing.text}.</p>}
      {n === 0 && <Single array={array} units={units} />}
      {others.map((axis) => (
        <Dimension
          key={axis} name={axes.includes(axis) ? `${dims[axis]} from` : dims[axis]} max={maxOf(axis)} value={view.index[axis]} label={(i) => label(axis, i)}
          isPlaying={playing === axis} onPlay={axes.includes(axis) ? null : () => play(playing === axis ? null : axis)} onReach={sampleAll} onChange={(i) => go(axis, i)}
        />
      ))}
      {isCut && <p class="quiet small">A part of {sides.join(" × ")} values is drawn; the sliders move it.</p>}
      {asked && (
        <p class="note" data-note="asks">This {asked.what} is {counted(asked.n, "chunk")}, {size(asked.bytes)} when decoded. <button type="button" onClick={asked.read}>Read it</button></p>
      )}
      {failure && <Failure text={failure} />}
      {drawn && grid && (
        <Picture
          array={array} units={units} values={drawn.values} geometry={drawn.geometry} sides={sides} palette={kind} sample={sample} isSampled={isSampled} coast={coast} isSwapped={grid.isSwapped}
          names={[dims[xAxis], dims[yAxis]]} label={labelAt} hasLabels={hasLabels} isReading={isReading} point={view.point}
          onPoint={(point, isChosen) => {
            setView({ ...view, point });
            if (isChosen) void readSeries(point);
          }}
        />
      )}
      {n > 1 && !drawn && isReading && <p class="quiet" role="status">Reading …</p>}
      {series && <Series series={series} />}
    </>
  );
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
  onPlay: (() => void) | null;
  /** Called when a change is near. */
  onReach: () => void;
  onChange: (i: number) => void;
}

/** Where the picture is along a dimension: a slider, a field for what people know, steps, and a film. */
function Dimension({ name, max, value: at, label, isPlaying, onPlay, onReach, onChange }: DimensionProps) {
  const text = label(at);
  const step = (by: number) => onChange(Math.max(0, Math.min(max, at + by)));
  return (
    <div class="slider" onPointerEnter={onReach} onFocusCapture={onReach}>
      <label class="range">
        <span>{name}</span>
        <input type="range" min={0} max={max} value={at} data-dim={name} aria-valuetext={text} onInput={(e) => onChange(Number(e.currentTarget.value))} />
      </label>
      <output>{text}</output>
      <span class="steps">
        <button type="button" aria-label={`Previous ${name}`} aria-disabled={at === 0} onClick={() => step(-1)}>◀</button>
        <button type="button" aria-label={`Next ${name}`} aria-disabled={at === max} onClick={() => step(1)}>▶</button>
        {onPlay && <button type="button" data-play={name} aria-pressed={isPlaying} onClick={onPlay}>{isPlaying ? "Stop" : "Play"}</button>}
        <input
          class="goto" type="text" data-goto={name} aria-label={`Go to ${name}`} placeholder={`go to ${label(max).slice(0, 10)}`} size={18}
          onChange={(e) => {
            const found = nearest(e.currentTarget.value, max, label);
            if (found !== null) onChange(found);
            e.currentTarget.value = "";
          }}
        />
      </span>
    </div>
  );
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
