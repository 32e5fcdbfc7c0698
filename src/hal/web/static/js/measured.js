// What the collector measured of all nodes, by their position on the map; asked for while somebody shows it.
import { useEffect, useState } from "./h.js";
import { collector, get, getSession } from "./api.js";
import { live } from "./live.js";

const EVERY_MS = 10000, SILENT_MS = 90000, FULL = 0.95, LOADED = 1.5;
const watchers = new Set();
// Percents by position, -1: not known; `idle`: GPUs that are held and idle; `strained`: why a node is, or "".
export const measured = { c: null, m: null, g: null, idle: null, strained: null, at: 0 };
let timer = 0, raw = null, of = null;

function align() {
  const nodes = live.nodes;
  if (!nodes || !raw) return;
  const n = nodes.names.length, percent = () => new Int16Array(n).fill(-1), found = { c: percent(), m: percent(), g: percent(), idle: new Int16Array(n), strained: new Array(n).fill("") };
  raw.nodes.forEach((name, k) => {
    const at = nodes.byName.get(name);
    if (at === undefined) return;
    if (raw.age_ms[k] > SILENT_MS) { found.strained[at] = "not heard by the collector"; return; }
    const memory = raw.memory_total_bytes[k] ? raw.memory_used_bytes[k] / raw.memory_total_bytes[k] : null;
    if (raw.cpu[k] != null) found.c[at] = Math.round(raw.cpu[k] * 100);
    if (memory != null) found.m[at] = Math.round(memory * 100);
    if (raw.gpu[k] != null) found.g[at] = Math.round(raw.gpu[k] * 100);
    found.idle[at] = raw.gpus_held_idle[k];
    if (memory >= FULL) found.strained[at] = `${Math.round(memory * 100)}% of the memory is used`;
    else if (raw.load[k] > LOADED * (raw.cpus[k] || Infinity)) found.strained[at] = `the load is ${raw.load[k].toFixed(0)} on ${raw.cpus[k]} CPUs`;
  });
  of = nodes;
  Object.assign(measured, found, { at: Date.now() });
  watchers.forEach((call) => call());
}

async function ask() {
  clearTimeout(timer);
  if (!watchers.size || !getSession()?.collector) return;
  if (!document.hidden) {
    try {
      const data = await get(collector("nodes/latest"));
      if (data !== raw || of !== live.nodes) { raw = data; align(); }
    } catch { /* what was known is shown; the next one may answer */ }
  }
  timer = setTimeout(ask, EVERY_MS);
}

// Redraw with newer values, where `on`.
export function useMeasured(on) {
  const [, redraw] = useState(0);
  useEffect(() => (on ? watchMeasured(() => redraw((n) => n + 1)) : undefined), [on]);
  return measured;
}

// Be called when there are newer values.
export function watchMeasured(call) {
  watchers.add(call);
  if (watchers.size === 1) ask();
  else if (raw && of !== live.nodes) align();
  return () => watchers.delete(call);
}
