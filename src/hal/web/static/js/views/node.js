// One node: what keeps work away, what it offers and holds, what runs there, what it is made of.
import { html, useMemo } from "../h.js";
import { collector, controller, getSession, useData } from "../api.js";
import { Link } from "../router.js";
import { NodeActions } from "../actions.js";
import { bytes, clock, count, full, safe } from "../format.js";
import { State } from "../states.js";
import { Table } from "../table.js";
import { Ago, Empty, Facts, Head, Panel, Shown, Use, useNow } from "../ui.js";
import { jobColumns } from "./jobs.js";
import { Lines, Strips } from "./lines.js";

export function Node({ name }) {
  const found = useData(controller(`nodes/${encodeURIComponent(name)}`), 2000), now = useNow();
  const running = useData(`${controller("jobs")}?state=active&placed=1&limit=200&node=${encodeURIComponent(name)}`, 4000);
  const ended = useData(`${controller("attempts")}?newest=1&limit=20&node=${encodeURIComponent(name)}`, 10000);
  const crumbs = html`<${Link} to="/nodes">Nodes<//>`;
  if (found.error && !found.data) return html`<${Head} title=${safe(name)} crumbs=${crumbs} /><${Empty} title=${found.error.status === 404 ? "There is no such node" : found.error.message}>${found.error.status === 404 ? "It was removed, or renamed." : found.error.hint}<//>`;
  return html`<${Shown} of=${found} what="Loading the node">${(node) => html`
    <${Head} title=${safe(node.name)} crumbs=${crumbs} sub=${html`<${State} of=${node.state} /><span>${Object.values(node.domains || {}).slice(-1).map(safe)}</span><span>heard <${Ago} at=${node.last_seen_ms} now=${now} /></span><span>${count(node.running)} steps</span>`}>
      <${NodeActions} nodes=${[node]} after=${found.refresh} /><//>
    ${node.reason ? html`<ul class="attend"><li class=${["down", "unreachable", "stopped"].includes(node.state) ? "bad" : ""}><div><strong>Takes no new work</strong><p>${safe(node.reason)}</p></div></li></ul>` : null}
    <div class="cols"><div>
      <${Panel} title="Runs here"><${Shown} of=${running} what="Loading what runs">${(data) => html`<${Table} label="Jobs on this node" columns=${jobColumns(now).filter((one) => ["state", "id", "name", "user", "request", "time"].includes(one.key))} rows=${data.jobs} rowKey=${(job) => job.id} to=${true} empty=${html`<${Empty} title="Nothing runs here" />`} />`}<//><//>
      <${Measured} node=${node} />
      <${Panel} title="Ended here last"><${Shown} of=${ended}>${(data) => (data.attempts.length ? html`<div class="table"><table aria-label="Attempts that ended here"><tbody>${[...data.attempts].reverse().map((one) => html`<tr key=${one.sequence}><td><${State} of=${one.state} /></td><td class="name"><${Link} to=${`/jobs/${one.job}`}>${safe(one.name)}<//> <span class="muted">${one.job}${one.task ? `.${one.task}` : ""}</span></td><td class="l1 muted">${safe(one.user)}</td><td class="right muted" title=${full(one.end_ms)}>${clock(one.end_ms, now)}</td></tr>`)}</tbody></table></div>` : html`<${Empty} title="Nothing has ended here" />`)}<//><//>
    </div><div>
      <${Panel} title="Held of what it offers"><div class="pad">${Object.entries(node.capacity).map(([key, of]) => html`<${Use} key=${key} name=${safe(key)} used=${of - (node.free[key] ?? of)} of=${of} />`)}</div><//>
      <${Made} node=${node} /></div></div>`}<//>`;
}

// What the collector measured there: shown where it answers.
function Measured({ node }) {
  const since = useMemo(() => Math.floor(Date.now() / 60000) * 60000 - 3600e3, [node.name]);
  const path = getSession()?.collector ? `${collector("series")}?node=${encodeURIComponent(node.name)}&since_ms=${since}&step_ms=30000&rate=1` : null;
  const { data } = useData(path, 15000);
  const charts = useMemo(() => measured(data?.series || []), [data]), gpus = useMemo(() => gpusOf(data?.series || []), [data]);
  if (!charts.length) return null;
  return html`<${Panel} title="Measured, last hour"><div class="pad uses">${charts.map((one) => html`<${Lines} key=${one.name} name=${one.name} points=${one.points} limit=${one.max} shown=${one.shown} />`)}${gpus.length ? html`<${Strips} name="GPUs used" rows=${gpus} shown=${(value) => `${Math.round(value * 100)}%`} />` : null}</div><//>`;
}

// Charts of the series that say most of a node; one needs two values.
function measured(series) {
  const named = (name) => series.filter((one) => one.name === name);
  const points = (one) => one.at_ms.map((at, i) => [at, one.values[i]]);
  const last = (name) => named(name)[0]?.values.slice(-1)[0];
  const busy = new Map();
  for (const one of named("hal_node_cpu_seconds_total"))
    if (!["idle", "iowait"].includes(one.labels.mode)) one.at_ms.forEach((at, i) => busy.set(at, (busy.get(at) || 0) + one.values[i]));
  const charts = [{ name: "Cores busy", points: [...busy].sort((a, b) => a[0] - b[0]), max: last("hal_node_cpus"), shown: (value) => value.toFixed(1) }];
  for (const one of named("hal_node_memory_used_bytes")) charts.push({ name: "Memory used", points: points(one), max: last("hal_node_memory_total_bytes"), shown: bytes });
  for (const one of named("hal_node_load")) if (one.labels.window === "1m") charts.push({ name: "Load", points: points(one), shown: (value) => value.toFixed(1) });
  return charts.filter((one) => one.points.length > 1);
}

function gpusOf(series) {
  return series.filter((one) => one.name === "hal_node_gpu_utilisation_ratio" && one.values.length > 1).sort((a, b) => Number(a.labels.gpu) - Number(b.labels.gpu)).slice(0, 16).map((one) => ({ name: safe(one.labels.gpu), points: one.at_ms.map((at, n) => [at, one.values[n]]) }));
}

function Made({ node }) {
  const facts = node.facts || {}, gpus = facts.gpus || [];
  return html`<${Panel} title="Made of"><${Facts} rows=${[
    facts.cpu?.model ? ["Processor", safe(facts.cpu.model)] : null, facts.cpu?.cores ? ["Cores", `${facts.cpu.cores}${facts.cpu.threads ? `, ${facts.cpu.threads} threads` : ""}`] : null, facts.memory_bytes ? ["Memory", bytes(facts.memory_bytes)] : null,
    gpus.length ? ["GPUs", `${gpus.length} × ${safe(gpus[0].model)}${gpus[0].memory_bytes ? `, ${bytes(gpus[0].memory_bytes)}` : ""}`] : null, facts.system ? ["System", safe(facts.system)] : null, facts.kernel ? ["Kernel", safe(facts.kernel)] : null, facts.host ? ["Host", safe(facts.host)] : null,
    Object.keys(node.taints || {}).length ? ["Taints", Object.entries(node.taints).map(([key, value]) => html`<span class="tag" key=${key}>${safe(key)}${value ? `=${safe(value)}` : ""}</span>`)] : null,
    (node.notes || []).length ? ["Notes", node.notes.map(safe).join("; ")] : null,
    ["Labels", Object.entries(node.labels || {}).filter(([key]) => key !== "hal.node").map(([key, value]) => html`<span class="tag" key=${key}>${safe(key)}=${safe(value)}</span>`)]]} /><//>`;
}
