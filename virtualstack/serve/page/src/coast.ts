/** Coastlines of Natural Earth, fetched when a picture has a place. */

import { mesh } from "topojson-client";
import type { GeometryObject, Topology } from "topojson-specification";
import land from "world-atlas/land-110m.json";
import type { Pair } from "./geometry";

const topology = land as unknown as Topology<{ land: GeometryObject }>;

/** Lines of longitude and latitude. */
export const coast = mesh(topology, topology.objects.land).coordinates as Pair[][];
