/** Values along a dimension at a point, as a line and as a table. */

import { useMemo, useRef, useState } from "preact/hooks";
import type { Palette } from "../colours";
import { useWidth } from "../common";
import { elementTicks, round, tickText, type Tick } from "../geometry";
import { exact } from "../layers";
import type { Labels } from "../live";
import { count, counted, value } from "../text";

export interface SeriesData {
  values: Float64Array;
  /** Where they are along the dimension, if it has numbers. */
  places: Float64Array | null;
  isTime: boolean;
  tick: Labels["tick"];
  title: string;
  units: string;
  /** What values are called, if they are classes: the line goes in steps, and the axis has their names. */
  classes: Palette["classes"];
  /** Index of the first value. */
  begin: number;
  isCut: boolean;
  /** Label of a value. */
  text: (i: number) => string;
}

const MIN_HEIGHT = 190;
const ROW = 18;
const [BOTTOM, TOP] = [22, 8];
const MAX_ROWS = 1000;

export function Series({ series }: { series: SeriesData }) {
  const frame = useRef<HTMLDivElement>(null);
  const width = useWidth(frame) || 600;
  const [at, setAt] = useState<number | null>(null);
  const { values, units } = series;
  const kinds = useMemo(() => (series.classes.length ? [...new Set(values)].filter((v) => !Number.isNaN(v)).sort((a, b) => a - b) : null), [series]);
  const drawn = useMemo(() => (kinds ? values.map((v) => (Number.isNaN(v) ? v : kinds.indexOf(v))) : values), [series]);
  const height = Math.max(MIN_HEIGHT, TOP + BOTTOM + ROW * (kinds?.length ?? 0));
  const named = (v: number) => series.classes.find((c) => c.value === v)?.text ?? value(v);
  let [low, high] = [Infinity, -Infinity];
  for (const x of drawn) {
    if (x < low) low = x;
    if (x > high) high = x;
  }
  const hasValues = low <= high;
  const range = high - low;
  if (kinds) [low, high] = [-0.5, kinds.length - 0.5];
  else if (low === high) [low, high] = [low - (Math.abs(low) || 1), high + (Math.abs(high) || 1)];
  const marks = useMemo(() => {
    if (kinds) return kinds.map((v, i) => ({ at: i, text: shortened(named(v)) }));
    const { step, at } = hasValues ? round([low, high], 6) : { step: 0, at: [] };
    return at.map((v) => ({ at: v, text: tickText(v, step) }));
  }, [series, low, high]);
  const said = (i: number) => (kinds && !Number.isNaN(values[i]) ? named(values[i]) : value(exact(values, i), range));
  const left = Math.max(...marks.map((m) => m.text.length), 5) * 7 + 16;
  const { at: part, gaps } = useMemo(() => spread(series), [series]);
  const x = (i: number) => left + part[i] * (width - left - 6);
  const y = (v: number) => TOP + (1 - (v - low) / (high - low)) * (height - TOP - BOTTOM);
  const [path, dots] = line(drawn, gaps, x, y, kinds !== null);
  const below = along(series, Math.max(2, Math.min(7, Math.floor((width - left) / 130)))).map((tick) => ({ ...tick, at: left + tick.at * (width - left - 6) }));
  const show = (i: number) => setAt(Math.max(0, Math.min(values.length - 1, i)));
  const move = (event: PointerEvent) => {
    const place = (event.clientX - frame.current!.getBoundingClientRect().left - left) / (width - left - 6);
    show(part.reduce((best, p, i) => (Math.abs(p - place) < Math.abs(part[best] - place) ? i : best), 0));
  };
  const onKeyDown = (event: KeyboardEvent) => {
    const step = event.shiftKey ? 10 : 1;
    const from = at ?? (event.key === "ArrowRight" ? -step : step);
    const to = { ArrowRight: from + step, ArrowLeft: from - step, Home: 0, End: values.length - 1 }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    show(to);
  };
  return (
    <section class="series" aria-label="Series">
      <h3>{series.title}{units && <span class="quiet"> in {units}</span>}</h3>
      {series.isCut && <p class="quiet small">The {count(values.length)} values from index {count(series.begin)} on are drawn.</p>}
      {gaps.size > 0 && <p class="quiet small" data-note="gaps">The line breaks at {counted(gaps.size, "gap")} in time.</p>}
      <div ref={frame}>
        {hasValues ? (
          <svg
            width={width} height={height} role="application" tabindex={0} data-series="line" onPointerMove={move} onKeyDown={onKeyDown}
            aria-label={`${series.title}: ${kinds ? kinds.map(named).join(", ") : `from ${value(low, range)} to ${value(high, range)} ${units}`}. Arrow keys move along the series.`}
          >
            {marks.map(({ at: v, text }) => (
              <g key={v} data-tick="value">
                <line x1={left} x2={width - 6} y1={y(v)} y2={y(v)} class="grid" />
                <text x={left - 8} y={y(v) + 4} class="tick" text-anchor="end">{text}</text>
              </g>
            ))}
            <path d={path} class="line" />
            {dots.map((i) => <circle key={i} cx={x(i)} cy={y(drawn[i])} r="2" class="dot" />)}
            {at !== null && !Number.isNaN(drawn[at]) && <circle cx={x(at)} cy={y(drawn[at])} r="4" class="dot" />}
            {below.map(({ at, text }) => (
              <g key={at} data-tick="along" data-at={at}>
                <line x1={at} x2={at} y1={height - BOTTOM} y2={height - BOTTOM + 4} class="border" />
                <text x={at} y={height - 5} class="tick" text-anchor={at + 3.5 * text.length > width ? "end" : at - 3.5 * text.length < 0 ? "start" : "middle"}>{text}</text>
              </g>
            ))}
          </svg>
        ) : (
          <p class="quiet">There is no value along the whole series.</p>
        )}
      </div>
      <p class="readout" aria-live="polite" data-readout="series">{at !== null && <><strong>{said(at)} {!kinds && units}</strong> at {series.text(at)}</>}</p>
      <details>
        <summary>Values as a table</summary>
        <table class="values">
          <thead><tr><th scope="col">at</th><th scope="col" class="number">value {!kinds && units && `(${units})`}</th></tr></thead>
          <tbody>{[...values.slice(0, MAX_ROWS)].map((v, i) => <tr key={i}><th scope="row">{series.text(i)}</th><td class="number" data-value={v}>{said(i)}</td></tr>)}</tbody>
        </table>
        {values.length > MAX_ROWS && <p class="quiet small">The first {count(MAX_ROWS)} values are listed.</p>}
      </details>
    </section>
  );
}

/** Where each value is, from 0 to 1, and which values come after a gap: a step of time that is longer than others. */
function spread({ values, places, isTime }: SeriesData): { at: number[]; gaps: Set<number> } {
  const n = values.length;
  const isOrdered = hasOrder(places);
  const steps = places ? Array.from({ length: n - 1 }, (_, i) => places[i + 1] - places[i]) : [];
  const span = places ? places[n - 1] - places[0] : 0;
  const usual = steps.map(Math.abs).sort((a, b) => a - b)[steps.length >> 1];
  const gaps = isTime && isOrdered ? steps.flatMap((x, i) => (Math.abs(x) > 1.5 * usual ? [i + 1] : [])) : [];
  const at = Array.from(values, (_, i) => (n < 2 ? 0 : isOrdered ? (places![i] - places![0]) / span : i / (n - 1)));
  return { at, gaps: new Set(gaps) };
}

function hasOrder(places: Float64Array | null): places is Float64Array {
  return places !== null && places.every((x, i) => i === 0 || (x - places[i - 1]) * (places[places.length - 1] - places[0]) > 0);
}

/** Ticks along the dimension, from 0 to 1: at round numbers, or at elements with their labels. */
function along({ values, places, tick, text }: SeriesData, most: number): Tick[] {
  const n = values.length;
  if (n < 2) return [{ at: 0, text: text(0) }];
  const isOrdered = hasOrder(places);
  const positions = isOrdered ? places : Float64Array.from(values.keys());
  const [a, b] = [positions[0], positions[n - 1]];
  const range: [number, number] = [Math.min(a, b), Math.max(a, b)];
  const { step, at } = round(range, most);
  const made = isOrdered && tick ? at.map((x) => ({ at: x, text: tick(x, step) })) : elementTicks(positions, text, range, most);
  return made.map((x) => ({ ...x, at: (x.at - a) / (b - a) }));
}

const shortened = (text: string): string => (text.length > 24 ? `${text.slice(0, 23)}…` : text);

/** Return the path of a line that is broken where there is no value or no time, and the values that have no neighbour. */
function line(values: Float64Array, gaps: Set<number>, x: (i: number) => number, y: (v: number) => number, isStepped: boolean): [string, number[]] {
  let path = "";
  const alone: number[] = [];
  const isBroken = (i: number) => i <= 0 || i >= values.length || gaps.has(i) || Number.isNaN(values[i - 1]) || Number.isNaN(values[i]);
  for (let i = 0; i < values.length; i += 1) {
    if (Number.isNaN(values[i])) continue;
    if (isBroken(i) && isBroken(i + 1)) alone.push(i);
    if (isStepped && !isBroken(i)) path += `H${((x(i - 1) + x(i)) / 2).toFixed(1)}V${y(values[i]).toFixed(1)}`;
    path += `${isBroken(i) ? "M" : "L"}${x(i).toFixed(1)} ${y(values[i]).toFixed(1)}`;
  }
  return [path, alone];
}
