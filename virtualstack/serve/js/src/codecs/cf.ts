/** `virtualstack.cf`: stored numbers to the values that `xr.open_dataset` shows. */

import { type Json, object } from "../checks.js";
import { cast, type DType, type Numbers, numbers } from "../dtype.js";
import { ManifestError, UnsupportedFeatureError } from "../errors.js";

const NAT = -(2n ** 63n);
const MAX_INT64 = 2n ** 63n - 1n;
/** 1582-10-15, in nanoseconds since 1970. */
const REFORM = BigInt(Date.UTC(1582, 9, 15)) * 1_000_000n;
const NS: Record<string, bigint> = {
  ns: 1n, us: 1_000n, ms: 1_000_000n, s: 1_000_000_000n, m: 60_000_000_000n, h: 3_600_000_000_000n, D: 86_400_000_000_000n,
};
const NOT_FINITE: Record<string, number> = { NaN, Infinity, "-Infinity": -Infinity };
const UNITS: Record<string, string> = {
  nanosecond: "ns", microsecond: "us", millisecond: "ms", second: "s", minute: "m", hour: "h", day: "D",
};

/** Decode numbers of one data type to values of another. */
export function decodeCf(stored: Numbers, storedType: DType, type: DType, configuration: Json): Numbers {
  const attributes = object(configuration["attributes"], "attributes of virtualstack.cf");
  const unsigned = attributes["_Unsigned"];
  const reinterpret = reinterpreted(storedType, unsigned);
  const raw = reinterpret ? numbers(reinterpret, new Uint8Array(stored.buffer, stored.byteOffset, stored.byteLength)) : stored;
  const fills = new Set<number | bigint>();
  for (const name of ["missing_value", "_FillValue"]) {
    for (const x of values(attributes, name)) {
      if (Number.isNaN(x)) continue;
      fills.add(reinterpret && name === "_FillValue" ? cast(asNumbers(x, storedType, reinterpret), reinterpret)[0] : x);
    }
  }
  if (type.kind === "M" || type.kind === "m") return times(raw, fills, type, attributes);
  const scale = value(attributes, "scale_factor");
  const offset = value(attributes, "add_offset");
  const out = cast(raw, type);
  if (type.kind !== "f") {
    if (fills.size || !"iu".includes(type.kind)) throw new UnsupportedFeatureError(`virtualstack.cf to ${String(type.description)}`);
    return integers(out, scale ?? 1, offset ?? 0);
  }
  const floats = out as Float64Array;
  const fillNumbers = [...fills].map(Number);
  const compared = isMaskedAsSingle(storedType, attributes, type) ? Math.fround : Number;
  const masked = fillNumbers.length ? (i: number) => fillNumbers.includes(compared(Number(raw[i]))) : null;
  // typed arrays round to their own precision after each step, as numpy does in place
  if (masked) for (let i = 0; i < floats.length; i++) if (masked(i)) floats[i] = NaN;
  if (scale !== undefined) for (let i = 0; i < floats.length; i++) floats[i] *= Number(scale);
  if (offset !== undefined) for (let i = 0; i < floats.length; i++) floats[i] += Number(offset);
  return floats;
}

/**
 * Whether xarray casts numbers to float32 before it compares them with fill values.
 *
 * Then a large integer may differ from the fill value that it is. xarray casts to the type of `scale_factor` if that is
 * the only attribute, or if `add_offset` has the same type and integers have fewer than 4 bytes.
 */
function isMaskedAsSingle(stored: DType, attributes: Json, type: DType): boolean {
  const [scale, offset] = [attributes["scale_factor"], attributes["add_offset"]].map((x) => (x === undefined ? null : Object.keys(x as Json)[0]));
  if (offset !== null) return scale === offset && scale === "float32" && stored.itemsize !== 4;
  return scale !== null ? scale === "float32" : type.itemsize === 4;
}

/** Multiply and add whole numbers, which wrap as those of numpy do. */
function integers(out: Numbers, scale: number | bigint, offset: number | bigint): Numbers {
  const isBig = out instanceof BigInt64Array || out instanceof BigUint64Array;
  if (!isBig) for (let i = 0; i < out.length; i++) out[i] = Math.imul(out[i], Number(scale)) + Number(offset);
  else for (let i = 0; i < out.length; i++) out[i] = out[i] * BigInt(scale) + BigInt(offset);
  return out;
}

function reinterpreted(dtype: DType, unsigned: unknown): DType | null {
  const said = typeof unsigned === "string" ? unsigned.toLowerCase() : unsigned;
  if (dtype.kind === "i" && said === "true") return { ...dtype, kind: "u" };
  if (dtype.kind === "u" && said === "false") return { ...dtype, kind: "i" };
  return null;
}

function asNumbers(x: number | bigint, storedType: DType, reinterpret: DType): Numbers {
  const one = numbers(storedType, 1);
  one[0] = typeof one[0] === "bigint" ? BigInt(x) : Number(x);
  return numbers(reinterpret, new Uint8Array(one.buffer));
}

/** Return the numbers of an attribute: `{"int16": -1}`, with a list for several. */
function values(attributes: Json, name: string): number[] {
  if (attributes[name] === undefined) return [];
  const entries = Object.entries(object(attributes[name], `'${name}' of virtualstack.cf`));
  const [kind, said] = entries.length === 1 ? entries[0] : ["", null];
  return (Array.isArray(said) ? said : [said]).map((x: unknown) => {
    const number = typeof x === "string" ? NOT_FINITE[x] : x;
    if (typeof number === "number" && isOfType(number, kind)) return number;
    throw new ManifestError(`the store is damaged: '${name}' of virtualstack.cf is ${JSON.stringify(attributes[name])}`);
  });
}

function isOfType(x: number, kind: string): boolean {
  const [, isUnsigned, bits] = /^(u?)int(8|16|32|64)$/.exec(kind) ?? [];
  if (!bits) return /^(python|float(16|32|64))$/.test(kind);
  const most = 2 ** (Number(bits) - (isUnsigned ? 0 : 1)); // a number of JSON rounds the greatest one of 64 bits to this
  return Number.isInteger(x) && x >= (isUnsigned ? 0 : -most) && (x < most || (x === most && bits === "64"));
}

/** Return the number of an attribute that has one. */
function value(attributes: Json, name: string): number | undefined {
  const found = values(attributes, name);
  if (attributes[name] !== undefined && found.length !== 1) {
    throw new ManifestError(`the store is damaged: '${name}' of virtualstack.cf has ${found.length} numbers`);
  }
  return found[0];
}

function times(raw: Numbers, fills: Set<number | bigint>, type: DType, attributes: Json): BigInt64Array {
  const units = String(attributes["units"]);
  const match = type.kind === "M" ? /^(.+?)\s+since\s+(.+)$/i.exec(units) : [units, units, ""];
  const stored = UNITS[match?.[1].trim().toLowerCase().replace(/s$/, "") ?? ""];
  const step = NS[type.unit ?? ""];
  const calendar = String(attributes["calendar"] ?? "standard").toLowerCase();
  if (!match || !stored || !step || (type.kind === "M" && !/^(standard|gregorian|proleptic_gregorian)$/.test(calendar))) {
    throw new UnsupportedFeatureError(`virtualstack.cf with times '${units}' of the calendar '${calendar}' as ${String(type.description)}`);
  }
  const isMixed = type.kind === "M" && calendar !== "proleptic_gregorian";
  const [epoch, isJulian] = type.kind === "M" ? instant(match[2], isMixed) : [0n, false];
  const fillNumbers = [...fills].map(Number);
  const isFloat = raw instanceof Float32Array || raw instanceof Float64Array;
  const out = new BigInt64Array(raw.length);
  for (let i = 0; i < raw.length; i++) {
    const x = raw[i];
    if (Number.isNaN(x) || x === NAT || fillNumbers.includes(Number(x))) {
      out[i] = NAT;
      continue;
    }
    // cftime, which xarray asks about dates since such a day, rounds floats in another way
    if (isJulian && !Number.isInteger(Number(x))) throw new UnsupportedFeatureError(`times '${units}' that are not whole`);
    const at = epoch + (isFloat && !isJulian ? nanoseconds(x as number, stored) : BigInt(x) * NS[stored]);
    if ((isMixed && at < REFORM) || at / step > MAX_INT64 || at / step <= NAT) {
      throw new UnsupportedFeatureError(`the time ${x} '${units}', which xarray shows as an object of cftime`);
    }
    out[i] = floorDiv(at, step);
  }
  return out;
}

/** Return a float of some unit in nanoseconds: multiplied as a float, and cut off, as xarray does. */
function nanoseconds(x: number, unit: string): bigint {
  return BigInt(Math.trunc(x * Number(NS[unit])));
}

const floorDiv = (a: bigint, b: bigint): bigint => (a - (((a % b) + b) % b)) / b;

/**
 * Return nanoseconds since 1970 (UTC) of a reference date of CF, and whether it is a date of the Julian calendar.
 *
 * The standard calendar is the Julian one before 1582-10-15.
 */
function instant(date: string, isMixed: boolean): [bigint, boolean] {
  const match = /^(\d{1,4})-(\d{1,2})-(\d{1,2})(?:[T\s]+(\d{1,2}):(\d{1,2})(?::(\d{1,2})(?:\.(\d{1,9}))?)?)?\s*(Z|UTC|[+-]\d{1,2}:?\d{0,2})?$/i.exec(date.trim());
  if (!match) throw new UnsupportedFeatureError(`the reference date '${date}'`);
  const [, y, mo, d, h, mi, s, fraction, zone] = match;
  const at = new Date(0);
  at.setUTCFullYear(Number(y), Number(mo) - 1, Number(d));
  at.setUTCHours(Number(h ?? 0), Number(mi ?? 0), Number(s ?? 0));
  const shift = /^([+-])(\d{1,2}):?(\d{0,2})$/.exec(zone ?? "");
  const minutes = shift ? (shift[1] === "-" ? -1 : 1) * (60 * Number(shift[2]) + Number(shift[3] || 0)) : 0;
  const isJulian = isMixed && Number(y) * 10_000 + Number(mo) * 100 + Number(d) < 15821015;
  const century = Math.floor((Number(mo) <= 2 ? Number(y) - 1 : Number(y)) / 100);
  const days = isJulian ? 2 - century + Math.floor(century / 4) : 0; // from the proleptic calendar to the Julian one
  const milliseconds = at.getTime() - 60_000 * minutes - 86_400_000 * days;
  return [BigInt(milliseconds) * 1_000_000n + BigInt((fraction ?? "").padEnd(9, "0")), isJulian];
}
