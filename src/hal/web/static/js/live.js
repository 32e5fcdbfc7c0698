// What changes by the second, from one stream of the server: how the cluster is, and its nodes in columns.
import { useEffect, useState } from "./h.js";
import { getSession, loadSession } from "./api.js";

const STALE_MS = 20000;
export const live = {
  pulse: null, // {at, health, queues, totals}
  history: [], // [at, cpu, memory, gpu (permille), jobs running, jobs pending]
  nodes: null, // columns, see node_columns.py
  connected: false,
  trouble: null,
};
const watchers = { pulse: new Set(), nodes: new Set() };
let source = null, topics = "", heard = 0, retry = 0;

function tell(kind, detail) {
  watchers[kind].forEach((call) => call(detail));
}

function wanted() {
  return watchers.nodes.size ? "nodes,pulse" : "pulse";
}

function read(kind, call) {
  source.addEventListener(kind, (event) => {
    heard = Date.now();
    live.connected = true;
    retry = 0;
    call(JSON.parse(event.data));
  });
}

function open() {
  if (source) source.close();
  source = null;
  if (!getSession() || document.hidden) return;
  topics = wanted();
  source = new EventSource(`/api/live?topics=${topics}`);
  read("pulse", (data) => { live.pulse = data; live.trouble = null; tell("pulse"); });
  read("history", (data) => { live.history = data; tell("pulse"); });
  read("point", (data) => { live.history = [...live.history.slice(-359), data]; });
  read("trouble", (data) => { live.trouble = data; tell("pulse"); });
  read("nodes", (data) => { live.nodes = data; index(data); tell("nodes", null); });
  read("node-changes", (data) => {
    const nodes = live.nodes;
    if (!nodes) return;
    if (data.reasons) nodes.reasons = data.reasons;
    for (const letter of ["s", "r", "c", "m", "g"]) data.i.forEach((at, n) => { nodes[letter][at] = data[letter][n]; });
    tell("nodes", data.i);
  });
  source.onerror = () => {
    live.connected = false;
    tell("pulse");
    if (source && source.readyState === 2) {
      source = null;
      retry = Math.min(retry + 1, 6);
      setTimeout(async () => {
        try { await loadSession(); } catch { /* tried again below */ }
        if (!source) open();
      }, 500 * 2 ** retry);
    }
  };
}

function index(nodes) {
  nodes.byName = new Map(nodes.names.map((name, at) => [name, at]));
}

export function start() {
  open();
}

export function stop() {
  if (source) source.close();
  source = null;
  Object.assign(live, { pulse: null, history: [], nodes: null, connected: false, trouble: null });
}

document.addEventListener("visibilitychange", () => {
  if (!document.hidden && !source) open();
  if (document.hidden && source) {
    // A page that nobody sees costs nothing after a minute.
    setTimeout(() => { if (document.hidden && source) { source.close(); source = null; } }, 60000);
  }
});
setInterval(() => { if (source && heard && Date.now() - heard > STALE_MS * 2) open(); }, STALE_MS);

// Redraw with each pulse, or with each change of nodes.
export function useLive(kind = "pulse") {
  const [, redraw] = useState(0);
  useEffect(() => {
    const call = () => redraw((n) => n + 1);
    const leave = watch(kind, call);
    return leave;
  }, [kind]);
  return live;
}

// Be called with the positions of nodes that changed, or null for all.
export function watch(kind, call) {
  watchers[kind].add(call);
  if (getSession() && source && topics !== wanted() && kind === "nodes") open();
  return () => watchers[kind].delete(call);
}
