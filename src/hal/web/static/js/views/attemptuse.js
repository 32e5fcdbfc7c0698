// What an attempt used of what it asked for: sums, and lines over time where the collector has samples.
import { html, useMemo } from "../h.js";
import { collector, getSession, useData } from "../api.js";
import { bytes, duration, durationMs, percent, safe } from "../format.js";
import { Bar, Panel } from "../ui.js";
import { Lines } from "./lines.js";

const POINTS = 240, LEAST_MS = 5000;

export function Use({ job, task, attempt, now }) {
  const collects = getSession().collector, key = `${job.id}.${task}.${attempt.attempt}`, node = attempt.nodes?.[0], began = attempt.start_ms;
  // Asked for with a step that stays the same while the attempt runs on, so that the answer is shared.
  const span = (attempt.end_ms ?? Math.ceil(now / 60000) * 60000) - began, step = Math.max(LEAST_MS, 2 ** Math.ceil(Math.log2(Math.max(1, span / POINTS))));
  const path = collects && node && began ? `${collector("series")}?${new URLSearchParams({ node, attempt: key, since_ms: began - LEAST_MS, step_ms: step, rate: 1, ...(attempt.end_ms ? { until_ms: attempt.end_ms + LEAST_MS } : {}) })}` : null;
  const series = useData(path, attempt.end_ms ? 0 : 10000), kept = useData(collects && attempt.end_ms ? `${collector("attempts")}?job=${job.id}&limit=200` : null, 0);
  const one = (kept.data?.attempts || []).find((other) => other.task === task && other.attempt === attempt.attempt);
  const charts = useMemo(() => chartsOf(series.data?.series || [], job), [series.data, job.id]);
  if (!began) return null;
  return html`<${Panel} title="Used of what it asked for" more=${charts.length && job.nodes > 1 ? `lines: on ${safe(node)}, the first of ${job.nodes} nodes` : ""}>
    <div class="pad uses"><div><${Sums} job=${job} attempt=${attempt} now=${now} />${one ? html`<${Cost} one=${one} />` : null}</div>${charts.map((chart) => html`<${Lines} key=${chart.name} ...${chart} />`)}</div><//>`;
}

function Sums({ job, attempt, now }) {
  const usage = attempt.usage || {}, wall = (attempt.end_ms ?? now) - attempt.start_ms, cpu = (usage.user_ms || 0) + (usage.system_ms || 0), cores = Number(job.request.cpu || 0) * job.nodes, limit = durationMs(job.walltime), memory = memoryBytes(job.request.memory);
  return html`${limit ? html`<div class="use"><span class="k">time</span><${Bar} used=${wall} of=${limit} tone=${wall > limit * 0.9 && !attempt.end_ms ? "wait" : ""} /><span class="v">${duration(wall)} <em>of ${job.walltime}</em></span></div>` : html`<div class="use"><span class="k">time</span><span></span><span class="v">${duration(wall)} <em>no walltime</em></span></div>`}
    ${cpu && cores ? html`<div class="use"><span class="k">cpu</span><${Bar} used=${cpu} of=${wall * cores} /><span class="v">${percent(cpu, wall * cores)}% <em>of ${cores}</em></span></div>` : null}
    ${usage.max_rss_bytes ? html`<div class="use"><span class="k">memory</span><${Bar} used=${usage.max_rss_bytes} of=${memory || usage.max_rss_bytes} tone=${memory && usage.max_rss_bytes > memory * 0.95 ? "wait" : ""} /><span class="v">${bytes(usage.max_rss_bytes)}${memory ? html` <em>of ${bytes(memory)}</em>` : ""}</span></div>` : null}
    ${!cpu && !usage.max_rss_bytes ? html`<p class="muted">${attempt.end_ms ? "CPU and memory were not measured." : "CPU and memory are summed up when it has ended."}</p>` : null}`;
}

// What the history knows of it beside.
function Cost({ one }) {
  const gpu = one.gpu_counted_ms ? `${Math.round((one.gpu_used_ms * 100) / one.gpu_counted_ms)}% of its GPUs' time used` : "", io = one.read_bytes + one.written_bytes ? `${bytes(one.read_bytes)} read, ${bytes(one.written_bytes)} written` : "";
  const parts = [gpu, io, one.energy_j ? `${(one.energy_j / 3.6e6).toPrecision(2)} kWh${one.energy_measured ? "" : ", estimated"}` : "", one.price != null ? `cost ${one.price.toPrecision(3)}` : ""].filter(Boolean);
  return parts.length ? html`<p class="muted">${parts.join(" · ")}</p>` : null;
}

function chartsOf(series, job) {
  const named = (name) => series.find((one) => one.name === name && one.values.length > 1), charts = [], cores = Number(job.request.cpu || 0), memory = memoryBytes(job.request.memory);
  const points = (one) => one.at_ms.map((at, n) => [at, one.values[n]]);
  const cpu = named("hal_attempt_cpu_seconds_total"), used = named("hal_attempt_memory_bytes"), gpu = named("hal_attempt_gpu_utilisation_ratio");
  if (cpu) charts.push({ name: "Cores used", points: points(cpu), limit: cores || null, shown: (value) => value.toFixed(1), asked: cores ? `${cores} asked for` : "" });
  if (used) charts.push({ name: "Memory", points: points(used), limit: memory || null, shown: bytes, asked: memory ? `${bytes(memory)} asked for` : "" });
  if (gpu) charts.push({ name: "GPUs used", points: points(gpu), limit: 1, shown: (value) => `${Math.round(value * 100)}%`, asked: "" });
  return charts;
}

function memoryBytes(text) {
  const [, n, unit] = /^([\d.]+)\s*([KMGTP]?)(i?)B?$/.exec(String(text || "")) || [];
  return n ? Number(n) * (unit ? 1024 ** (" KMGTP".indexOf(unit)) : 1) : 0;
}
