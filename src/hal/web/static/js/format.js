// Amounts, times and names as people read them. Pure.

const KIB = 1024;
const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];

export function count(value) {
  return value == null ? "–" : value.toLocaleString("en-US");
}

// 1,234 -> 1.2k: for narrow places.
export function short(value) {
  if (value == null) return "–";
  if (value < 10000) return count(value);
  const [unit, by] = value < 1e6 ? ["k", 1e3] : value < 1e9 ? ["M", 1e6] : ["G", 1e9];
  const scaled = value / by;
  return `${scaled < 100 ? scaled.toFixed(1).replace(/\.0$/, "") : Math.round(scaled)}${unit}`;
}

export function bytes(value) {
  if (value == null) return "–";
  let scaled = value, unit = 0;
  while (scaled >= KIB && unit < UNITS.length - 1) { scaled /= KIB; unit += 1; }
  return `${unit && scaled < 100 ? scaled.toFixed(1).replace(/\.0$/, "") : Math.round(scaled)} ${UNITS[unit]}`;
}

// An amount of a resource in base units.
export function amount(name, value) {
  if (name === "memory" || name.endsWith("bytes") || name.endsWith("memory")) return bytes(value);
  const whole = value / 1000;
  return whole >= 100 || Number.isInteger(whole) ? count(Math.round(whole)) : whole.toFixed(1);
}

export function request(of) {
  return Object.entries(of || {}).map(([name, value]) => `${value} ${name}`).join(" · ") || "–";
}

export function baseRequest(of) {
  return Object.entries(of || {}).map(([name, value]) => `${amount(name, value)} ${name}`).join(" · ");
}

export function duration(ms) {
  if (ms == null) return "–";
  const s = Math.max(0, Math.round(ms / 1000));
  if (s < 60) return `${s}s`;
  if (s < 3600) return `${Math.floor(s / 60)}m ${String(s % 60).padStart(2, "0")}s`;
  if (s < 86400) return `${Math.floor(s / 3600)}h ${String(Math.floor((s % 3600) / 60)).padStart(2, "0")}m`;
  return `${Math.floor(s / 86400)}d ${Math.floor((s % 86400) / 3600)}h`;
}

// About how long: one unit.
export function about(ms) {
  const s = Math.max(0, Math.round(ms / 1000));
  if (s < 60) return `${s}s`;
  if (s < 5400) return `${Math.round(s / 60)}m`;
  if (s < 129600) return `${Math.round(s / 3600)}h`;
  return `${Math.round(s / 86400)}d`;
}

export function ago(at, now) {
  return at == null ? "–" : at > now ? `in ${about(at - now)}` : now - at < 5000 ? "now" : `${about(now - at)} ago`;
}

const CLOCK = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", hourCycle: "h23" });
const DAY = new Intl.DateTimeFormat(undefined, { weekday: "short", day: "numeric", month: "short" });
const FULL = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium", hourCycle: "h23" });

export function clock(at, now = Date.now()) {
  if (at == null) return "–";
  const same = new Date(at).toDateString() === new Date(now).toDateString();
  return same ? CLOCK.format(at) : `${DAY.format(at)}, ${CLOCK.format(at)}`;
}

export function full(at) {
  return at == null ? "" : FULL.format(at);
}

export function percent(used, of) {
  return of ? Math.round((used * 100) / of) : 0;
}

// "2h", "1h30m", 90m -> ms; null where it is none.
export function durationMs(text) {
  if (text == null) return null;
  const parts = [...String(text).matchAll(/(\d+(?:\.\d+)?)\s*(ms|d|h|m|s)/g)];
  const unit = { ms: 1, s: 1e3, m: 6e4, h: 36e5, d: 864e5 };
  return parts.length ? parts.reduce((sum, [, n, u]) => sum + n * unit[u], 0) : null;
}

// What a job printed, as text: without the escapes that move a terminal's cursor or colour it.
export function plain(text) {
  return text
    .replace(/\x1b\[[0-9;?]*[ -/]*[@-~]/g, "")
    .replace(/\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)/g, "")
    .replace(/\x1b./g, "")
    .replace(/[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]/g, "\u00b7");
}

// A name that somebody else has chosen, on one line, without what could turn the text around it.
export function safe(text) {
  return String(text ?? "").replace(/[\x00-\x1f\x7f\u0080-\u009f\u200e\u200f\u202a-\u202e\u2066-\u2069]/g, "\ufffd");
}

export function plural(n, one, many = `${one}s`) {
  return `${count(n)} ${n === 1 ? one : many}`;
}
