// When a job ran and will run: its attempts, what it waits for first, and what is reserved or forecast for it.
import { html } from "../h.js";
import { controller, useData } from "../api.js";
import { Link } from "../router.js";
import { clock, count, duration, durationMs, plural, safe } from "../format.js";
import { Panel } from "../ui.js";
import { Gantt } from "./gantt.js";

const TONE = { succeeded: "ok", failed: "bad", lost: "bad", "timed-out": "bad", refused: "bad", "out-of-memory": "bad", cancelled: "off", preempted: "off" };
const SHOWN = 12, OF_ARRAY = 24, UNKNOWN_MS = 3600e3, AHEAD = 3, LEAST_AHEAD_MS = 300e3;

// Of one task: each attempt waits, starts and runs. Of an array: its attempts that ended last.
export function Times({ job, task, why, waits, now }) {
  const many = !task && job.tasks > 1;
  const ended = useData(many ? `${controller("attempts")}?newest=1&limit=${OF_ARRAY}&job=${job.id}` : null, job.end_ms ? 0 : 5000), plan = useData(waits ? controller("plan") : null, 5000);
  if (many && !ended.data && !plan.data) return null;
  const mine = (plan.data?.reservations || []).filter((one) => one.job === job.id).slice(0, 4);
  const rows = many ? arrayRows(ended.data?.attempts || []) : task || waits ? attemptRows(job, task?.attempts || [], now, waits) : [];
  rows.push(...planRows(job, mine, why, now));
  if (!rows.length) return null;
  const planned = rows.filter((row) => row.planned), all = rows.flatMap((row) => row.bars);
  // A run of a minute that may take 12 hours is to be seen, too: what is ahead is cut.
  const first = Math.min(...all.map((bar) => bar.from)), past = Math.max(now, ...planned.flatMap((row) => row.bars.map((bar) => bar.from)));
  const last = Math.min(Math.max(...all.map((bar) => bar.to), ...rows.map((row) => row.until || 0)), past + Math.max(LEAST_AHEAD_MS, AHEAD * (past - first)));
  return html`<${Panel} title="Timeline" more=${html`${many && ended.data?.attempts.length ? html`<span>the ${plural(ended.data.attempts.length, "attempt")} that ended last</span>` : null}${planned.length ? html`<span>${planned[0].note}</span>` : null}<${Link} to="/timeline">all jobs<//>`}>
    <${Gantt} now=${now} label=${`Timeline of job ${job.id}: ${rows.map((row) => `${row.name} ${row.end || ""}`).join(", ")}`} rows=${rows} until=${last} /><//>`;
}

function attemptRows(job, attempts, now, waits) {
  const rows = [];
  let since = job.submit_ms;
  for (const one of attempts.slice(-SHOWN)) {
    const end = one.end_ms ?? now, lasts = !one.end_ms && one.start_ms && job.walltime ? one.start_ms + durationMs(job.walltime) : null;
    rows.push({ name: `attempt ${one.attempt}`, bars: [{ from: since, to: one.allocated_ms ?? end, tone: "wait", title: `waited ${duration((one.allocated_ms ?? end) - since)}` },
      ...(one.allocated_ms ? [{ from: one.allocated_ms, to: one.start_ms ?? end, tone: "alloc", title: `starting ${duration((one.start_ms ?? end) - one.allocated_ms)}` }] : []),
      ...(one.start_ms ? [{ from: one.start_ms, to: end, tone: TONE[one.state] || "run", title: `${one.state} after ${duration(end - one.start_ms)}${one.exit_code ? `, exit code ${one.exit_code}` : ""}` }] : [])],
      end: lasts && lasts > now ? `until ${clock(lasts, now)}` : `${one.state}${one.exit_code ? ` (${one.exit_code})` : ""}`, until: lasts });
    since = end;
  }
  if (waits && !job.end_ms) rows.push({ name: attempts.length ? "waits again" : "waits", bars: [{ from: since, to: now, tone: "wait", title: `waits for ${duration(now - since)}` }], end: duration(now - since) });
  else if (!rows.length) rows.push({ name: "waited", bars: [{ from: job.submit_ms, to: job.end_ms ?? now, tone: "wait", title: "it never began" }], end: job.state });
  return rows;
}

function arrayRows(attempts) {
  return [...attempts].reverse().filter((one) => one.start_ms).map((one) => ({ key: one.sequence, name: `task ${one.task}`, end: one.state, bars: [{ from: one.allocated_ms ?? one.start_ms, to: one.start_ms, tone: "alloc", title: `task ${one.task} starting` }, { from: one.start_ms, to: one.end_ms, tone: TONE[one.state] || "off", title: `task ${one.task}, attempt ${one.attempt}: ${one.state} on ${one.nodes.slice(0, 3).map(safe).join(", ")}` }] }));
}

// What is reserved for it, or else when it is forecast to start; how long it then may run.
function planRows(job, reserved, why, now) {
  const lasts = durationMs(job.walltime) || UNKNOWN_MS;
  if (reserved.length) {
    return reserved.map((one) => ({ planned: true, key: `r${one.task}`, name: "reserved", note: `${plural(one.nodes.length, "node")} reserved from ${clock(one.start_ms, now)}`, end: one.nodes.length === 1 ? one.nodes[0] : plural(one.nodes.length, "node"),
      bars: [{ from: one.start_ms ?? now, to: one.end_ms ?? (one.start_ms ?? now) + lasts, tone: "plan", title: `${one.nodes.slice(0, 4).map(safe).join(", ")} reserved${job.tasks > 1 ? ` for task ${count(one.task)}` : ""}` }] }));
  }
  if (!why?.starts_at_ms) return [];
  const at = Math.max(now, why.starts_at_ms);
  return [{ planned: true, name: "forecast", note: `forecast: starts about ${clock(at, now)}`, end: job.walltime ? `up to ${job.walltime}` : "no walltime", bars: [{ from: at, to: at + lasts, tone: "plan", title: `forecast by ${safe(why.basis || "what is known")}` }] }];
}
