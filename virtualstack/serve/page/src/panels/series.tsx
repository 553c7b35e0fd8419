/** Values along a dimension at a point, as a line and as a table. */

import { useRef, useState } from "preact/hooks";
import { useWidth } from "../common";
import { count, value } from "../text";

export interface SeriesData {
  values: Float64Array;
  title: string;
  units: string;
  /** Index of the first value. */
  begin: number;
  isCut: boolean;
  /** Label of a value. */
  text: (i: number) => string;
}

const HEIGHT = 190;
const [LEFT, BOTTOM, TOP] = [58, 22, 8];
const MAX_ROWS = 1000;

export function Series({ series }: { series: SeriesData }) {
  const frame = useRef<HTMLDivElement>(null);
  const width = useWidth(frame) || 600;
  const [at, setAt] = useState<number | null>(null);
  const { values, units } = series;
  let [low, high] = [Infinity, -Infinity];
  for (const x of values) {
    if (x < low) low = x;
    if (x > high) high = x;
  }
  const hasValues = low <= high;
  if (low === high) [low, high] = [low - 1, high + 1];
  const x = (i: number) => LEFT + (values.length > 1 ? (i / (values.length - 1)) * (width - LEFT - 6) : 0);
  const y = (v: number) => TOP + (1 - (v - low) / (high - low)) * (HEIGHT - TOP - BOTTOM);
  const [path, dots] = line(values, x, y);
  const show = (i: number) => setAt(Math.max(0, Math.min(values.length - 1, i)));
  const move = (event: PointerEvent) => {
    const place = (event.clientX - frame.current!.getBoundingClientRect().left - LEFT) / (width - LEFT - 6);
    show(Math.round(place * (values.length - 1)));
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
      <h3>{series.title}</h3>
      {series.isCut && <p class="quiet small">The {count(values.length)} values from index {count(series.begin)} on are drawn.</p>}
      <div ref={frame}>
        {hasValues ? (
          <svg
            width={width} height={HEIGHT} role="application" tabindex={0} data-series="line" onPointerMove={move} onKeyDown={onKeyDown}
            aria-label={`${series.title}: from ${value(low)} to ${value(high)} ${units}. Arrow keys move along the series.`}
          >
            {[low, (low + high) / 2, high].map((v) => (
              <g key={v}>
                <line x1={LEFT} x2={width - 6} y1={y(v)} y2={y(v)} class="grid" />
                <text x={LEFT - 8} y={y(v) + 4} class="tick" text-anchor="end">{Number(v.toPrecision(4))}</text>
              </g>
            ))}
            <path d={path} class="line" />
            {dots.map((i) => <circle key={i} cx={x(i)} cy={y(values[i])} r="2" class="dot" />)}
            {at !== null && !Number.isNaN(values[at]) && <circle cx={x(at)} cy={y(values[at])} r="4" class="dot" />}
            <text x={LEFT} y={HEIGHT - 5} class="tick">{series.text(0)}</text>
            <text x={width - 6} y={HEIGHT - 5} class="tick" text-anchor="end">{series.text(values.length - 1)}</text>
          </svg>
        ) : (
          <p class="quiet">There is no value along the whole series.</p>
        )}
      </div>
      <p class="readout" aria-live="polite" data-readout="series">{at !== null && <><strong>{value(values[at])} {units}</strong> at {series.text(at)}</>}</p>
      <details>
        <summary>Values as a table</summary>
        <table class="values">
          <thead><tr><th scope="col">at</th><th scope="col" class="number">value {units && `(${units})`}</th></tr></thead>
          <tbody>{[...values.slice(0, MAX_ROWS)].map((v, i) => <tr key={i}><th scope="row">{series.text(i)}</th><td class="number" data-value={v}>{value(v)}</td></tr>)}</tbody>
        </table>
        {values.length > MAX_ROWS && <p class="quiet small">The first {count(MAX_ROWS)} values are listed.</p>}
      </details>
    </section>
  );
}

/** Return the path of a line that is broken where there is no value, and the values that have no neighbour. */
function line(values: Float64Array, x: (i: number) => number, y: (v: number) => number): [string, number[]] {
  let path = "";
  const alone: number[] = [];
  for (let i = 0; i < values.length; i += 1) {
    if (Number.isNaN(values[i])) continue;
    const isFirst = i === 0 || Number.isNaN(values[i - 1]);
    if (isFirst && (i === values.length - 1 || Number.isNaN(values[i + 1]))) alone.push(i);
    path += `${isFirst ? "M" : "L"}${x(i).toFixed(1)} ${y(values[i]).toFixed(1)}`;
  }
  return [path, alone];
}
