/** Dates of every calendar of the CF conventions. */

const UNITS = /^\s*(days?|hours?|hrs?|h|minutes?|mins?|seconds?|secs?|s|milliseconds?|microseconds?|nanoseconds?|d)\s+since\s+(\S.*)$/i;
/** Beginnings of units; "mil" and "mic" come before "mi". */
const MILLISECONDS: [string, number][] = [["mil", 1], ["mic", 1e-3], ["n", 1e-6], ["mi", 6e4], ["d", 864e5], ["h", 36e5], ["s", 1e3]];
const ORIGIN = /^([+-]?\d{1,5})-(\d{1,2})-(\d{1,2})(?:(?:T|\s+)(\d{1,2}):(\d{1,2})(?::(\d{1,2}(?:\.\d*)?))?)?\s*(?:Z|UTC|GMT|([+-])(\d{1,2}):?(\d{2})?)?\s*$/i;
const DAY = 864e5;
/** First day of the Gregorian calendar, as the others count them. */
const REFORM = 2299161;

type Date3 = [year: number, month: number, day: number];

interface Calendar {
  toDay(date: Date3): number;
  toDate(day: number): Date3;
}

/** Day number of a date, from Julian day 0, by Fliegel's and Richards' formulas. */
function toDay([year, month, day]: Date3, isJulian: boolean): number {
  const early = Math.floor((14 - month) / 12);
  const [y, m] = [year + 4800 - early, month + 12 * early - 3];
  const leap = isJulian ? -32083 : -Math.floor(y / 100) + Math.floor(y / 400) - 32045;
  return day + Math.floor((153 * m + 2) / 5) + 365 * y + Math.floor(y / 4) + leap;
}

function toDate(day: number, isJulian: boolean): Date3 {
  const a = day + 32044;
  const b = isJulian ? 0 : Math.floor((4 * a + 3) / 146097);
  const c = isJulian ? day + 32082 : a - Math.floor((146097 * b) / 4);
  const d = Math.floor((4 * c + 3) / 1461);
  const e = c - Math.floor((1461 * d) / 4);
  const m = Math.floor((5 * e + 2) / 153);
  return [100 * b + d - 4800 + Math.floor(m / 10), m + 3 - 12 * Math.floor(m / 10), e - Math.floor((153 * m + 2) / 5) + 1];
}

/** A calendar whose years are all alike. */
function even(lengths: number[]): Calendar {
  const total = lengths.reduce((a, b) => a + b);
  return {
    toDay: ([year, month, day]) => year * total + lengths.slice(0, month - 1).reduce((a, b) => a + b, 0) + day - 1,
    toDate: (day) => {
      const year = Math.floor(day / total);
      let [month, rest] = [0, day - year * total];
      while (rest >= lengths[month]) rest -= lengths[month++];
      return [year, month + 1, rest + 1];
    },
  };
}

const gregorian: Calendar = { toDay: (x) => toDay(x, false), toDate: (x) => toDate(x, false) };
const julian: Calendar = { toDay: (x) => toDay(x, true), toDate: (x) => toDate(x, true) };
const standard: Calendar = {
  toDay: (x) => (gregorian.toDay(x) >= REFORM ? gregorian : julian).toDay(x),
  toDate: (x) => (x >= REFORM ? gregorian : julian).toDate(x),
};
const noleap = even([31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31]);
const allLeap = even([31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31]);
const CALENDARS: Record<string, Calendar> = {
  standard, gregorian: standard, proleptic_gregorian: gregorian, julian,
  noleap, "365_day": noleap, all_leap: allLeap, "366_day": allLeap, "360_day": even(Array(12).fill(30)),
};

/** Return how numbers become dates, in UTC and to the minute or second, or `null` if their units are not those of time. */
export function dates(units: string, calendar: string): ((x: number, isFine?: boolean) => string) | null {
  const found = UNITS.exec(units);
  const used = CALENDARS[calendar.toLowerCase()];
  const origin = found && ORIGIN.exec(found[2]);
  if (!found || !used || !origin) return null;
  const word = found[1].toLowerCase();
  const step = MILLISECONDS.find(([begin]) => word.startsWith(begin))![1];
  const [year, month, day, hour, minute, second] = origin.slice(1, 7).map((x) => Number(x ?? 0));
  const sign = origin[7] === "-" ? -1 : 1;
  const offset = sign * (36e5 * Number(origin[8] ?? 0) + 6e4 * Number(origin[9] ?? 0));
  const first = used.toDay([year, month, day]);
  const begin = 36e5 * hour + 6e4 * minute + 1000 * second - offset;
  return (x, isFine = false) => {
    const moment = Math.round(begin + x * step);
    const days = Math.floor(moment / DAY);
    const [y, m, d] = used.toDate(first + days);
    const seconds = Math.floor((moment - days * DAY) / 1000);
    const minutes = Math.floor(seconds / 60);
    const two = (n: number) => String(n).padStart(2, "0");
    const text = `${y < 0 ? "-" : ""}${String(Math.abs(y)).padStart(4, "0")}-${two(m)}-${two(d)}`;
    return seconds < 1 ? text : `${text} ${two(Math.floor(minutes / 60))}:${two(minutes % 60)}${isFine ? `:${two(seconds % 60)}` : ""}`;
  };
}
