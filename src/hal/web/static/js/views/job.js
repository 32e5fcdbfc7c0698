// One job: what it is doing or waiting for, when it ran and will run, what it printed, used and needs.
import { html } from "../h.js";
import { controller, getSession, useData } from "../api.js";
import { Link } from "../router.js";
import { JobActions } from "../actions.js";
import { clock, count, duration, full, plural, request, safe } from "../format.js";
import { Copy } from "../dialogs.js";
import { Parts, State, jobState, taskCounts } from "../states.js";
import { Ago, Bar, Empty, Facts, Head, Panel, Shown, Tabs, useNow } from "../ui.js";
import { Logs } from "./logs.js";
import { TaskGrid } from "./taskgrid.js";
import { Graph } from "./graph.js";
import { Times } from "./times.js";
import { Trace } from "./trace.js";
import { Use } from "./attemptuse.js";

const ENDED = ["succeeded", "failed", "cancelled", "timed-out"];

export function Job({ id, tab, task }) {
  const at = `jobs/${encodeURIComponent(id)}`;
  const found = useData(controller(at), 1500);
  const job = found.data;
  if (found.error && !job) return html`<${Head} title=${`Job ${safe(id)}`} crumbs=${html`<${Link} to="/jobs">Jobs<//>`} /><${Empty} title=${found.error.status === 404 ? "There is no such job" : found.error.message}>${found.error.status === 404 ? "It was removed, or it is not yours to see." : found.error.hint}<//>`;
  return html`<${Shown} of=${found} what="Loading the job">${(data) => html`<${Loaded} job=${data} tab=${task != null ? "task" : tab || "overview"} task=${task} refresh=${found.refresh} />`}<//>`;
}

function Loaded({ job, tab, task, refresh }) {
  const now = useNow(), many = job.tasks > 1, waits = !ENDED.includes(job.state) && (job.counts.pending > 0 || job.counts.held > 0);
  // Of a job that has ended those that no longer wait are looked for, once.
  const known = (job.spec?.dependencies?.length || job.dependants?.length || 0) > 0, later = useData(job.end_ms && !known ? `${controller(`jobs/${job.id}`)}?all_dependants=1` : null);
  const linked = known || tab === "graph" || later.data?.dependants?.length > 0, collects = getSession().collector;
  const tabs = [["overview", "Overview"], ...(many ? [["tasks", "Tasks", job.tasks]] : []), ["logs", "Output"], ...(linked ? [["graph", "Graph"]] : []), ...(collects ? [["trace", "Trace"]] : []), ["spec", "Spec"]];
  return html`<${Head} title=${safe(job.name) || `Job ${job.id}`} crumbs=${html`<${Link} to="/jobs">Jobs<//> / ${job.id}`}
    sub=${html`<${State} of=${jobState(job)} title=${safe(job.reason)} /><span>${safe(job.user)}${job.account ? ` for ${safe(job.account)}` : ""}</span><span>queue <${Link} to=${`/queues/${encodeURIComponent(job.queue)}`}>${safe(job.queue)}<//></span><span>submitted <${Ago} at=${job.submit_ms} now=${now} /></span>${job.start_ms ? html`<span>${job.end_ms ? "ran" : "runs for"} ${duration((job.end_ms || now) - job.start_ms)}</span>` : null}${job.reason && !waits ? html`<span>${safe(job.reason)}</span>` : null}`}>
    <${JobActions} jobs=${[job]} after=${refresh} /><//>
  <${Tabs} label="Parts of the job" of=${tabs} at=${tab === "task" ? "tasks" : tab} to=${(name) => (name === "overview" ? `/jobs/${job.id}` : `/jobs/${job.id}/${name}`)} />
  ${tab === "overview" ? html`<${About} job=${job} now=${now} waits=${waits} many=${many} />`
    : tab === "tasks" ? html`<${TaskGrid} job=${job} />`
    : tab === "task" ? html`<${Task} job=${job} task=${Number(task)} now=${now} />`
    : tab === "logs" ? html`<${Logs} job=${job} task=${0} />`
    : tab === "trace" && collects ? html`<${Trace} job=${job} />`
    : tab === "graph" ? html`<${Graph} job=${job} />`
    : tab === "spec" ? html`<${Spec} job=${job} />` : html`<${Empty} title="There is no such part of a job" />`}`;
}

function About({ job, now, waits, many }) {
  const single = useData(many ? null : controller(`jobs/${job.id}/tasks/0`), job.end_ms ? 0 : 2000), why = useData(waits ? controller(`jobs/${job.id}/why`) : null, 4000);
  const c = taskCounts(job), last = single.data?.attempts?.[single.data.attempts.length - 1];
  return html`${waits ? html`<${Why} found=${why} now=${now} />` : null}
    ${many ? html`<${Panel} title=${`Tasks · ${count(job.tasks)}`} more=${html`<${Link} to=${`/jobs/${job.id}/tasks`}>all tasks<//>`}><div class="counts">${Object.entries(c).filter(([, n]) => n).map(([state, n]) => html`<span key=${state}><${State} of=${state} /> ${count(n)}</span>`)}</div><div class="pad"><${Parts} counts=${c} total=${job.tasks} /></div><//>` : null}
    <${Times} job=${job} task=${single.data} why=${why.data} waits=${waits} now=${now} />
    ${last ? html`<${Use} job=${job} task=${0} attempt=${last} now=${now} />` : null}
    <div class="cols"><div>${!many && (job.start_ms || job.end_ms) ? html`<${Logs} job=${job} task=${0} short=${true} />` : html`<${Request} job=${job} />`}</div>
    <div>${waits ? html`<${Priority} job=${job} />` : null}${!many && (job.start_ms || job.end_ms) ? html`<${Request} job=${job} />` : null}<${Where} job=${job} task=${single.data} /></div></div>`;
}

function Request({ job }) {
  return html`<${Panel} title="Request"><${Facts} rows=${[["Resources", `${request(job.request)}${job.nodes > 1 ? ` on each of ${job.nodes} nodes` : ""}`], ["Walltime", job.walltime || "none"], ["Priority", count(job.priority)], job.restarts ? ["Restarts", count(job.restarts)] : null, ["Submitted", full(job.submit_ms)], job.start_ms ? ["Started", full(job.start_ms)] : null, job.end_ms ? ["Ended", full(job.end_ms)] : null, job.exit_code != null ? ["Exit code", job.exit_code] : null,
    Object.keys(job.labels || {}).length ? ["Labels", Object.entries(job.labels).map(([key, value]) => html`<span class="tag" key=${key}>${safe(key)}=${safe(value)}</span>`)] : null]} /><//>`;
}

function Why({ found, now }) {
  return html`<${Panel} title="Why it waits"><${Shown} of=${found} what="Asking the engine">${(why) => html`<div class="why"><p class="big">${safe(why.message)}</p>
    <p class="muted">${why.starts_at_ms ? html`Starts about <strong>${clock(why.starts_at_ms, now)}</strong> (<${Ago} at=${why.starts_at_ms} now=${now} />): ${safe(why.basis || "what is known")}.` : why.never ? "Nothing that HAL knows of could let it start." : "No forecast: nothing known says when."}${why.position ? ` ${plural(why.position, "job")} ahead ${why.position === 1 ? "competes" : "compete"} for the same.` : ""}</p>
    ${why.helps?.length || why.sooner?.length ? html`<ul>${(why.helps || []).map((text) => html`<li key=${text}><span>${safe(text)}</span></li>`)}${(why.sooner || []).map((one) => html`<li key=${one.field}><span><code>hal update ${why.job} --${safe(one.field)} ${safe(one.value)}</code> starts it now</span></li>`)}</ul>` : null}</div>`}<//><//>`;
}

function Priority({ job }) {
  const found = useData(controller(`jobs/${job.id}/priority`), 15000);
  if (!found.data) return null;
  const parts = ["age", "fairshare", "qos", "queue", "priority", "size", "deadline"].filter((name) => found.data[name]);
  if (!parts.length) return null;
  const most = Math.max(...parts.map((name) => Math.abs(found.data[name])));
  return html`<${Panel} title="Priority" more=${count(Math.round(found.data.total))}><div class="pad">${parts.map((name) => html`<div class="use" key=${name}><span class="k">${name}</span><${Bar} used=${Math.abs(found.data[name])} of=${most} /><span class="v">${count(Math.round(found.data[name]))}</span></div>`)}</div><//>`;
}

function Where({ job, task }) {
  const nodes = task?.nodes?.length ? task.nodes : job.present_nodes || [];
  if (!nodes.length) return null;
  return html`<${Panel} title=${job.end_ms ? "Where it ran" : "Where it runs"}><div class="pad">${nodes.slice(0, 64).map((name) => html`<${Link} key=${name} class="tag" to=${`/nodes/${encodeURIComponent(name)}`}>${safe(name)}<//>`)}${nodes.length > 64 ? html`<span class="muted">and ${nodes.length - 64} more</span>` : null}
    ${task?.attempts?.length ? task.attempts[task.attempts.length - 1].gpus.flat().map((gpu) => html`<span class="tag" key=${gpu}>${safe(gpu)}</span>`) : null}</div><//>`;
}

function Task({ job, task, now }) {
  const found = useData(controller(`jobs/${job.id}/tasks/${task}`), 2000);
  return html`<${Shown} of=${found} what="Loading the task">${(one) => html`<${Panel} title=${html`Task ${task} <${State} of=${one.state} />`} more=${html`${task > 0 ? html`<${Link} to=${`/jobs/${job.id}/tasks/${task - 1}`}>previous<//>` : null}${task + 1 < job.tasks ? html`<${Link} to=${`/jobs/${job.id}/tasks/${task + 1}`}>next<//>` : null}`}>
    <${Facts} rows=${[["Nodes", one.nodes.length ? one.nodes.slice(0, 8).map((name) => html`<${Link} key=${name} class="tag" to=${`/nodes/${encodeURIComponent(name)}`}>${safe(name)}<//>`) : "–"], ["Attempt", one.attempt || "–"], one.exit_code != null ? ["Exit code", one.exit_code] : null, one.cause ? ["Cause", safe(one.cause)] : null, one.message ? ["Message", safe(one.message)] : null, one.reason ? ["Reason", safe(one.reason)] : null]} /><//>
    <${Times} job=${job} task=${one} waits=${false} now=${now} />${one.attempts?.length ? html`<${Use} job=${job} task=${task} attempt=${one.attempts[one.attempts.length - 1]} now=${now} />` : null}<${Logs} job=${job} task=${task} />`}<//>`;
}

function Spec({ job }) {
  const text = JSON.stringify(job.spec, null, 2);
  return html`<${Panel} title="As it was submitted" more=${html`<${Copy} text=${text} />`}><pre class="spec" tabindex="0">${text}</pre><//>`;
}
