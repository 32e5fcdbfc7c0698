// Sessions of short tasks: the job of the broker, and those of the slots.
import { html } from "../h.js";
import { controller, useData } from "../api.js";
import { Link } from "../router.js";
import { count, plural, request, safe } from "../format.js";
import { Parts, State, jobState, taskCounts } from "../states.js";
import { Ago, Empty, Head, Panel, Shown, useNow } from "../ui.js";

const NAME = "hal/session", PART = "hal/part", SHAPE = "hal/shape";

export function Sessions() {
  const found = useData(`${controller("jobs")}?state=live&limit=1000&label=${encodeURIComponent(NAME)}`, 4000), now = useNow(5000);
  return html`<${Head} title="Sessions" sub=${html`<span>Brokers, and the slots in which they run short tasks</span>`} />
    <${Shown} of=${found} what="Loading the sessions">${(data) => {
      const all = new Map();
      for (const job of data.jobs) {
        const key = `${job.user} ${job.labels[NAME]}`;
        if (!all.has(key)) all.set(key, []);
        all.get(key).push(job);
      }
      if (!all.size) return html`<${Panel}><${Empty} title="No session is open">Open one in Python: <code>with hal.session("sweep") as session: session.map(work, range(1000))</code><//><//>`;
      return html`${[...all.values()].map((jobs) => {
        const broker = jobs.find((job) => job.labels[PART] === "broker"), slots = jobs.filter((job) => job !== broker);
        return html`<${Panel} key=${jobs[0].id} title=${safe(jobs[0].labels[NAME])} more=${html`<span>${safe(jobs[0].user)} · ${safe(jobs[0].queue)} · since <${Ago} at=${jobs[0].submit_ms} now=${now} /></span>`}><ul class="list">
          <li class="row"><span>broker ${broker ? html`<${Link} to=${`/jobs/${broker.id}`} class="blue">${broker.id}<//>` : "has ended"}</span>${broker ? html`<${State} of=${jobState(broker)} />` : null}</li>
          ${slots.map((job) => html`<li key=${job.id}><div class="row"><span>slots ${job.labels[SHAPE] ? safe(job.labels[SHAPE]) : ""} <${Link} to=${`/jobs/${job.id}`} class="blue">${job.id}<//> <span class="muted">${request(job.request)}</span></span><span class="nowrap">${count(job.counts.running)} of ${plural(job.tasks, "slot")} run</span></div><${Parts} counts=${taskCounts(job)} total=${job.tasks} /></li>`)}</ul><//>`;
      })}`;
    }}<//>`;
}
