// Queues: what waits in each, for what, and when it is forecast to start.
import { html } from "../h.js";
import { change, controller, right, useData } from "../api.js";
import { live, useLive } from "../live.js";
import { Link } from "../router.js";
import { baseRequest, clock, count, duration, plural, safe } from "../format.js";
import { confirm, toast } from "../dialogs.js";
import { Parts } from "../states.js";
import { Ago, Empty, Facts, Head, Loading, Panel, Shown, useNow } from "../ui.js";
import { shortOf } from "./overview.js";

function Head1({ id, now }) {
  const { data: why } = useData(controller(`jobs/${id}/why`), 8000);
  return html`first: job <${Link} to=${`/jobs/${id}`} class="blue">${id}<//>${why ? html` · ${safe(why.message)}${why.starts_at_ms ? html`, starts about <strong>${clock(why.starts_at_ms, now)}</strong> (<${Ago} at=${why.starts_at_ms} now=${now} />)` : ""}` : ""}`;
}

const mark = (queue) => (queue.open && queue.starts ? null : html`<span class="tag">${queue.starts ? "drained" : "closed"}</span>`);

export function Queues() {
  useLive();
  const wants = useData(controller("wants"), 5000), now = useNow(5000);
  if (!live.pulse) return html`<${Head} title="Queues" /><${Loading} />`;
  const queues = [...live.pulse.queues].sort((a, b) => b.pending + b.running - a.pending - a.running);
  return html`<${Head} title="Queues" sub=${html`<span>${plural(queues.length, "queue")}</span>`} />
    ${queues.map((queue) => {
      const head = wants.data?.classes.find((one) => one.queues[queue.name]);
      return html`<${Panel} key=${queue.name} title=${html`<${Link} to=${`/queues/${encodeURIComponent(queue.name)}`}>${safe(queue.name)}<//> ${mark(queue)}`} more=${html`<span>${plural(queue.jobs, "job")}</span>`}><div class="pad">
        ${queue.description ? html`<p class="muted">${safe(queue.description)}</p>` : null}
        <${Parts} counts=${{ running: queue.running, held: queue.held, pending: queue.pending }} total=${queue.running + queue.pending + queue.held} />
        <p class="row">${count(queue.running)} running · ${count(queue.pending)} waiting${queue.held ? ` · ${count(queue.held)} held` : ""}</p>
        ${head ? html`<p class="muted"><${Head1} id=${head.head} now=${now} /></p>` : queue.pending ? null : html`<p class="muted">Nothing waits here.</p>`}</div><//>`;
    })}`;
}

async function setState(name, state) {
  const [verb, text] = { open: ["Open", "It accepts jobs, and its jobs start."], drained: ["Drain", "Nothing new is accepted. What waits may start, what runs continues."], closed: ["Close", "Nothing new is accepted and nothing starts. What runs continues."] }[state];
  if ((await confirm({ title: `${verb} queue ${safe(name)}?`, text, verb, tone: state === "open" ? "primary" : "danger" })) === null) return;
  try { await change(controller("queues/state"), { queue: name, state }); toast(`Queue ${safe(name)}: ${state}`); } catch (error) { toast(`${error.message} ${error.hint || ""}`, "bad"); }
}

export function Queue({ name }) {
  useLive();
  const wants = useData(controller("wants"), 5000), plan = useData(controller("plan"), 5000), policy = useData(controller("policy"), 60000), now = useNow(5000);
  const queue = live.pulse?.queues.find((one) => one.name === name), crumbs = html`<${Link} to="/queues">Queues<//>`;
  if (!live.pulse) return html`<${Head} title=${safe(name)} crumbs=${crumbs} /><${Loading} />`;
  if (!queue) return html`<${Head} title=${safe(name)} crumbs=${crumbs} /><${Empty} title="There is no such queue" />`;
  const rules = policy.data?.policy?.queues?.[name] || {}, able = right("POST /v1/queues/state") !== "none";
  const own = [queue.default_walltime ? ["Default walltime", queue.default_walltime] : null, queue.max_walltime ? ["Longest walltime", queue.max_walltime] : null, ...Object.entries(rules).filter(([, value]) => value != null && typeof value !== "object").map(([key, value]) => [key.replace(/_/g, " "), safe(value)])].filter(Boolean);
  const state = queue.open && queue.starts ? "open" : queue.starts ? "drained" : "closed";
  return html`<${Head} title=${safe(name)} crumbs=${crumbs} sub=${html`<span>${state}</span><span>${count(queue.running)} running</span><span>${count(queue.pending)} waiting</span><${Link} to=${`/jobs?q=${encodeURIComponent(`queue:${name}`)}`} class="blue">its jobs<//>`}>
      ${able ? ["open", "drained", "closed"].filter((one) => one !== state).map((one) => html`<button key=${one} class="quiet" onClick=${() => setState(name, one)}>${{ open: "Open", drained: "Drain", closed: "Close" }[one]}</button>`) : null}<//>
    <div class="cols"><div><${Panel} title="What waits, in order"><${Shown} of=${wants} what="Loading what waits">${(data) => {
      const classes = data.classes.filter((one) => one.queues[name]);
      return classes.length ? html`<ul class="list">${classes.slice(0, 60).map((one, n) => html`<li key=${one.head + n}><div class="row"><strong>${baseRequest(one.request)}${one.nodes > 1 ? ` × ${one.nodes} nodes` : ""}</strong><span class="nowrap">${plural(one.queues[name], "job")}</span></div>
        <div class="muted">${shortOf(one)} · fits on ${plural(one.fits_ever, "node")}, now on ${count(one.fits_now)}</div><div class="muted">${n < 6 ? html`<${Head1} id=${one.head} now=${now} />` : html`first: job <${Link} to=${`/jobs/${one.head}`} class="blue">${one.head}<//>, waits for ${duration(now - one.head_since_ms)}`}</div></li>`)}</ul>` : html`<${Empty} title="Nothing waits for nodes here">Jobs that are held, or wait for others, are in the list of jobs.<//>`;
    }}<//><//></div>
    <div><${Panel} title="Rules">${own.length ? html`<${Facts} rows=${own} />` : html`<p class="note">No rules of its own.</p>`}<//>
    ${plan.data?.reservations?.length ? html`<${Panel} title="Reserved"><ul class="list">${plan.data.reservations.slice(0, 8).map((one) => html`<li key=${one.job + one.task} class="row"><span>Job <${Link} to=${`/jobs/${one.job}`} class="blue">${one.job}<//></span><span class="muted"><${Ago} at=${one.start_ms} now=${now} /></span></li>`)}</ul><//>` : null}</div></div>`;
}
