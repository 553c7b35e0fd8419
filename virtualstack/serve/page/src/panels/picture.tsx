/** A slice at its place: cells, coast, ticks, colours, and the value under the pointer. */

import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { MAP_NAMES, rangeOf, table, type Palette } from "../colours";
import { useDark, useWidth } from "../common";
import { graticule, isCoarse, outline, placeText, round, tickText, ticks, type Box, type Geometry, type Pair, type Tick } from "../geometry";
import { exact, type Layer } from "../layers";
import type { Live } from "../live";
import { value } from "../text";

export interface PictureProps {
  array: Live;
  units: string;
  /** What is drawn: the whole slice, or a part of it with more cells. */
  layer: Layer;
  whole: Layer;
  /** Numbers of rows and columns of the slice. */
  lengths: Pair;
  /** Names of the dimensions along x and y. */
  names: [string, string];
  /** Label of a row or column of the slice. */
  label: (isX: boolean, i: number) => string;
  hasLabels: boolean;
  isSwapped: boolean;
  palette: Palette;
  /** Values that the range of colours is for, in order. */
  sample: Float64Array;
  coast: Pair[][] | null;
  isReading: boolean;
  point: Pair | null;
  onPoint: (point: Pair, isChosen: boolean) => void;
  /** Called with what is seen, or `null` if that is the whole slice. */
  onView: (view: Box | null) => void;
}

const MAX_TALL = 560;
const PER_CHARACTER = 7;
const [BOTTOM, TOP] = [24, 8];

export function Picture(props: PictureProps) {
  const { array, units, layer, whole, lengths, names, label, hasLabels, isSwapped, palette, sample, coast, isReading, point, onPoint, onView } = props;
  const { values, geometry } = layer;
  const [rows, columns] = layer.part.at.map((x) => x.length);
  const { plane, box } = whole.geometry;
  const frame = useRef<HTMLDivElement>(null);
  const canvas = useRef<HTMLCanvasElement>(null);
  const room = useWidth(frame);
  const isDark = useDark();
  const [zoomed, setZoomed] = useState<{ of: Geometry; view: Box } | null>(null);
  const zoomTo = (next: Box | null) => {
    setZoomed(next && { of: whole.geometry, view: next });
    onView(next);
  };
  const view = zoomed && zoomed.of.plane.kind === plane.kind && sameBox(zoomed.of.box, box) ? zoomed.view : box;
  const colours = useColours(palette, values, sample);
  const { paint } = colours;

  const marks = (isX: boolean, range: Pair, most: number) => useMemo(() => plane.marks?.[isX ? 0 : 1](range, most) ?? ticks(plane, range, most, isX), [plane, view, most]);
  const yTicks = marks(false, view.y, 6);
  const left = Math.min(Math.max(...yTicks.map((x) => x.text.length), 2) * PER_CHARACTER + 12, 0.35 * room);
  const cellRatio = isSwapped ? lengths[0] / lengths[1] : lengths[1] / lengths[0];
  // axes of different kinds, such as time and depth, have no common scale; cells without labels are squares
  const ratio = plane.kind !== "index" ? (box.x[1] - box.x[0]) / (box.y[1] - box.y[0]) : hasLabels ? Math.max(1.2, Math.min(4, cellRatio)) : cellRatio;
  // the line of the value is on the first screen, too
  const most = Math.max(80, Math.min(MAX_TALL, 0.48 * innerHeight));
  const width = Math.max(1, Math.round(Math.min(room - left - 14, most * ratio)));
  const height = Math.max(1, Math.round(plane.kind === "index" ? Math.max(60, Math.min(most, width / ratio)) : width / ratio));
  const widest = Math.max(...marks(true, view.x, 5).map((x) => x.text.length), 3) * PER_CHARACTER + 14;
  const xTicks = marks(true, view.x, Math.max(1, Math.min(8, Math.floor(width / widest))));

  const cells = useMemo(() => (room ? geometry.raster(view, width, height) : null), [geometry, view, width, height, room > 0]);
  useEffect(() => {
    if (!cells || values.length !== rows * columns) return;
    const context = canvas.current!.getContext("2d")!;
    const image = context.createImageData(width, height);
    const { data } = image;
    const style = getComputedStyle(canvas.current!);
    const none = ["--none", "--none-line"].map((name) => style.getPropertyValue(name).match(/[0-9a-f]{2}/gi)!.map((x) => parseInt(x, 16)));
    const pixels = new Uint32Array(data.buffer);
    for (let i = 0; i < cells.length; i += 1) {
      if (cells[i] < 0) continue; // no cell is there
      const x = values[cells[i]];
      if (Number.isNaN(x)) data.set(none[((i % width) + Math.floor(i / width)) % 8 < 2 ? 1 : 0], 4 * i);
      else if (cells[i] === cells[i - 1]) pixels[i] = pixels[i - 1];
      else paint(x, data, 4 * i);
      data[4 * i + 3] = 255;
    }
    context.putImageData(image, 0, 0);
  }, [cells, values, paint, isDark]);

  const px = (x: number) => ((x - view.x[0]) / (view.x[1] - view.x[0])) * width;
  const py = (y: number) => ((view.y[1] - y) / (view.y[1] - view.y[0])) * height;
  const isDrawn = useMemo(() => coast !== null && plane.fromLonLat !== null && !isCoarse(coast, plane, box), [coast, plane, box]);
  const shore = useMemo(() => (coast && isDrawn ? outline(coast, plane, view, width, height) : ""), [coast, isDrawn, view, width, height]);

  const net = useMemo(() => (plane.toLonLat && plane.kind !== "lonlat" ? graticule(plane, view, width, height) : null), [plane, view, width, height]);

  const setView = (next: Box) => {
    // no further out than all cells, and no further away
    const inside = ([a, b]: Pair, [c, d]: Pair): Pair => (b - a >= d - c ? [c, d] : a < c ? [c, c + b - a] : b > d ? [d - (b - a), d] : [a, b]);
    const kept = { x: inside(next.x, box.x), y: inside(next.y, box.y) };
    zoomTo(sameBox(kept, box) ? null : kept);
  };
  const zoom = (factor: number, at: Pair = [(view.x[0] + view.x[1]) / 2, (view.y[0] + view.y[1]) / 2]) => {
    const least = ((box.x[1] - box.x[0]) / Math.max(...lengths)) * 2;
    if (factor < 1 && (view.x[1] - view.x[0]) * factor < least) return;
    const by = ([a, b]: Pair, c: number): Pair => [c - (c - a) * factor, c + (b - c) * factor];
    setView({ x: by(view.x, at[0]), y: by(view.y, at[1]) });
  };
  const placeOf = (event: MouseEvent): { at: Pair; cell: Pair | null } => {
    const on = canvas.current!.getBoundingClientRect();
    const [i, j] = [event.clientX - on.left, event.clientY - on.top].map((x, k) => Math.max(0, Math.min([width, height][k] - 1, Math.floor(x))));
    const cell = cells?.[j * width + i] ?? -1;
    const at: Pair = [view.x[0] + ((i + 0.5) / width) * (view.x[1] - view.x[0]), view.y[1] - ((j + 0.5) / height) * (view.y[1] - view.y[0])];
    return { at, cell: cell < 0 ? null : inSlice([Math.floor(cell / columns), cell % columns]) };
  };
  const inSlice = (local: Pair): Pair => [layer.part.at[0][local[0]], layer.part.at[1][local[1]]];
  const here = point && inLayer(layer, point);
  const drag = useRef<{ x: number; y: number; view: Box; moved: boolean } | null>(null);
  const onPointerMove = (event: PointerEvent) => {
    if (drag.current && event.buttons) {
      const [dx, dy] = [event.clientX - drag.current.x, event.clientY - drag.current.y];
      if (Math.hypot(dx, dy) > 4) drag.current.moved = true;
      if (!drag.current.moved || view === box) return;
      const { x, y } = drag.current.view;
      const [mx, my] = [(dx / width) * (x[1] - x[0]), (dy / height) * (y[1] - y[0])];
      setView({ x: [x[0] - mx, x[1] - mx], y: [y[0] + my, y[1] + my] });
    } else if (event.pointerType === "mouse") {
      const { cell } = placeOf(event);
      if (cell) onPoint(cell, false);
    }
  };
  // a wheel with Ctrl, as a touchpad sends it for two fingers; without it the page scrolls
  const onWheel = useRef<(event: WheelEvent) => void>(() => undefined);
  onWheel.current = (event) => {
    if (!event.ctrlKey) return;
    event.preventDefault();
    zoom(Math.exp(Math.max(-0.5, Math.min(0.5, event.deltaY / 100))), placeOf(event).at);
  };
  useEffect(() => {
    const turned = (event: WheelEvent) => onWheel.current(event);
    const on = canvas.current!;
    on.addEventListener("wheel", turned, { passive: false });
    return () => on.removeEventListener("wheel", turned);
  }, []);
  const isRowUp = geometry.centre(rows - 1, 0)[1] >= geometry.centre(0, 0)[1];
  const onKeyDown = (event: KeyboardEvent) => {
    const step = event.shiftKey ? 10 : 1;
    const moves: Record<string, Pair> = { ArrowUp: [0, 1], ArrowDown: [0, -1], ArrowLeft: [-1, 0], ArrowRight: [1, 0] };
    const from: Pair = here ?? [Math.floor(rows / 2), Math.floor(columns / 2)];
    const move = moves[event.key];
    const factor = { "+": 0.5, "=": 0.5, "-": 2, "0": Infinity }[event.key];
    if (move) {
      event.preventDefault();
      const [x, y] = move.map((k) => k * step);
      // which way a row goes up, and a column to the right
      const turned = isSwapped ? [x * sign(geometry, "row", 0), y * sign(geometry, "column", 1)] : [y * (isRowUp ? 1 : -1), x * sign(geometry, "column", 0)];
      const inside = (i: number, n: number) => Math.max(0, Math.min(n - 1, i));
      const next: Pair = here ? [inside(from[0] + turned[0], rows), inside(from[1] + turned[1], columns)] : from;
      const [a, b] = geometry.centre(...next);
      if (a < view.x[0] || a > view.x[1] || b < view.y[0] || b > view.y[1]) setView(centred(view, [a, b]));
      onPoint(inSlice(next), false);
    } else if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      onPoint(inSlice(from), true);
    } else if (factor && !event.ctrlKey && !event.metaKey) {
      event.preventDefault();
      if (factor === Infinity) zoomTo(null);
      else zoom(factor, here ? geometry.centre(...here) : undefined);
    }
  };
  const at = here ? exact(values, here[0] * columns + here[1]) : undefined;
  const cross = here && geometry.centre(...here);
  const isInView = cross && cross[0] >= view.x[0] && cross[0] <= view.x[1] && cross[1] >= view.y[0] && cross[1] <= view.y[1];
  const extent = [xTicks, yTicks].map((all, i) => (all.length > 1 ? `${names[i]} from ${all[0].text} to ${all[all.length - 1].text}` : "")).filter(Boolean).join(", ");
  return (
    <div ref={frame} class="picture" aria-busy={isReading}>
      <div class="image" style={{ width: `${width}px`, height: `${height}px`, margin: `${TOP}px 0 ${BOTTOM}px ${left}px` }}>
        <canvas
          ref={canvas} width={width} height={height} tabIndex={0} role="application" data-image="slice" data-ready={isReading ? "no" : "yes"}
          data-plane={plane.kind} data-steps={layer.part.steps.join()} data-view={[...view.x, ...view.y].join()} class={view === box ? "" : "zoomed"}
          aria-label={`Slice of ${lengths.join(" by ")} values${extent && `, ${extent}`}. Arrow keys move the point, Enter draws the series at it, plus and minus zoom.`}
          onPointerDown={(e) => { drag.current = { x: e.clientX, y: e.clientY, view, moved: false }; if (view !== box) canvas.current!.setPointerCapture(e.pointerId); }}
          onPointerMove={onPointerMove}
          onClick={(e) => {
            const found = placeOf(e).cell;
            if (found && !(drag.current?.moved && view !== box)) onPoint(found, true);
            drag.current = null;
          }}
          onKeyDown={onKeyDown}
        />
        <svg width={width} height={height} aria-hidden="true">
          <svg width={width} height={height} overflow="hidden" data-coast={shore ? "yes" : "no"}>
            {net && <path d={net.path} class="graticule" data-graticule />}
            <path d={shore} class="shore-ground" /><path d={shore} class="shore" />
            {net?.texts.map((x) => <text key={x.text} x={x.at[0]} y={x.at[1] - 3} class="tick named">{x.text}</text>)}
          </svg>
          <rect x="0" y="0" width={width} height={height} class="border" />
          {yTicks.map((x) => <g key={x.at} data-tick="y" data-at={x.at}><line x1="-5" x2="0" y1={py(x.at)} y2={py(x.at)} class="border" /><text x="-8" y={py(x.at) + 4} class="tick" text-anchor="end">{x.text}</text></g>)}
          {xTicks.map((x) => <g key={x.at} data-tick="x" data-at={x.at}><line x1={px(x.at)} x2={px(x.at)} y1={height} y2={height + 5} class="border" /><text x={px(x.at)} y={height + 19} class="tick" text-anchor="middle">{x.text}</text></g>)}
        </svg>
        {isInView && <span class="cross" aria-hidden="true" style={{ left: `${px(cross[0])}px`, top: `${py(cross[1])}px` }} />}
      </div>
      <p class="readout" aria-live="polite" data-readout="point">
        {point ? (
          <><strong>{said(at, palette, colours.high - colours.low)}{at !== undefined && !Number.isNaN(Number(at)) && palette.kind !== "classes" && units && ` ${units}`}</strong> at {where(layer, point, label, hasLabels, isSwapped)}</>
        ) : (
          <span class="quiet">{isReading ? "Reading …" : "Click a point, or press Enter on the image, for the series at it."}</span>
        )}
      </p>
      <div class="controls zooms">
        <button type="button" aria-label="Zoom in" onClick={() => zoom(0.5)}>+</button>
        <button type="button" aria-label="Zoom out" aria-disabled={view === box} onClick={() => zoom(2)}>−</button>
        <button type="button" aria-disabled={view === box} onClick={() => zoomTo(null)}>Whole slice</button>
      </div>
      <Colours {...colours} units={units} palette={palette} hasNone={values.some(Number.isNaN)} packing={array.packing.text} />
    </div>
  );
}

const sameBox = (a: Box, b: Box): boolean => [...a.x, ...a.y].every((x, i) => Math.abs(x - [...b.x, ...b.y][i]) < 1e-9 * Math.max(1, Math.abs(x)));

function centred({ x, y }: Box, [a, b]: Pair): Box {
  const [w, h] = [(x[1] - x[0]) / 2, (y[1] - y[0]) / 2];
  return { x: [a - w, a + w], y: [b - h, b + h] };
}

/** 1 if the next row or column is to the right (or up), -1 if it is to the left. */
function sign(geometry: Geometry, along: "row" | "column", axis: 0 | 1): number {
  const next = along === "row" ? geometry.centre(1, 0) : geometry.centre(0, 1);
  return next[axis] < geometry.centre(0, 0)[axis] ? -1 : 1;
}

function said(x: number | bigint | undefined, { classes, masks }: Palette, range: number): string {
  const found = classes.find((c) => c.value === x)?.text ?? value(x, range);
  const bits = typeof x === "bigint" || Number.isSafeInteger(x) ? masks.filter((m) => isSet(x!, m.mask, m.value)).map((m) => m.text) : [];
  return bits.length ? `${found} (${bits.join(", ")})` : found;
}

const isSet = (x: number | bigint, mask: number, value: number): boolean => (BigInt(x) & BigInt(mask)) === BigInt(value);

/** Where a cell is: as its coordinates say, and by longitude and latitude. */
export function where(layer: Layer, point: Pair, label: (isX: boolean, i: number) => string, hasLabels: boolean, isSwapped: boolean): string {
  const { geometry } = layer;
  const { plane } = geometry;
  const labels = `${label(false, point[isSwapped ? 1 : 0])}, ${label(true, point[isSwapped ? 0 : 1])}`;
  if (plane.kind === "index" || (plane.kind === "lonlat" && hasLabels && labels.includes("°"))) return labels;
  const [row, column] = inLayer(layer, point);
  const at = geometry.centre(row, column);
  const lonlat = plane.toLonLat?.(...at);
  const isPoint = layer.part.spans[0][1] === 1; // neighbours may be anywhere
  const nearby = geometry.centre(row, column ? column - 1 : column + 1);
  const other = plane.toLonLat?.(...nearby);
  const step = isPoint ? 1e-3 : 0.1 * (lonlat && other ? Math.max(Math.abs(lonlat[0] - other[0]) % 360, Math.abs(lonlat[1] - other[1])) : 1) || 0.01;
  const isPlace = lonlat?.every(Number.isFinite);
  const place = isPlace ? `${placeText({ ...plane, kind: "lonlat" }, lonlat![1], step, false)}, ${placeText({ ...plane, kind: "lonlat" }, lonlat![0], step, true)}` : "";
  if (plane.kind === "lonlat") return isPoint && hasLabels ? `${label(true, point[1])} (${place})` : place;
  const size = Math.max(Math.abs(at[0] - nearby[0]), Math.abs(at[1] - nearby[1])) * 0.1;
  const own = `${placeText(plane, at[1], size, false)}, ${placeText(plane, at[0], size, true)}`;
  return place ? `${place} (${own})` : own;
}

/** The row and column of a layer that are nearest to those of the slice. */
function inLayer({ part }: Layer, point: Pair): Pair {
  return part.at.map((at, i) => {
    const next = at.findIndex((x) => x >= point[i]);
    if (next <= 0) return next < 0 ? at.length - 1 : 0;
    return at[next] - point[i] <= point[i] - at[next - 1] ? next : next - 1;
  }) as Pair;
}

interface ColoursState {
  low: number;
  high: number;
  map: string;
  setMap: (x: string) => void;
  limits: [string, string];
  setLimits: (x: [string, string]) => void;
  /** The value that is white, if the colours have a middle. */
  centre: string | null;
  setCentre: (x: string) => void;
  ofSlice: boolean;
  setOfSlice: (x: boolean) => void;
  range: Pair;
  /** True if the slice has values that get the colour of an end. */
  isBeyond: boolean;
  paint: (x: number, to: Uint8ClampedArray, at: number) => void;
}

/** The range of colours: that of a sample of all slices, of this slice, or what the user has written. */
function useColours(palette: Palette, values: Float64Array, sample: Float64Array): ColoursState {
  const [chosen, setMap] = useState("");
  const [limits, setLimits] = useState<[string, string]>(["", ""]);
  const [ofSlice, setOfSlice] = useState(false);
  const [middle, setCentre] = useState("");
  const map = chosen || (palette.kind === "diverging" ? "blue to red" : "viridis");
  const slice = useMemo(() => (ofSlice ? values.filter((x) => Number.isFinite(x)).sort() : null), [values, ofSlice]);
  const ends = useMemo(() => [values.reduce((a, x) => (x < a ? x : a), Infinity), values.reduce((a, x) => (x > a ? x : a), -Infinity)], [values]);
  const hasMiddle = map === "blue to red";
  const about = !hasMiddle ? null : middle !== "" && Number.isFinite(Number(middle)) ? Number(middle) : palette.kind === "diverging" ? 0 : null;
  const range = useMemo(() => rangeOf(slice ?? sample, about), [slice, sample, about]);
  const [low, high] = limits.map((x, i) => (x === "" || Number.isNaN(Number(x)) ? range[i] : Number(x)));
  const paint = useMemo(() => {
    if (palette.kind === "classes") {
      const number = new Map(palette.classes.map((x) => [x.value, rgb(x.colour)]));
      return (x: number, to: Uint8ClampedArray, at: number) => to.set(number.get(x) ?? [128, 128, 128], at);
    }
    const colours = table(map);
    const [scale, begin] = high > low ? [255 / (high - low), 0] : [0, 127.5]; // one value has the colour of the middle
    return (x: number, to: Uint8ClampedArray, at: number) => {
      const colour = 3 * Math.max(0, Math.min(255, Math.round(begin + (x - low) * scale)));
      to[at] = colours[colour];
      to[at + 1] = colours[colour + 1];
      to[at + 2] = colours[colour + 2];
    };
  }, [palette, map, low, high]);
  return { low, high, map, setMap, limits, setLimits, centre: hasMiddle ? middle : null, setCentre, ofSlice, setOfSlice, range, isBeyond: ends[0] < low || ends[1] > high, paint };
}

const rgb = (hex: string): number[] => hex.match(/[0-9a-f]{2}/gi)!.map((x) => parseInt(x, 16));

/** The colour bar with ticks and units, or the classes, and what is missing. */
function Colours(props: ColoursState & { units: string; palette: Palette; hasNone: boolean; packing: string }) {
  const { low, high, map, setMap, limits, setLimits, centre, setCentre, ofSlice, setOfSlice, range, units, palette, hasNone } = props;
  const none = hasNone && <span class="none"><i class="swatch missing" aria-hidden="true" />no value</span>;
  if (palette.kind === "classes") {
    return <ul class="legend wide" data-scale="classes">{palette.classes.map((x) => <li key={x.value}><span class="swatch" style={{ background: x.colour }} aria-hidden="true" />{x.text}</li>)}{none && <li>{none}</li>}</ul>;
  }
  return (
    <>
      {!Number.isNaN(low) && <Bar map={map} low={low} high={high} units={units} isBeyond={props.isBeyond} />}
      {none}
      <div class="controls">
        <label class="choice"><span>Colours</span><select value={map} onChange={(e) => setMap(e.currentTarget.value)}>{MAP_NAMES.map((x) => <option key={x}>{x}</option>)}</select></label>
        {(["from", "to"] as const).map((word, i) => (
          <label class="choice number" key={word}>
            <span>{word}</span>
            <input inputMode="decimal" size={11} data-limit={word} value={limits[i]} placeholder={value(range[i], range[1] - range[0])} onInput={(e) => setLimits(i ? [limits[0], e.currentTarget.value] : [e.currentTarget.value, limits[1]])} />
          </label>
        ))}
        {centre !== null && (
          <label class="choice number">
            <span>centre</span>
            <input inputMode="decimal" size={6} data-limit="centre" value={centre} placeholder={palette.kind === "diverging" ? "0" : "none"} onInput={(e) => setCentre(e.currentTarget.value)} />
          </label>
        )}
        <button type="button" aria-pressed={ofSlice} data-range={ofSlice ? "slice" : "all"} onClick={() => setOfSlice(!ofSlice)}>Range of this slice</button>
      </div>
    </>
  );
}

/** Ticks of a colour bar, in per cent of its length. */
function marks(low: number, high: number, most: number): Tick[] {
  if (!(high > low)) return [{ at: 50, text: value(low) }];
  const { step, at } = round([low, high], most);
  return at.map((x) => ({ at: ((x - low) / (high - low)) * 100, text: tickText(x, step) }));
}

function Bar({ map, low, high, units, isBeyond }: { map: string; low: number; high: number; units: string; isBeyond: boolean }) {
  const frame = useRef<HTMLDivElement>(null);
  const canvas = useRef<HTMLCanvasElement>(null);
  const width = useWidth(frame);
  useEffect(() => {
    const context = canvas.current!.getContext("2d")!;
    const image = context.createImageData(256, 1);
    const colours = table(map);
    for (let i = 0; i < 256; i += 1) image.data.set([colours[3 * i], colours[3 * i + 1], colours[3 * i + 2], 255], 4 * i);
    context.putImageData(image, 0, 0);
  }, [map]);
  const ends = [low, high].map((x) => value(x, high - low));
  // as many ticks as have room for their texts
  const shown = [6, 5, 4, 3, 2, 1].map((n) => marks(low, high, n)).find((some) => some.every((x) => (x.text.length + 2) * PER_CHARACTER * some.length <= width)) ?? [];
  return (
    <div class="scale">
      <div class="bar-frame" ref={frame}>
        <canvas ref={canvas} width={256} height={1} role="img" aria-label={`Colours from ${ends[0]} to ${ends[1]} ${units}`} />
        <div class="bar-ticks" aria-hidden="true">
          {shown.map((x) => <span key={x.at} style={{ left: `${x.at}%` }}>{x.text}</span>)}
        </div>
      </div>
      <span class="bar-units">{units}</span>
      <span class="ranged">range <span data-scale="low">{ends[0]}</span>{high > low && <> to <span data-scale="high">{ends[1]}</span></>}{isBeyond && "; values beyond have the colours of the ends"}</span>
    </div>
  );
}
