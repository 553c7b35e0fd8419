/** Coastlines of Natural Earth, fetched when a picture has a place. */

import path from "world-atlas/land-110m.json"; // a file beside the page, which Python reads too
import type { Pair } from "./geometry";

interface Topology {
  /** Lines of differences between points. */
  arcs: Pair[][];
  transform: { scale: Pair; translate: Pair };
}

const answer = await fetch(new URL(path as unknown as string, import.meta.url));
const { arcs, transform } = (await answer.json()) as Topology;

/** Lines of longitude and latitude, without those that cut land where the map ends. */
export const coast = arcs
  .map((arc) => {
    const at: Pair = [0, 0];
    return arc.map((step) => step.map((by, i) => (at[i] += by) * transform.scale[i] + transform.translate[i]) as Pair);
  })
  .filter((line) => line.some(([lon]) => Math.abs(lon) < 180));
