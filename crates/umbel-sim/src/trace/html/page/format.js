// How numbers are written. Times are in nanoseconds throughout.

const UNITS = [["s", 1e9], ["ms", 1e6], ["µs", 1e3], ["ns", 1]];

/** Writes times of a run in one unit, with the digits that distinguish moments `step` apart. */
class Clock {
  constructor(end, step) {
    [this.unit, this.factor] = UNITS.find(([, factor]) => end >= 10 * factor) ?? UNITS[3];
    const digits = Math.ceil(Math.log10(this.factor / Math.max(step, 1)));
    this.digits = Math.min(Math.max(digits, 0), Math.round(Math.log10(this.factor)));
  }

  number(ns) {
    return (ns / this.factor).toFixed(this.digits);
  }

  text(ns) {
    return `${this.number(ns)} ${this.unit}`;
  }
}

/** Writes a duration in the unit that suits it best. */
function duration(ns) {
  const [unit, factor] = UNITS.find(([, factor]) => ns >= factor) ?? UNITS[3];
  return `${significant(ns / factor)} ${unit}`;
}

function bytes(count) {
  for (const [unit, factor] of [["GB", 1e9], ["MB", 1e6], ["kB", 1e3]]) {
    if (count >= factor) return `${significant(count / factor)} ${unit}`;
  }
  return `${count} B`;
}

function rate(bitsPerSecond) {
  for (const [unit, factor] of [["Gbit/s", 1e9], ["Mbit/s", 1e6], ["kbit/s", 1e3]]) {
    if (bitsPerSecond >= factor) return `${significant(bitsPerSecond / factor)} ${unit}`;
  }
  return `${bitsPerSecond} bit/s`;
}

/** Writes three significant digits. */
function significant(value) {
  return value >= 100 ? value.toFixed(0) : Number(value.toPrecision(3)).toString();
}

function count(number) {
  return number.toLocaleString("en");
}

/** Writes a number of a note. */
function noteNumber(value) {
  if (value === null) return "NaN";
  if (Number.isInteger(value) && Math.abs(value) < 1e15) return count(value);
  return Number(value.toPrecision(5)).toString();
}

/** Writes a note as text. Numbers at its end that are 0 were not used, unless all are. */
function noteText(name, values) {
  let used = values.length;
  while (used > 0 && values[used - 1] === 0) used--;
  return [name, ...values.slice(0, used).map(noteNumber)].join(" ");
}

function escapeHtml(text) {
  return text.replace(/[&<>"]/g, (c) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" })[c]);
}
