// Where the time of a job went: its spans as a waterfall, attempts below the job, phases below each attempt.
import { html, useMemo, useState } from "../h.js";
import { collector, useData } from "../api.js";
import { Link, go, usePlace, withQuery } from "../router.js";
import { clock, count, duration, full, plural, safe } from "../format.js";
import { Copy } from "../dialogs.js";
import { Empty, Facts, Panel, Shown, useNow } from "../ui.js";

const OPEN_UP_TO = 6, MOST_ROWS = 400;
const STEPS = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 15e3, 3e4, 6e4, 12e4, 3e5, 6e5, 9e5, 18e5, 36e5, 72e5, 108e5, 216e5, 432e5, 864e5, 1728e5, 6048e5];
const TONES = { "held back": "held", waiting: "wait", starting: "alloc", running: "run" };

function toneOf(span) {
  if (span.status === "error") return "bad";
  if (span.name.startsWith("gate ")) return "gate";
  if (span.name === "running") return span.status === "ok" ? "ok" : "run";
  return TONES[span.name] || "whole";
}

// Spans in the order of the tree: [{span, depth, below: the spans right below it}].
function treeOf(spans) {
  const below = new Map(), ids = new Set(spans.map((one) => one.span_id)), rows = [];
  for (const one of spans) {
    const parent = ids.has(one.parent_id) ? one.parent_id : "";
    if (!below.has(parent)) below.set(parent, []);
    below.get(parent).push(one);
  }
  const walk = (id, depth) => (below.get(id) || []).forEach((one) => {
    rows.push({ span: one, depth, below: below.get(one.span_id) || [] });
    if (depth < 8) walk(one.span_id, depth + 1);
  });
  walk("", 0);
  return rows;
}

const short = (ms) => (ms < 1000 ? `${Math.round(ms)}ms` : ms < 10000 ? `${(ms / 1000).toFixed(1)}s` : duration(ms));

function ticksOf(span) {
  const step = STEPS.find((one) => span / one <= 7) || STEPS[STEPS.length - 1], found = [];
  for (let at = 0; at <= span * 0.97 && found.length < 12; at += step) found.push(at);
  return found;
}

export function Trace({ job }) {
  const { query } = usePlace(), task = /^\d+$/.test(query.get("task") || "") ? query.get("task") : "";
  const found = useData(`${collector(`traces/${job.id}`)}?limit=200${task ? `&task=${task}` : ""}`, job.end_ms ? 0 : 3000);
  const from = useMemo(() => [...new Set((job.spec?.dependencies || []).flatMap((one) => (one.any_of?.length ? one.any_of : [one])).map((one) => one.job).filter(Boolean))], [job.spec]);
  const links = (ids) => html`${ids.slice(0, 12).map((id) => html`<${Link} key=${id} class="tag" to=${`/jobs/${id}/trace`}>${safe(id)}<//>`)}${ids.length > 12 ? html`<span class="muted">and ${count(ids.length - 12)} more</span>` : null}`;
  return html`<${Shown} of=${found} what="Loading the trace">${(data) => html`
    <${Waterfall} data=${data} job=${job} task=${task} />
    <${Panel} title="Trace"><${Facts} wide=${true} rows=${[["Trace", html`<code>${data.trace_id}</code> <${Copy} text=${data.trace_id} />`], from.length ? ["Waited for", links(from)] : null, job.dependants?.length ? ["Before", links(job.dependants)] : null, ["In the job", html`<code>TRACEPARENT</code>: what the program sends continues this trace`]]} /><//>`}<//>`;
}

function Waterfall({ data, job, task }) {
  const now = useNow(1000), all = useMemo(() => treeOf(data.spans), [data.spans]);
  const attempts = all.filter((row) => row.span.name.startsWith("attempt ")).length;
  const [flipped, setFlipped] = useState(new Set()), [zoom, setZoom] = useState(null), [chosen, setChosen] = useState("");
  const isOpen = (row) => (row.depth === 0 || attempts <= OPEN_UP_TO) !== flipped.has(row.span.span_id);
  const rows = [], names = new Map(data.spans.map((one) => [one.span_id, one.name]));
  let hidden = 99;
  for (const row of all) {
    if (row.depth > hidden) continue;
    hidden = row.below.length && !isOpen(row) ? row.depth : 99;
    rows.push(row);
  }
  const whole = zoom ? data.spans.find((one) => one.span_id === zoom) : null;
  const first = whole ? whole.start_ms : Math.min(...data.spans.map((one) => one.start_ms)), last = Math.max(first + 1, whole ? whole.end_ms ?? now : Math.max(...data.spans.map((one) => one.end_ms ?? now)));
  const at = (time) => Math.min(100, Math.max(0, ((time - first) / (last - first)) * 100));
  const flip = (id) => setFlipped((old) => { const next = new Set(old); if (!next.delete(id)) next.add(id); return next; });
  const line = ({ span, depth, below }) => {
    const end = span.end_ms ?? now, open = chosen === span.span_id, folded = depth > 0 && below.length && !isOpen({ span, depth });
    // An attempt that is folded shows its parts in one line.
    const bars = (folded ? below : [span]).filter((one) => (one.end_ms ?? now) >= first && one.start_ms <= last).map((one) => ({ one, left: at(one.start_ms), wide: Math.max(0.25, at(one.end_ms ?? now) - at(one.start_ms)) }));
    const lasts = short(end - span.start_ms);
    return html`<li key=${span.span_id} class=${`span ${open ? "open" : ""}`}>
      <div class="who" style=${{ paddingLeft: `${depth * 16}px` }}>${below.length ? html`<button class="fold" aria-expanded=${String(isOpen({ span, depth }))} aria-label=${`Parts of ${safe(span.name)}`} onClick=${() => flip(span.span_id)}>${isOpen({ span, depth }) ? "▾" : "▸"}</button>` : html`<span class="fold"></span>`}<button class="name" aria-expanded=${String(open)} title=${safe(span.name)} onClick=${() => setChosen(open ? "" : span.span_id)}>${safe(span.name).replace(/^attempt /, "")}</button></div>
      <div class="track" onClick=${() => setChosen(open ? "" : span.span_id)}>${bars.map(({ one, left, wide }) => html`<i key=${one.span_id} class=${`t-${toneOf(one)} ${one.end_ms == null ? "live" : ""}`} title=${`${safe(one.name)}: ${short((one.end_ms ?? now) - one.start_ms)}`} style=${{ left: `${Math.min(left, 99.7)}%`, width: `${Math.min(wide, 100 - left)}%` }}></i>`)}</div><span class="took">${lasts}${span.end_ms == null ? html`<span class="l1"> so far</span>` : ""}</span>
      ${open ? html`<div class="about"><${Facts} rows=${[["From", full(span.start_ms)], ["To", span.end_ms == null ? "goes on" : full(span.end_ms)], ["Took", lasts], span.message ? ["Why", safe(span.message)] : null, ...(span.links || []).filter((one) => names.has(one.span_id)).map((one) => ["Follows", safe(names.get(one.span_id))]), ...Object.entries(span.attributes || {}).slice(0, 12).map(([name, value]) => [safe(name), name === "hal.nodes" ? String(value).split(",").filter(Boolean).map((node) => html`<${Link} key=${node} class="tag" to=${`/nodes/${encodeURIComponent(node)}`}>${safe(node)}<//>`) : safe(value)]), ["Span", html`<code>${span.span_id}</code>`]]} />
        <div class="acts">${span.end_ms == null || span.end_ms > span.start_ms ? html`<button class="quiet small" onClick=${() => setZoom(zoom === span.span_id ? null : span.span_id)}>${zoom === span.span_id ? "Show all of the time" : "Show only its time"}</button>` : null}</div></div>` : null}</li>`;
  };
  const seen = rows.slice(0, MOST_ROWS);
  return html`<${Panel} title=${task ? `Where the time of task ${task} went` : "Where the time went"} more=${html`${task ? html`<${Link} to=${withQuery({ task: "" })}>all tasks<//>` : null}${zoom ? html`<button class="quiet small" onClick=${() => setZoom(null)}>All of the time</button>` : null}<span>${plural(attempts, "attempt")}, ${short(last - first)}${zoom ? ` from ${clock(first, now)}` : ""}</span>`}>
    ${data.truncated ? html`<p class="note">The first ${count(attempts)} attempts: <label>task <input class="number" type="number" min="0" max=${job.tasks - 1} value=${task} onChange=${(event) => go(withQuery({ task: event.target.value }))} /></label></p>` : null}
    ${data.spans.length ? html`<div class="waterfall"><div class="axis" aria-hidden="true"><span></span><div>${ticksOf(last - first).map((tick) => html`<span key=${tick} style=${{ left: `${(tick / (last - first)) * 100}%` }}>${tick ? `+${short(tick)}` : clock(first, now)}</span>`)}</div></div>
      <ol aria-label="Spans">${seen.map(line)}</ol></div>${rows.length > MOST_ROWS ? html`<p class="note">${count(rows.length - MOST_ROWS)} more: close some, or name a task.</p>` : null}
      <div class="legend"><span><i class="t-held"></i>held back</span><span><i class="t-wait"></i>waiting</span><span><i class="t-alloc"></i>starting</span><span><i class="t-gate"></i>gate</span><span><i class="t-run"></i>running</span><span><i class="t-ok"></i>succeeded</span><span><i class="t-bad"></i>failed</span></div>` : html`<${Empty} title="Nothing of it has begun" />`}<//>`;
}
