/** Colours that people with any colour vision tell apart: Paul Tol's schemes, and maps that are even in lightness. */

/** For kinds without order. */
export const KINDS = ["#4477aa", "#ddaa33", "#228833", "#aa3377", "#66ccee", "#cc6677", "#88aa55", "#999933", "#44aa99", "#bb8866"];

export function kind(number: number): string {
  return KINDS[number % KINDS.length];
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
