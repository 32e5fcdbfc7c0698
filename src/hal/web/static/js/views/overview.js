// What is seen first: what needs attention, how much is used, where, and what waits for what.
import { html } from "../h.js";
import { collector, controller, getSession, useData } from "../api.js";
import { byWeight, isTold, titleOf } from "../alerting.js";
import { live, useLive } from "../live.js";
import { Link, usePlace } from "../router.js";
import { amount, baseRequest, clock, count, percent, plural, safe, short } from "../format.js";
import { Icon } from "../icons.js";
import { State } from "../states.js";
import { Ago, Empty, Head, Loading, Panel, Shown, Spark, useNow } from "../ui.js";
import { MapChips, MapLegend, NodeMap, mapOf } from "../nodemap.js";

const FAILED_RECENTLY_MS = 3600e3;

function attention(failed, wants, used, alerts) {
  const found = [], pulse = live.pulse, nodes = pulse.health.nodes || {};
  const away = (nodes.down || 0) + (nodes.unreachable || 0) + (nodes.stopped || 0);
  if (away) {
    const names = live.nodes ? live.nodes.names.filter((_, at) => ["down", "unreachable", "stopped"].includes(live.nodes.states[live.nodes.s[at]])) : [];
    found.push({ bad: true, title: `${plural(away, "node")} away`, text: names.length ? `${names.slice(0, 4).map(safe).join(", ")}${names.length > 4 ? " …" : ""}: no new work starts there` : "no new work starts there", to: "/nodes?state=away" });
  }
  // What is listed here anyway is not said twice.
  for (const one of byWeight(alerts || []).filter((other) => isTold(other) && other.rule !== "NodesDown").slice(0, 3)) found.push({ bad: one.severity === "critical", title: safe(one.summary), text: `${titleOf(one.rule)}, since ${clock(one.since_ms)}`, to: "/alerts" });
  const closed = (nodes.cordoned || 0) + (nodes.draining || 0);
  if (closed) {
    const names = Object.entries(live.nodes?.reasons || {}).filter(([name]) => ["cordoned", "draining"].includes(live.nodes.states[live.nodes.s[live.nodes.byName.get(name)]]));
    found.push({ title: `${plural(closed, "node")} closed to new work`, text: names.slice(0, 3).map(([name, why]) => `${safe(name)}: ${safe(why)}`).join("; "), to: "/nodes?state=closed" });
  }
  for (const text of pulse.health.warnings || []) found.push({ title: "The controller warns", text: safe(text), to: null });
  const never = (wants?.classes || []).filter((one) => one.fits_ever < one.nodes);
  if (never.length) found.push({ title: `${plural(never.reduce((n, one) => n + one.jobs, 0), "waiting job")} fit on no nodes that are up`, text: `first: job ${never[0].head}, ${baseRequest(never[0].request)} on ${plural(never[0].nodes, "node")}`, to: `/jobs/${never[0].head}` });
  const idle = (used?.gpus_held_idle || []).reduce((sum, n) => sum + n, 0);
  if (idle) found.push({ title: `${plural(idle, "GPU")} held and idle`, text: `on ${plural(used.gpus_held_idle.filter(Boolean).length, "node")}: steps hold them, and nothing runs on them`, to: "/nodes?map=g&use=1" });
  const recent = (failed?.attempts || []).filter((one) => pulse.at - (one.recorded_ms || one.end_ms) < FAILED_RECENTLY_MS);
  if (recent.length) found.push({ title: recent.length >= 50 ? "50 or more attempts failed in the last hour" : `${plural(recent.length, "attempt")} failed in the last hour`, text: [...new Set(recent.map((one) => safe(one.name)))].slice(0, 4).join(", "), to: "/jobs?state=failed" });
  for (const queue of pulse.queues.filter((one) => !one.open || !one.starts)) found.push({ title: `Queue ${safe(queue.name)} is ${queue.starts ? "drained" : "closed"}`, text: queue.starts ? "it accepts nothing new" : "nothing of it starts", to: `/queues/${encodeURIComponent(queue.name)}` });
  return found;
}

function Attention({ of }) {
  if (!of.length) return null;
  return html`<ul class="attend" aria-label="Needs attention">${of.slice(0, 6).map((one) => html`<li key=${one.title} class=${one.bad ? "bad" : ""}><${Icon} name="warn" /><div>
    <strong>${one.to ? html`<${Link} to=${one.to}>${one.title}<//>` : one.title}</strong><p>${one.text}</p></div></li>`)}</ul>`;
}

function Tile({ name, value, unit, sub, points, max, to }) {
  return html`<${Link} to=${to} class="tile"><span class="k">${name}</span><span class="v">${value}${unit ? html`<small>${unit}</small>` : null}</span><span class="d">${sub}</span>
    <${Spark} points=${points} max=${max} label=${`${name}, last half hour`} /><//>`;
}

function Tiles() {
  useLive();
  const { totals, health, queues } = live.pulse;
  const at = (n) => live.history.map((point) => [point[0], point[n]]);
  const tasks = queues.reduce((sum, queue) => sum + queue.pending, 0), running = queues.reduce((sum, queue) => sum + queue.running, 0);
  const kinds = [["cpu", "CPU", 1], ["memory", "Memory", 2], ["gpu", "GPU", 3]].filter(([key]) => totals[key] && totals[key][1]);
  return html`<div class="tiles">
    ${kinds.map(([key, title, n]) => html`<${Tile} key=${key} name=${title} value=${percent(...totals[key])} unit="%" sub=${`${amount(key, totals[key][0])} of ${amount(key, totals[key][1])}`} points=${at(n)} max=${1000} to=${`/?map=${key[0]}`} />`)}
    <${Tile} name="Running" value=${short(running)} unit=${running === 1 ? "task" : "tasks"} sub=${`of ${plural(health.jobs.running || 0, "job")}`} points=${at(4)} to="/jobs?state=running" />
    <${Tile} name="Waiting" value=${short(tasks)} unit=${tasks === 1 ? "task" : "tasks"} sub=${`of ${plural(health.jobs.pending || 0, "job")}`} points=${at(5)} to="/jobs?state=pending" /></div>`;
}

function Map_() {
  useLive("nodes");
  const { query } = usePlace();
  const gpu = (live.nodes?.gpus || []).some((n) => n > 0);
  const [metric, used] = mapOf(query, gpu);
  if (!live.nodes) return html`<${Panel} title="Cluster"><${Loading} what="Loading the nodes" /><//>`;
  const total = live.nodes.names.length;
  return html`<${Panel} title=${`Cluster · ${plural(total, "node")}`} more=${html`<${MapChips} metric=${metric} used=${used} gpu=${gpu} />`}>
    ${total ? html`<${NodeMap} metric=${metric} used=${used} most=${Math.max(220, Math.min(460, window.innerHeight - 420))} /><${MapLegend} metric=${metric} used=${used} />` : html`<${Empty} title="No nodes yet">Start one with <code>hal up</code>, or join a machine with <code>hal agent --join</code>.<//>`}<//>`;
}

function Waiting({ wants }) {
  return html`<${Panel} title="What waits" more=${html`<${Link} to="/queues">why, by queue<//>`}><${Shown} of=${wants} what="Loading what waits">${(data) => (data.classes.length ? html`<ul class="list">${data.classes.slice(0, 7).map((one, n) => html`<li key=${one.head + n}>
    <div class="row"><strong>${baseRequest(one.request)}${one.nodes > 1 ? ` × ${one.nodes} nodes` : ""}</strong><span class="nowrap">${plural(one.tasks, "task")}</span></div>
    <div class="row muted"><span>${shortOf(one)}</span><span class="nowrap">first: <${Link} to=${`/jobs/${one.head}`} class="blue">${one.head}<//></span></div></li>`)}
    ${data.classes.length > 7 ? html`<li class="muted">and ${plural(data.classes.length - 7, "other kind")} of request</li>` : null}</ul>` : html`<${Empty} title="Nothing waits">What is submitted now starts at once where it fits.<//>`)}<//><//>`;
}

export function shortOf(one) {
  if (one.fits_ever < one.nodes) return `fits on ${plural(one.fits_ever, "node")} that are up, needs ${one.nodes}`;
  if (one.short === "turn") return "has room, waits for its turn";
  if (one.short === "resources") return one.resource ? `short of ${amount(one.resource, one.short_by)} ${safe(one.resource)}` : `short of ${plural(one.short_by, "node")} with all of it free`;
  return one.short === "nodes" ? "too few nodes are up" : `waits: ${safe(one.short)}`;
}

function Queues() {
  useLive();
  const queues = live.pulse.queues;
  const most = Math.max(1, ...queues.map((queue) => queue.running + queue.pending));
  return html`<${Panel} title="Queues" more=${html`<${Link} to="/queues">all<//>`}><ul class="list">${[...queues].sort((a, b) => b.running + b.pending - a.running - a.pending).slice(0, 6).map((queue) => html`<li key=${queue.name}>
    <div class="row"><${Link} to=${`/queues/${encodeURIComponent(queue.name)}`}><strong>${safe(queue.name)}</strong><//><span class="muted nowrap">${count(queue.running)} running · ${count(queue.pending)} waiting</span></div>
    <span class="parts" role="img" aria-label=${`${queue.running} running, ${queue.pending} waiting`} style=${{ width: `${Math.max(4, (100 * (queue.running + queue.pending)) / most)}%` }}><span class="p-running" style=${{ flexGrow: queue.running }}></span><span class="p-pending" style=${{ flexGrow: queue.pending }}></span></span></li>`)}</ul><//>`;
}

function Next({ plan }) {
  const now = useNow(5000);
  if (!plan.data?.reservations?.length) return null;
  return html`<${Panel} title="Starts next" more=${html`<${Link} to="/timeline">timeline<//>`}><ul class="list">${plan.data.reservations.slice(0, 5).map((one) => html`<li key=${`${one.job}.${one.task}`} class="row"><span>Job <${Link} to=${`/jobs/${one.job}`} class="blue">${one.job}<//> on ${one.nodes.length > 2 ? plural(one.nodes.length, "node") : one.nodes.map(safe).join(", ")}</span><span class="muted nowrap">${one.start_ms ? `${clock(one.start_ms)}, ` : ""}<${Ago} at=${one.start_ms} now=${now} /></span></li>`)}</ul><//>`;
}

function Ended({ ended }) {
  const now = useNow(5000);
  return html`<${Panel} title="Ended last" more=${html`<${Link} to="/jobs?state=ended">all<//>`}><${Shown} of=${ended}>${(data) => (data.attempts.length ? html`<div class="table"><table aria-label="Attempts that ended last"><tbody>${[...data.attempts].reverse().slice(0, 10).map((one) => html`<tr key=${one.sequence}>
    <td><${State} of=${one.state} /></td><td class="name"><${Link} to=${`/jobs/${one.job}`}>${safe(one.name)}<//> <span class="muted">${one.job}${one.task ? `.${one.task}` : ""}</span></td><td class="l1 muted">${safe(one.user)}</td><td class="l2 muted">${one.nodes.length > 1 ? plural(one.nodes.length, "node") : safe(one.nodes[0] || "")}</td><td class="right muted"><${Ago} at=${one.end_ms} now=${now} /></td></tr>`)}</tbody></table></div>` : html`<${Empty} title="Nothing has ended yet" />`)}<//><//>`;
}

export function Overview() {
  useLive();
  const wants = useData(controller("wants"), 5000), plan = useData(controller("plan"), 5000);
  const ended = useData(`${controller("attempts")}?newest=1&limit=20`, 4000), failed = useData(`${controller("attempts")}?newest=1&state=failed&limit=50`, 15000);
  const used = useData(getSession().collector ? collector("nodes/latest") : null, 60000);
  const alerts = useData(getSession().collector ? collector("alerts?state=firing") : null, 10000);
  if (!live.pulse) return html`<${Head} title="Overview" /><${Loading} what="Connecting" />`;
  const care = attention(failed.data, wants.data, used.data, alerts.data?.alerts);
  const { health } = live.pulse, up = health.nodes?.up || 0, total = Object.values(health.nodes || {}).reduce((a, b) => a + b, 0);
  return html`<${Head} title="Overview" sub=${html`${care.length ? null : html`<span class="well"><${Icon} name="succeeded" />All well</span>`}<span>${count(up)} of ${plural(total, "node")} up</span><span>controller ${health.status} · ${health.version}</span>`} />
    <${Attention} of=${care} /><${Tiles} /><${Map_} />
    <div class="cols"><div><${Ended} ended=${ended} /></div><div><${Waiting} wants=${wants} /><${Queues} /><${Next} plan=${plan} /></div></div>`;
}
