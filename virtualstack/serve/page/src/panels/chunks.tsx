/** The chunk map of a variable: each box is a chunk, or several chunks of a large variable. */

import { useEffect, useRef, useState } from "preact/hooks";
import { kind } from "../colours";
import { Radios, Stat, Swatch, useDark, useLoaded, useWidth, VariableChoice, Waiting, type Shown } from "../common";
import type { ChunkMap, Encoding } from "../facts";
import { codecs, count, counted, size } from "../text";
import { STATES } from "./variables";

type Colouring = "state" | "source" | "encoding";

interface Box {
  row: number;
  column: number;
}

export function ChunksPanel(props: Shown) {
  const variable = props.variable!;
  const map = useLoaded(() => props.facts.find(props.cube, "map", { variable: variable.path }), [variable.path]);
  return (
    <>
      <h2>Chunks of {variable.path}</h2>
      <div class="controls"><VariableChoice {...props} /></div>
      <Waiting of={map}>{(found) => <Drawn map={found} key={found.name} />}</Waiting>
    </>
  );
}

function Drawn({ map }: { map: ChunkMap }) {
  const [colouring, setColouring] = useState<Colouring>("state");
  const [box, setBox] = useState<Box | null>(null);
  if (!map.n_chunks || !map.states.length) return <p class="quiet">This variable has no chunk.</p>;
  const isReduced = map.states.length * map.states[0].length < map.n_chunks;
  return (
    <>
      <dl class="stats">
        <Stat label="chunks" id="map-chunks">{count(map.n_chunks)}</Stat>
        {STATES.map((x) => (
          <Stat key={x.name} label={x.text} id={`map-${x.name}`}><Swatch of={x.swatch} />{count(map[x.name])}</Stat>
        ))}
        <Stat label="stored" id="map-stored">{size(map.nbytes)}</Stat>
      </dl>
      <Radios
        legend="Colour by" name="colouring" value={colouring} onChange={(x) => setColouring(x as Colouring)}
        values={[["state", "state"], ["source", "source"], ["encoding", "stored form"]]}
      />
      <Canvas map={map} colouring={colouring} box={box} setBox={setBox} />
      <p class="readout" aria-live="polite" data-readout="chunk">
        {box ? <Readout map={map} box={box} /> : <span class="quiet">Point at a box, or use the arrow keys on the map.{isReduced && " A box stands for several chunks."}</span>}
      </p>
      <Key map={map} colouring={colouring} />
    </>
  );
}

function Canvas(props: { map: ChunkMap; colouring: Colouring; box: Box | null; setBox: (x: Box | null) => void }) {
  const { map, colouring, box, setBox } = props;
  const frame = useRef<HTMLDivElement>(null);
  const canvas = useRef<HTMLCanvasElement>(null);
  const width = useWidth(frame);
  const isDark = useDark();
  const rows = map.states.length;
  const columns = map.states[0].length;
  const cell = Math.max(1, Math.min(28, Math.floor(width / columns)));
  const height = Math.round(Math.min(420, Math.max(rows * cell, Math.min(rows * 16, 220), 56)));
  const drawn = columns * cell >= width * 0.6 ? width : columns * cell;
  const x = (i: number) => Math.round((i * drawn) / columns);
  const y = (i: number) => Math.round((i * height) / rows);
  useEffect(() => {
    if (!width) return;
    const ratio = devicePixelRatio || 1;
    const at = canvas.current!;
    at.width = drawn * ratio;
    at.height = height * ratio;
    const context = at.getContext("2d")!;
    context.scale(ratio, ratio);
    const colours = new Colours(at, context);
    const gap = drawn / columns >= 6 && height / rows >= 6 ? 1 : 0;
    for (let row = 0; row < rows; row += 1) {
      for (let column = 0; column < columns; column += 1) {
        const [left, top] = [x(column), y(row)];
        const wide = Math.max(x(column + 1) - left - gap, 1);
        const high = Math.max(y(row + 1) - top - gap, 1);
        colours.fill(map, colouring, row, column, left, top, wide, high);
      }
    }
    if (box) {
      context.strokeStyle = colours.of("--text");
      context.lineWidth = 2;
      const wide = Math.max(x(box.column + 1) - x(box.column) - gap, 3);
      const high = Math.max(y(box.row + 1) - y(box.row) - gap, 3);
      context.strokeRect(x(box.column) + 1, y(box.row) + 1, wide - 2, high - 2);
    }
  }, [map, colouring, box, width, isDark]);
  const onMove = (event: PointerEvent) => {
    const at = canvas.current!.getBoundingClientRect();
    const column = Math.floor(((event.clientX - at.left) / drawn) * columns);
    const row = Math.floor(((event.clientY - at.top) / height) * rows);
    if (row >= 0 && column >= 0 && row < rows && column < columns) setBox({ row, column });
  };
  const onKeyDown = (event: KeyboardEvent) => {
    const step = event.shiftKey ? 10 : 1;
    const moves: Record<string, [number, number]> = {
      ArrowRight: [0, step], ArrowLeft: [0, -step], ArrowDown: [step, 0], ArrowUp: [-step, 0], Home: [0, -columns], End: [0, columns],
    };
    const move = moves[event.key];
    if (!move) return;
    event.preventDefault();
    const from = box ?? { row: 0, column: event.key === "ArrowRight" ? -1 : 0 };
    setBox({
      row: Math.max(0, Math.min(rows - 1, from.row + move[0])),
      column: Math.max(0, Math.min(columns - 1, from.column + move[1])),
    });
  };
  const across = map.column_axis === null ? "" : map.dims[map.column_axis];
  const down = map.row_axes.map((i) => map.dims[i]).join(" × ");
  return (
    <figure class="map" ref={frame}>
      <canvas
        ref={canvas} tabIndex={0} role="application" data-map="chunks" data-columns={columns} data-rows={rows}
        aria-label={`Chunk map of ${map.name}: ${rows} rows, ${columns} columns. Move with the arrow keys.`}
        style={{ width: `${drawn}px`, height: `${height}px` }}
        onPointerMove={onMove} onPointerDown={onMove} onKeyDown={onKeyDown}
      />
      {across && (
        <figcaption style={{ width: `${Math.max(drawn, Math.min(width, 280))}px` }}>
          <span>0</span><span>{across} →{down && `  ${down} ↓`}</span><span>{count(map.shape[map.column_axis!] - 1)}</span>
        </figcaption>
      )}
    </figure>
  );
}

/** Fill boxes with the colours of the style sheet. */
class Colours {
  private style: CSSStyleDeclaration;
  private hatch: CanvasPattern;

  constructor(at: HTMLElement, private context: CanvasRenderingContext2D) {
    this.style = getComputedStyle(at);
    const tile = document.createElement("canvas");
    tile.width = tile.height = 6;
    const on = tile.getContext("2d")!;
    on.fillStyle = this.of("--absent");
    on.fillRect(0, 0, 6, 6);
    on.strokeStyle = this.of("--absent-line");
    on.lineWidth = 1.5;
    on.beginPath();
    for (const i of [-6, 0, 6]) {
      on.moveTo(i, 6);
      on.lineTo(i + 6, 0);
    }
    on.stroke();
    this.hatch = context.createPattern(tile, "repeat")!;
  }

  of(name: string): string {
    return this.style.getPropertyValue(name).trim();
  }

  fill(map: ChunkMap, colouring: Colouring, row: number, column: number, left: number, top: number, wide: number, high: number) {
    const states = map.states[row][column];
    const total = states.reduce((a, b) => a + b, 0);
    const number = colouring === "state" ? -1 : map[colouring][row][column];
    let at = top;
    const draw = (colour: string | CanvasPattern, part: number) => {
      this.context.fillStyle = colour;
      this.context.fillRect(left, at, wide, part);
      at += part;
    };
    // What is lost is seen, however small its part.
    const lost = states[1] ? Math.max(Math.round((high * states[1]) / total), Math.min(high, 3)) : 0;
    if (number >= 0) {
      draw(kind(number), high - lost);
      if (lost) draw(this.hatch, lost);
      return;
    }
    const others = STATES.filter((x) => x.name !== "n_absent" && states[x.at] > 0);
    const sum = total - states[1];
    let rest = high - lost;
    others.forEach((x, i) => {
      const part = i === others.length - 1 ? rest : Math.round(((high - lost) * states[x.at]) / sum);
      draw(colouring === "state" || x.name !== "n_referenced" ? this.of(`--${x.swatch}`) : this.of("--empty"), part);
      rest -= part;
    });
    if (lost) draw(this.hatch, lost);
  }
}

/** Return the chunks of a box along each axis, as text. */
function place(map: ChunkMap, { row, column }: Box): string {
  const parts = new Array<string>(map.dims.length);
  const span = (first: number, stop: number) => (stop - first === 1 ? count(first) : `${count(first)} to ${count(stop - 1)}`);
  if (map.column_axis !== null) {
    const [first, stop] = [map.column_edges[column], map.column_edges[column + 1]];
    const elements = span(map.column_elements[column], map.column_elements[column + 1]);
    parts[map.column_axis] = `${map.dims[map.column_axis]} chunk ${span(first, stop)} (elements ${elements})`;
  }
  const [first, stop] = [map.row_edges[row], map.row_edges[row + 1]];
  if (stop - first === 1) {
    let rest = first;
    for (const axis of [...map.row_axes].reverse()) {
      parts[axis] = `${map.dims[axis]} chunk ${count(rest % map.grid_shape[axis])}`;
      rest = Math.floor(rest / map.grid_shape[axis]);
    }
    return parts.filter(Boolean).join(", ");
  }
  return [...parts.filter(Boolean), `${map.row_axes.map((i) => map.dims[i]).join(" × ")} rows ${span(first, stop)}`].join(", ");
}

function Readout({ map, box }: { map: ChunkMap; box: Box }) {
  const states = map.states[box.row][box.column];
  const source = map.source[box.row][box.column];
  const form = map.encodings[map.encoding[box.row][box.column]];
  const said = STATES.filter((x) => states[x.at] > 0).map((x) => (states.reduce((a, b) => a + b) === 1 ? x.text : `${count(states[x.at])} ${x.text}`));
  const where = place(map, box);
  return (
    <>
      {where && <strong>{where}: </strong>}{said.join(", ")}.
      {source >= 0 && <> Source <span class="url">{map.sources[source]}</span>.</>}
      {form && <> Stored as {form.dtype}, {codecs(form.codecs)}, in chunks of {form.chunk_shape.join(" × ") || 1}.</>}
    </>
  );
}

/** Return stored forms as text, and their numbers; forms that differ in settings alone share a text. */
function forms(encodings: Encoding[]): [string, number[]][] {
  const alike = new Map<string, number[]>();
  encodings.forEach((x, i) => {
    const text = `${x.dtype}, ${codecs(x.codecs)}, chunks of ${x.chunk_shape.join(" × ") || 1}`;
    alike.set(text, [...(alike.get(text) ?? []), i]);
  });
  return [...alike].map(([text, numbers]) => [numbers.length > 1 ? `${text}, ${numbers.length} settings` : text, numbers]);
}

const MAX_KEYS = 12;

/** What the colours mean. */
function Key({ map, colouring }: { map: ChunkMap; colouring: Colouring }) {
  if (colouring === "state") return null; // the counts above have the colours
  const rows = colouring === "source" ? map.sources.map((x, i): [string, number[]] => [x, [i]]) : forms(map.encodings);
  const shown = rows.slice(0, MAX_KEYS);
  const left = (colouring === "source" ? map.n_sources : map.n_encodings) - shown.reduce((n, [, numbers]) => n + numbers.length, 0);
  return (
    <>
      {colouring === "source" && map.source_prefix && <p class="quiet small">Sources below <span class="url">{map.source_prefix}</span></p>}
      <ul class="legend wide">{shown.map(([text, numbers]) => <li key={text}>{numbers.slice(0, MAX_KEYS).map((i) => <Swatch key={i} of={kind(i)} />)}<span class="url">{text}</span></li>)}</ul>
      {left > 0 && <p class="quiet small">{counted(left, colouring === "source" ? "more source" : "more form")}: colours repeat.</p>}
    </>
  );
}
