/** Numbers, sizes and times as people write them. */

const UNITS = ["bytes", "kB", "MB", "GB", "TB", "PB"];

export function size(n: number): string {
  if (n === 1) return "1 byte";
  let unit = 0;
  while (n >= 1000 && unit < UNITS.length - 1) {
    n /= 1000;
    unit += 1;
  }
  return `${unit === 0 || n >= 100 ? n.toFixed(0) : n >= 10 ? n.toFixed(1) : n.toFixed(2)} ${UNITS[unit]}`;
}

/** A number with so many decimals at most, and commas; the formats of the browser take it tens of milliseconds to load. */
export function count(n: number, decimals = 0): string {
  const [whole, part = ""] = n.toFixed(decimals).split(".");
  const rest = part.replace(/0+$/, "");
  return whole.replace(/\B(?=(\d{3})+$)/g, ",") + (rest && `.${rest}`);
}

export function counted(n: number, noun: string): string {
  return `${count(n)} ${noun}${n === 1 ? "" : "s"}`;
}

/** A value with seven digits, or as many as tell values within a range apart. */
export function value(x: number | bigint | undefined, range = 0): string {
  if (x === undefined || Number.isNaN(Number(x))) return "no value";
  if (typeof x === "bigint") return String(x);
  const n = Number(x);
  if (Number.isInteger(n) && Math.abs(n) < 1e15) return String(n);
  if (!Number.isFinite(n)) return String(n);
  const small = Math.abs(n) < 1e-4 || Math.abs(n) >= 1e7;
  const digits = range > 0 ? Math.max(7, Math.min(15, Math.ceil(Math.log10(Math.abs(n) / range)) + 4)) : 7;
  const exact = Number(n.toPrecision(digits));
  return small ? exact.toExponential() : String(exact);
}

export function moment(seconds: number): string {
  return new Date(seconds * 1000).toISOString().slice(0, 19).replace("T", " ") + " UTC";
}

export function shape(dims: string[], lengths: (number | string)[]): string {
  return dims.map((dim, i) => `${dim} ${typeof lengths[i] === "number" ? count(lengths[i]) : lengths[i]}`).join(" × ");
}

/** Text of an attribute. */
export function attribute(x: unknown): string {
  if (typeof x === "string") return x;
  return Array.isArray(x) ? x.map(attribute).join(", ") : JSON.stringify(x);
}

export function codecs(names: string[]): string {
  return names.length ? names.join(" + ") : "no codec";
}

export function message(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
