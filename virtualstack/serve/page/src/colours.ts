/** Colours that people with any colour vision tell apart: Paul Tol's schemes, and maps that are even in lightness. */

/** For kinds without order. */
export const KINDS = ["#4477aa", "#ddaa33", "#228833", "#aa3377", "#66ccee", "#cc6677", "#88aa55", "#999933", "#44aa99", "#bb8866"];

export function kind(number: number): string {
  return KINDS[number % KINDS.length];
}

/** The colour of a class: each ten are lighter or darker than those before, so that no two of fifty are the same. */
export function classColour(number: number): string {
  const [towards, part] = [[0, 0], [255, 0.55], [0, 0.45], [255, 0.3], [0, 0.7]][Math.floor(number / KINDS.length) % 5];
  return kind(number).replace(/[0-9a-f]{2}/g, (x) => Math.round(parseInt(x, 16) * (1 - part) + towards * part).toString(16).padStart(2, "0"));
}

const MAPS: Record<string, [number, number, number][]> = {
  viridis: [[68, 1, 84], [72, 40, 120], [62, 74, 137], [49, 104, 142], [38, 130, 142], [31, 158, 137], [53, 183, 121], [109, 205, 89], [180, 222, 44], [253, 231, 37]],
  cividis: [[0, 34, 78], [18, 53, 112], [59, 73, 108], [87, 93, 109], [112, 113, 115], [138, 134, 120], [165, 156, 116], [195, 179, 105], [225, 204, 85], [254, 232, 56]],
  "blue to red": [[33, 102, 172], [67, 147, 195], [146, 197, 222], [209, 229, 240], [247, 247, 247], [253, 219, 199], [244, 165, 130], [214, 96, 77], [178, 24, 43]],
  grey: [[20, 20, 20], [245, 245, 245]],
};

export const MAP_NAMES = Object.keys(MAPS);

/** 256 colours of a map, as red, green and blue. */
export function table(name: string): Uint8ClampedArray {
  const stops = MAPS[name];
  const made = new Uint8ClampedArray(256 * 3);
  for (let i = 0; i < 256; i += 1) {
    const at = (i / 255) * (stops.length - 1);
    const low = Math.min(Math.floor(at), stops.length - 2);
    for (let c = 0; c < 3; c += 1) made[3 * i + c] = stops[low][c] + (at - low) * (stops[low + 1][c] - stops[low][c]);
  }
  return made;
}

/** How the values of a variable become colours. */
export interface Palette {
  kind: "sequential" | "diverging" | "classes";
  /** Values of classes, what they are called, and their colours. */
  classes: { value: number; text: string; colour: string }[];
  /** What the bits of a number mean. */
  masks: { mask: number; value: number; text: string }[];
}

/** What kind of numbers a variable has, by its attributes and the values of a sample in order. */
export function palette(attributes: Record<string, unknown>, sorted: ArrayLike<number>, bits = 8): Palette {
  // attributes of unsigned numbers of netCDF-3 are signed
  const listed = (x: unknown) => (Array.isArray(x) ? x : typeof x === "number" ? [x] : []).map((y) => (Number(y) < 0 && String(attributes._Unsigned) === "true" ? Number(y) + 2 ** bits : Number(y)));
  const words = (x: unknown) => (typeof x === "string" ? x.trim().split(/\s+/) : []);
  const [flags, bitsOf, meanings] = [listed(attributes.flag_values), listed(attributes.flag_masks), words(attributes.flag_meanings).map((x) => x.replaceAll("_", " "))];
  const masks = bitsOf.filter(Number.isSafeInteger).map((mask, i) => ({ mask, value: flags[i] ?? mask, text: meanings[i] ?? String(mask) }));
  const isBoolean = attributes.dtype === "bool"; // how xarray writes it
  if ((flags.length || isBoolean) && !masks.length) {
    const values = flags.length ? flags : [0, 1];
    const names = flags.length ? meanings : ["false", "true"];
    const own = words(attributes.flag_colors);
    const isOwn = own.length === values.length && own.every((x) => /^#[0-9a-f]{6}$/i.test(x));
    return { kind: "classes", masks, classes: values.map((value, i) => ({ value, text: names[i] ?? String(value), colour: isOwn ? own[i] : classColour(i) })) };
  }
  const [low, high] = [sorted[0], sorted[sorted.length - 1]];
  const isTemperature = /^\s*(deg(ree)?s?_?\s?)?c(elsius)?\s*$/i.test(String(attributes.units ?? "").replace("°", ""));
  const isBalanced = low < 0 && high > 0 && Math.min(-low, high) > 0.1 * Math.max(-low, high) && !isTemperature;
  const isAnomaly = /anomal/i.test(`${attributes.standard_name ?? ""} ${attributes.long_name ?? ""}`) && low < high;
  return { kind: isBalanced || isAnomaly ? "diverging" : "sequential", classes: [], masks };
}

/** The range of colours for a sample in order: all of it, or, if a few values are far out, what nearly all are in; with a value in its middle. */
export function rangeOf(sorted: ArrayLike<number>, middle: number | null): [number, number] {
  const n = sorted.length;
  if (!n) return [NaN, NaN];
  let [low, high] = [sorted[0], sorted[n - 1]];
  const [near, far] = [sorted[Math.floor(0.005 * (n - 1))], sorted[Math.ceil(0.995 * (n - 1))]];
  if (high - low > 4 * (far - near) && far > near) [low, high] = [near, far];
  if (middle === null) return [low, high];
  const most = Math.max(Math.abs(low - middle), Math.abs(high - middle));
  return [middle - most, middle + most];
}
