// Numbers with their units, and times in the reader's zone.

const whole = new Intl.NumberFormat();
const compact = new Intl.NumberFormat(undefined, { notation: "compact", maximumFractionDigits: 1 });
const exact = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "long" });

const NONE = "–";

const missing = (value) => value === null || value === undefined || Number.isNaN(value);

/** 1,234; 12.3K from a hundred thousand on. */
export function count(value) {
  if (missing(value)) return NONE;
  return Math.abs(value) < 100_000 ? whole.format(value) : compact.format(value);
}

/** A number with so many digits after the point. */
export function decimal(value, digits = 2) {
  return missing(value) ? NONE : value.toFixed(digits);
}

/** A part of 1 in per cent. */
export function percent(value, digits = 0) {
  return missing(value) ? NONE : `${(value * 100).toFixed(digits)} %`;
}

/** Seconds in the unit that is read best. */
export function seconds(value) {
  if (missing(value)) return NONE;
  const size = Math.abs(value);
  if (size === 0) return "0 s";
  if (size < 1e-3) return `${(value * 1e6).toFixed(0)} µs`;
  if (size < 1) return `${(value * 1e3).toFixed(size < 0.01 ? 1 : 0)} ms`;
  if (size < 120) return `${value.toFixed(size < 10 ? 1 : 0)} s`;
  if (size < 7200) return `${(value / 60).toFixed(0)} min`;
  if (size < 172_800) return `${(value / 3600).toFixed(0)} h`;
  return `${(value / 86_400).toFixed(0)} days`;
}

/** A mean with its standard error. */
export function withError(mean, error, digits = 3) {
  if (missing(mean)) return NONE;
  return missing(error) ? decimal(mean, digits) : `${decimal(mean, digits)} ± ${decimal(error, digits)}`;
}

/** The exact time of Unix seconds, in the reader's zone. */
export function exactTime(at) {
  return missing(at) ? NONE : exact.format(new Date(at * 1000));
}

/** How long ago, in words: "3 min ago", "in 20 s". */
export function ago(at, now = Date.now() / 1000) {
  if (missing(at)) return NONE;
  const passed = now - at;
  if (Math.abs(passed) < 5) return "just now";
  return passed > 0 ? `${seconds(Math.max(1, passed))} ago` : `in ${seconds(-passed)}`;
}
