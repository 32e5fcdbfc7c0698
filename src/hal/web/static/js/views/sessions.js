// Sessions of short tasks: how many slots each has, where, what the others wait for, and the broker that feeds them.
import { html } from "../h.js";
import { controller, useData } from "../api.js";
import { doJobs, mayChange } from "../actions.js";
import { Link } from "../router.js";
import { count, plural, request, safe } from "../format.js";
import { Parts, State, jobState, taskCounts } from "../states.js";
import { Ago, Empty, Head, Panel, Shown, useNow } from "../ui.js";

const NAME = "hal/session", PART = "hal/part", SHAPE = "hal/shape", MOST_NODES = 12;

export function Sessions() {
  const found = useData(`${controller("jobs")}?state=live&limit=1000&reasons=1&placed=1&label=${encodeURIComponent(NAME)}`, 4000), now = useNow(5000);
  const sessions = new Map();
  for (const job of found.data?.jobs || []) {
    const key = `${job.user} ${job.labels[NAME]}`;
    if (!sessions.has(key)) sessions.set(key, []);
    sessions.get(key).push(job);
  }
  const all = [...sessions.values()].sort((a, b) => slotsOf(b).running - slotsOf(a).running), running = all.reduce((sum, jobs) => sum + slotsOf(jobs).running, 0);
  return html`<${Head} title="Sessions" sub=${html`<span>${plural(all.length, "session")}, ${plural(running, "slot")} running</span>`} />
    <${Shown} of=${found} what="Loading the sessions">${() => (all.length ? html`<div class="cards">${all.map((jobs) => html`<${Session} key=${jobs[0].id} jobs=${jobs} now=${now} refresh=${found.refresh} />`)}</div>` : html`<${Panel}><${Empty} title="No session is open">Open one in Python: <code>with hal.session("sweep") as session: session.map(work, range(1000))</code><//><//>`)}<//>`;
}

const partsOf = (jobs) => { const broker = jobs.find((job) => job.labels[PART] === "broker"); return { broker, slots: jobs.filter((job) => job !== broker) }; };

function slotsOf(jobs) {
  const { slots } = partsOf(jobs);
  return { running: slots.reduce((sum, job) => sum + job.counts.running, 0), most: slots.reduce((sum, job) => sum + job.tasks, 0) };
}

function Session({ jobs, now, refresh }) {
  const { broker, slots } = partsOf(jobs), { running, most } = slotsOf(jobs), waits = slots.find((job) => job.waiting && job.counts.pending);
  const nodes = [...new Set(slots.flatMap((job) => job.placement?.nodes || []))], more = slots.reduce((sum, job) => sum + (Number(job.placement?.more) || 0), 0);
  return html`<${Panel} title=${safe(jobs[0].labels[NAME])} more=${html`<span>${safe(jobs[0].user)}${jobs[0].account ? ` for ${safe(jobs[0].account)}` : ""} · ${safe(jobs[0].queue)} · opened <${Ago} at=${Math.min(...jobs.map((job) => job.submit_ms))} now=${now} /></span>${mayChange("cancel") ? html`<button class="quiet small" onClick=${() => doJobs("cancel", jobs, refresh)}>End</button>` : null}`}>
    <div class="session"><p class="slots"><span>${count(running)}</span><small>of ${plural(most, "slot")} ${running === 1 ? "runs" : "run"}</small></p>
      ${slots.map((job) => html`<div key=${job.id} class="shape"><div class="row"><span>${job.labels[SHAPE] ? html`<strong>${safe(job.labels[SHAPE])}</strong> ` : ""}<${Link} to=${`/jobs/${job.id}`} class="blue">${job.id}<//> <span class="muted">${request(job.request)} each</span></span><span class="muted nowrap">${count(job.counts.running)} of ${count(job.tasks)}</span></div><${Parts} counts=${taskCounts(job)} total=${job.tasks} /></div>`)}
      ${waits ? html`<p class="muted">The others wait: ${safe(waits.waiting.short || waits.waiting.reason)}</p>` : null}
      <p class="row"><span>${broker?.tasks > 1 ? `${count(broker.counts.running)} of ${count(broker.tasks)} brokers` : "broker"} ${broker ? html`<${Link} to=${`/jobs/${broker.id}`} class="blue">${broker.id}<//> ${broker.placement?.nodes?.length ? html`<span class="muted">on</span> ${broker.placement.nodes.slice(0, MOST_NODES).map((name) => html`<${Link} key=${name} class="tag" to=${`/nodes/${encodeURIComponent(name)}`}>${safe(name)}<//>`)}` : null}` : html`<span class="s-failed">has ended: the slots end, too</span>`}</span>${broker ? html`<${State} of=${jobState(broker)} />` : null}</p>
      ${nodes.length ? html`<p class="where"><span class="muted">slots on</span> ${nodes.slice(0, MOST_NODES).map((name) => html`<${Link} key=${name} class="tag" to=${`/nodes/${encodeURIComponent(name)}`}>${safe(name)}<//>`)}${nodes.length > MOST_NODES || more ? html`<span class="muted">and more</span>` : null}</p>` : null}</div><//>`;
}
