/** The archive along a dimension: eras in which all is stored alike, gaps, duplicates. */

import { useRef } from "preact/hooks";
import { FileNote, Guard, hasFacts, Stat, useFile, useLoaded, useWidth, Waiting, type Shown } from "../common";
import type { Era, Overview, Timeline } from "../facts";
import { count, counted } from "../text";

export function TimelinePanel(props: Shown & { overview: Overview }) {
  const file = useFile(props.facts);
  return (
    <>
      <h2>Timeline</h2>
      <FileNote file={file} of="Timeline of" what="The timeline is computed" overview={props.overview} />
      {hasFacts(file) && <Found {...props} />}
    </>
  );
}

function Found(props: Shown) {
  const timeline = useLoaded(() => props.facts.find(props.cube, "timeline"), []);
  return <Waiting of={timeline}>{(found) => <Guard><Drawn timeline={found} /></Guard>}</Waiting>;
}

function Drawn({ timeline }: { timeline: Timeline }) {
  if (!timeline.dim) return <p class="quiet">No dimension of this cube is known to be that along which its files follow each other.</p>;
  return (
    <>
      <p>
        Along <strong>{timeline.dim}</strong>, from {timeline.first} to {timeline.last}.
        {!timeline.is_to_scale && <span class="quiet"> The axis counts elements, as it has no coordinate values that ascend.</span>}
      </p>
      <dl class="stats">
        <Stat label={timeline.n_eras === 1 ? "era" : "eras"} id="eras">{count(timeline.n_eras)}</Stat>
        <Stat label={timeline.n_gaps === 1 ? "gap" : "gaps"} id="gaps">{count(timeline.n_gaps)}</Stat>
        <Stat label="missing steps" id="missing">{count(timeline.n_missing)}</Stat>
        <Stat label="duplicates" id="duplicates">{count(timeline.n_duplicates)}</Stat>
      </dl>
      <Picture timeline={timeline} />
      {timeline.remarks.map((x) => <p class="note" key={x}>{x}</p>)}
      <h3>Eras</h3>
      <ol class="eras">{timeline.eras.map((x, i) => <li key={i}><EraText era={x} /></li>)}</ol>
      {timeline.n_eras > timeline.eras.length && <p class="quiet">{count(timeline.n_eras - timeline.eras.length)} more</p>}
      {timeline.gaps.length > 0 && (
        <>
          <h3>Gaps</h3>
          <ul class="plain">{timeline.gaps.map((x, i) => <li key={i}>{x.series && `${x.series}: `}{counted(x.n_steps, "step")} missing between {x.after} and {x.before}</li>)}</ul>
        </>
      )}
      {timeline.duplicates.length > 0 && (
        <>
          <h3>Duplicates</h3>
          <ul class="plain">{timeline.duplicates.map((x, i) => <li key={i}>{x.text}{x.n_values !== null && ` (${count(x.n_values)})`}</li>)}</ul>
        </>
      )}
    </>
  );
}

function EraText({ era }: { era: Era }) {
  const changes = era.changes ? era.changes.split("; ") : [];
  return (
    <>
      {era.series && <span class="quiet">{era.series} </span>}
      <strong>{era.first}</strong>{era.last !== era.first && <> to <strong>{era.last}</strong></>}
      <span class="quiet"> {counted(era.n_files, "file")}{era.n_outliers > 0 && `, ${era.n_outliers} differ from the others`}</span>
      {changes.length > 0 && <ul class="changes">{changes.map((x) => <li key={x}>{x}</li>)}</ul>}
    </>
  );
}

const LINE = 44;

function Picture({ timeline }: { timeline: Timeline }) {
  const frame = useRef<HTMLDivElement>(null);
  const width = useWidth(frame) || 600;
  const series = [...new Set(timeline.eras.map((x) => x.series))];
  const height = series.length * LINE + 26;
  const x = (at: number) => 1 + at * (width - 2);
  const y = (name: string) => Math.max(series.indexOf(name), 0) * LINE + 4;
  const label = `${counted(timeline.n_eras, "era")}, ${counted(timeline.n_gaps, "gap")} from ${timeline.first} to ${timeline.last}`;
  return (
    <div class="timeline" ref={frame}>
      <svg width={width} height={height} role="img" aria-label={label}>
        <defs>
          <pattern id="gap" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">
            <rect width="6" height="6" class="gap-ground" /><line x1="0" y1="0" x2="0" y2="6" class="gap-line" />
          </pattern>
        </defs>
        {timeline.eras.map((era, i) => {
          const wide = Math.max(x(era.end) - x(era.begin), 2);
          return (
            <g key={i} data-era={i}>
              <title>{`${era.first} to ${era.last}\n${era.changes}`}</title>
              <rect x={x(era.begin)} y={y(era.series)} width={wide} height={LINE - 14} rx="3" class={`era era-${i % 2}`} />
              {wide > 26 && <text x={x(era.begin) + wide / 2} y={y(era.series) + LINE / 2 - 2} class="era-name">{era.number}</text>}
            </g>
          );
        })}
        {timeline.gaps.map((gap, i) => (
          <rect key={i} data-gap={i} x={x(gap.begin)} y={y(gap.series)} width={Math.max(x(gap.end) - x(gap.begin), 3)} height={LINE - 14} fill="url(#gap)">
            <title>{`${gap.n_steps} missing between ${gap.after} and ${gap.before}`}</title>
          </rect>
        ))}
        {timeline.duplicates.map((found, i) => found.at !== null && (
          <path key={i} data-duplicate={i} d={`M${x(found.at)} ${LINE - 14}l5 7-5 7-5-7z`} class="duplicate"><title>{found.text}</title></path>
        ))}
        <text x="0" y={height - 5} class="tick">{timeline.first}</text>
        <text x={width} y={height - 5} class="tick" text-anchor="end">{timeline.last}</text>
      </svg>
      <ul class="legend">
        <li><Swatches />eras, stored alike</li><li><span class="swatch gap" aria-hidden="true" />gap</li><li><span class="swatch diamond" aria-hidden="true" />duplicate</li>
      </ul>
    </div>
  );
}

function Swatches() {
  return <><span class="swatch era-0" aria-hidden="true" /><span class="swatch era-1" aria-hidden="true" /></>;
}
