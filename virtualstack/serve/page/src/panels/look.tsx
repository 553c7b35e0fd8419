/** A slice as an image, and a series at a point, read with zarrita from the endpoint of the cube. */

import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import type { LoadLive } from "../app";
import { MAP_NAMES, table } from "../colours";
import { Failure, useLoaded, useWidth, VariableChoice, Waiting, type Shown } from "../common";
import type { Live } from "../live";
import { attribute, count, counted, message, size, value } from "../text";
import { Series, type SeriesData } from "./series";

const MAX_SIDE = 1024;
const MAX_BYTES = 64e6;
const MAX_SERIES_CHUNKS = 200;

type Labels = { values: Float64Array; text: (i: number) => string } | null;

interface Opened {
  array: Live;
  labels: Labels[];
}

export function LookPanel(props: Shown & { live: NonNullable<LoadLive> }) {
  const variable = props.variable!;
  return (
    <>
      <h2>Quick look at {variable.path}</h2>
      <div class="controls"><VariableChoice {...props} /></div>
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
    const group = variable.path.includes("/") ? variable.path.slice(0, variable.path.lastIndexOf("/") + 1) : "";
    const find = (dim: string) => [group + dim, dim].find((path) => props.variables.some((x) => x.path === path && x.is_coordinate));
    const labels = array.dims.map(async (dim) => {
      const path = find(dim);
      return path ? live.labels(cube, path).catch(() => null) : null;
    });
    return { array, labels: await Promise.all(labels) };
  }, []);
  return (
    <Waiting of={opened}>
      {(found) => <Look {...found} units={attribute(variable.attributes.units ?? "")} name={variable.path} />}
    </Waiting>
  );
}

/** Where the image begins, which index along the other dimensions, and the point of the series. */
interface View {
  index: number[];
  point: [number, number] | null;
}

function Look({ array, labels, units, name }: Opened & { units: string; name: string }) {
  const n = array.shape.length;
  const [view, setView] = useState<View>({ index: array.shape.map(() => 0), point: null });
  const [drawn, setDrawn] = useState<{ values: Float64Array; view: View } | null>(null);
  const [series, setSeries] = useState<SeriesData | null>(null);
  const [state, setState] = useState<"idle" | "reading" | "asks">("idle");
  const [failure, setFailure] = useState("");
  const last = useRef(0);
  const lastSeries = useRef(0);
  const [yAxis, xAxis] = [n - 2, n - 1];
  const sides = [yAxis, xAxis].map((axis) => (axis >= 0 ? Math.min(array.shape[axis], MAX_SIDE) : 1));
  const others = array.dims.map((_, axis) => axis).filter((axis) => axis < yAxis || (axis >= 0 && array.shape[axis] > MAX_SIDE && n > 1));
  const label = (axis: number, i: number) => labels[axis]?.text(i) ?? `${array.dims[axis]} ${count(i)}`;
  const nChunks = sides.reduce((a, side, i) => a * (yAxis + i >= 0 ? Math.ceil(side / array.chunks[yAxis + i]) : 1), 1);
  const bytes = nChunks * array.chunkBytes;

  const readSlice = async (isWanted = false) => {
    const turn = ++last.current;
    if (bytes > MAX_BYTES && !isWanted) return setState("asks");
    setState("reading");
    setFailure("");
    try {
      const values = await array.read(array.shape.map((_, axis) => (axis < yAxis ? view.index[axis] : [view.index[axis], Math.min(view.index[axis] + sides[axis - yAxis], array.shape[axis])])));
      if (turn === last.current) setDrawn({ values, view });
    } catch (error) {
      if (turn === last.current) setFailure(message(error));
    }
    if (turn === last.current) setState("idle");
  };
  useEffect(() => {
    if (n < 2) return;
    const timer = setTimeout(readSlice, drawn ? 120 : 0);
    return () => clearTimeout(timer);
  }, [view.index.join()]);

  const readSeries = async (point: [number, number] | null) => {
    // Along the first dimension; a series of very many chunks is cut to those around the slice.
    const most = Math.max(array.chunks[0], MAX_SERIES_CHUNKS * array.chunks[0]);
    const begin = array.shape[0] <= most ? 0 : Math.max(0, Math.min(view.index[0] - most / 2, array.shape[0] - most) | 0);
    const stop = Math.min(array.shape[0], begin + most);
    const at = array.shape.map((_, axis) => (axis === yAxis ? view.index[axis] + point![0] : axis === xAxis && point ? view.index[axis] + point[1] : view.index[axis]));
    const turn = ++lastSeries.current;
    setFailure("");
    setSeries(null);
    try {
      const values = await array.read(at.map((i, axis) => (axis === 0 ? [begin, stop] : i)));
      const where = at.slice(1).map((i, axis) => label(axis + 1, i)).join(", ");
      const title = `${name} along ${array.dims[0]}${where && ` at ${where}`}`;
      if (turn === lastSeries.current) setSeries({ values, title, units, begin, isCut: stop - begin < array.shape[0], text: (i) => label(0, begin + i) });
    } catch (error) {
      if (turn === lastSeries.current) setFailure(message(error));
    }
  };
  useEffect(() => {
    if (n === 1) void readSeries(null);
  }, []);

  return (
    <>
      {array.packing.text && <p class="note" data-note="packing">Stored numbers become values with the attributes {array.packing.text}.</p>}
      {n === 0 && <Single array={array} units={units} />}
      {others.map((axis) => (
        <Slider
          key={axis} name={axis < yAxis ? array.dims[axis] : `${array.dims[axis]} from`} max={axis < yAxis ? array.shape[axis] - 1 : array.shape[axis] - sides[axis - yAxis]}
          value={view.index[axis]} text={label(axis, view.index[axis])}
          onChange={(i) => setView({ point: null, index: view.index.map((x, a) => (a === axis ? i : x)) })}
        />
      ))}
      {sides.some((x, i) => yAxis + i >= 0 && n > 1 && x < array.shape[yAxis + i]) && <p class="quiet small">A part of {sides.join(" × ")} values is drawn; the sliders move it.</p>}
      {state === "asks" && (
        <p class="note">This slice is {counted(nChunks, "chunk")}, {size(bytes)} when decoded. <button type="button" onClick={() => readSlice(true)}>Read it</button></p>
      )}
      {failure && <Failure text={failure} />}
      {n >= 2 && (
        <Picture
          array={array} labels={labels} units={units} drawn={drawn} isReading={state === "reading"} point={view.point} sides={[Math.min(sides[0], array.shape[yAxis]), Math.min(sides[1], array.shape[xAxis])]}
          onPoint={(point, isChosen) => {
            setView({ ...view, point });
            if (isChosen) void readSeries(point);
          }}
        />
      )}
      {series && <Series series={series} />}
    </>
  );
}

function Single({ array, units }: { array: Live; units: string }) {
  const found = useLoaded(() => array.read([]), []);
  return <Waiting of={found}>{(x) => <p class="readout" data-readout="value">{value(x[0])} {units}</p>}</Waiting>;
}

function Slider(props: { name: string; max: number; value: number; text: string; onChange: (i: number) => void }) {
  return (
    <label class="slider">
      <span>{props.name}</span>
      <input
        type="range" min={0} max={props.max} value={props.value} data-dim={props.name} aria-valuetext={props.text}
        onInput={(e) => props.onChange(Number(e.currentTarget.value))}
      />
      <output>{props.text}</output>
    </label>
  );
}

interface PictureProps {
  array: Live;
  labels: Labels[];
  units: string;
  drawn: { values: Float64Array; view: View } | null;
  isReading: boolean;
  point: [number, number] | null;
  sides: number[];
  onPoint: (point: [number, number], isChosen: boolean) => void;
}

function Picture({ array, labels, units, drawn, isReading, point, sides, onPoint }: PictureProps) {
  const [rows, columns] = sides;
  const [map, setMap] = useState("viridis");
  const [limits, setLimits] = useState<[string, string]>(["", ""]);
  const frame = useRef<HTMLDivElement>(null);
  const canvas = useRef<HTMLCanvasElement>(null);
  const width = useWidth(frame);
  const n = array.shape.length;
  const range = useMemo(() => extremes(drawn?.values), [drawn]);
  const [low, high] = limits.map((x, i) => (x === "" || Number.isNaN(Number(x)) ? range[i] : Number(x)));
  const yLabels = labels[n - 2]?.values;
  const isUp = yLabels !== undefined && yLabels.length > 1 && yLabels[1] > yLabels[0]; // north is up
  const offset = drawn?.view.index ?? [];
  const label = (axis: number, i: number) => labels[axis]?.text((offset[axis] ?? 0) + i) ?? `${array.dims[axis]} ${count((offset[axis] ?? 0) + i)}`;
  useEffect(() => {
    if (!drawn || drawn.values.length !== rows * columns) return;
    const context = canvas.current!.getContext("2d")!;
    const image = context.createImageData(columns, rows);
    const colours = table(map);
    const scale = high > low ? 255 / (high - low) : 0;
    for (let row = 0; row < rows; row += 1) {
      for (let column = 0; column < columns; column += 1) {
        const x = drawn.values[row * columns + column];
        if (Number.isNaN(x)) continue; // stays transparent
        const to = 4 * ((isUp ? rows - 1 - row : row) * columns + column);
        const colour = 3 * Math.max(0, Math.min(255, Math.round((x - low) * scale)));
        image.data[to] = colours[colour];
        image.data[to + 1] = colours[colour + 1];
        image.data[to + 2] = colours[colour + 2];
        image.data[to + 3] = 255;
      }
    }
    context.putImageData(image, 0, 0);
  }, [drawn, map, low, high, isUp]);
  const wide = Math.min(width, columns >= rows ? width : (520 * columns) / rows);
  const tall = Math.max(60, Math.min(520, (wide * rows) / columns));
  const find = (event: PointerEvent | MouseEvent): [number, number] => {
    const at = canvas.current!.getBoundingClientRect();
    const row = Math.max(0, Math.min(rows - 1, Math.floor(((event.clientY - at.top) / at.height) * rows)));
    const column = Math.max(0, Math.min(columns - 1, Math.floor(((event.clientX - at.left) / at.width) * columns)));
    return [isUp ? rows - 1 - row : row, column];
  };
  const onKeyDown = (event: KeyboardEvent) => {
    const step = event.shiftKey ? 10 : 1;
    const up = isUp ? step : -step;
    const move = { ArrowUp: [up, 0], ArrowDown: [-up, 0], ArrowLeft: [0, -step], ArrowRight: [0, step] }[event.key];
    const from = point ?? [Math.floor(rows / 2), Math.floor(columns / 2)];
    if (move) {
      event.preventDefault();
      const inside = (x: number, most: number) => Math.max(0, Math.min(most - 1, x));
      onPoint(point ? [inside(from[0] + move[0], rows), inside(from[1] + move[1], columns)] : [from[0], from[1]], false);
    } else if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      onPoint([from[0], from[1]], true);
    }
  };
  const at = point && drawn ? drawn.values[point[0] * columns + point[1]] : undefined;
  const row = point ? (isUp ? rows - 1 - point[0] : point[0]) : 0;
  return (
    <div ref={frame} class="picture" aria-busy={isReading}>
      <div class="controls">
        <label class="choice"><span>Colours</span><select value={map} onChange={(e) => setMap(e.currentTarget.value)}>{MAP_NAMES.map((x) => <option key={x}>{x}</option>)}</select></label>
        {(["from", "to"] as const).map((word, i) => (
          <label class="choice number" key={word}>
            <span>{word}</span>
            <input inputMode="decimal" size={9} data-limit={word} value={limits[i]} placeholder={value(range[i])} onInput={(e) => setLimits(i ? [limits[0], e.currentTarget.value] : [e.currentTarget.value, limits[1]])} />
          </label>
        ))}
      </div>
      <div class="image" style={{ width: `${wide}px`, height: `${tall}px` }}>
        <canvas
          ref={canvas} width={columns} height={rows} tabIndex={0} role="application" data-image="slice" data-ready={drawn && !isReading ? "yes" : "no"}
          aria-label={`Slice of ${rows} by ${columns} values. Arrow keys move the point, Enter draws the series at it.`}
          onPointerMove={(e) => e.pointerType === "mouse" && drawn && e.buttons === 0 && onPoint(find(e), false)}
          onClick={(e) => drawn && onPoint(find(e), true)} onKeyDown={onKeyDown}
        />
        {point && <span class="cross" aria-hidden="true" style={{ left: `${((point[1] + 0.5) / columns) * 100}%`, top: `${((row + 0.5) / rows) * 100}%` }} />}
      </div>
      <div class="ends" style={{ width: `${wide}px` }}><span>{label(n - 1, 0)}</span><span>{array.dims[n - 1]} →, {array.dims[n - 2]} {isUp ? "↑" : "↓"} from {label(n - 2, 0)} to {label(n - 2, rows - 1)}</span><span>{label(n - 1, columns - 1)}</span></div>
      <Scale map={map} low={low} high={high} units={units} />
      <p class="readout" aria-live="polite" data-readout="point">
        {point && drawn ? (
          <><strong>{value(at)}{at !== undefined && !Number.isNaN(at) && units && ` ${units}`}</strong> at {label(n - 2, point[0])}, {label(n - 1, point[1])}</>
        ) : (
          <span class="quiet">{isReading ? "Reading …" : "Click a point, or press Enter on the image, for the series at it."}</span>
        )}
      </p>
    </div>
  );
}

function Scale({ map, low, high, units }: { map: string; low: number; high: number; units: string }) {
  const canvas = useRef<HTMLCanvasElement>(null);
  useEffect(() => {
    const context = canvas.current!.getContext("2d")!;
    const image = context.createImageData(256, 1);
    const colours = table(map);
    for (let i = 0; i < 256; i += 1) image.data.set([colours[3 * i], colours[3 * i + 1], colours[3 * i + 2], 255], 4 * i);
    context.putImageData(image, 0, 0);
  }, [map]);
  return (
    <div class="scale">
      <span data-scale="low">{value(low)}</span><canvas ref={canvas} width={256} height={1} role="img" aria-label={`Colours from ${value(low)} to ${value(high)} ${units}`} /><span data-scale="high">{value(high)} {units}</span>
    </div>
  );
}

function extremes(values: Float64Array | undefined): [number, number] {
  let [low, high] = [Infinity, -Infinity];
  for (const x of values ?? []) {
    if (x < low) low = x;
    if (x > high) high = x;
  }
  return low <= high ? [low, high] : [NaN, NaN];
}
