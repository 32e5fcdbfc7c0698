// What a person can change, each after a question: jobs and nodes; only what their rights allow is offered.
import { html } from "./h.js";
import { change, controller, right } from "./api.js";
import { confirm, toast } from "./dialogs.js";
import { plural, safe } from "./format.js";

const ENDED = ["succeeded", "failed", "cancelled", "timed-out", "lost"];
const JOBS = {
  cancel: { verb: "Cancel", done: "cancelled", fits: (job) => !ENDED.includes(job.state), text: "Waiting tasks end at once; running ones get SIGTERM, then SIGKILL. This cannot be undone.", tone: "danger" },
  hold: { verb: "Hold", done: "held", fits: (job) => !ENDED.includes(job.state) && !job.held, text: "Waiting tasks do not start until they are released. What runs continues.", tone: "primary" },
  release: { verb: "Release", done: "released", fits: (job) => job.held || (job.counts?.held || 0) > 0, text: "Held tasks wait for resources again, at their old rank.", tone: "primary" },
  requeue: { verb: "Requeue", done: "requeued", fits: (job) => job.state !== "pending", text: "Running tasks are stopped and wait again; tasks that did not succeed run again.", tone: "danger" },
};

const titled = (jobs) => (jobs.length === 1 ? `job ${jobs[0].id}${jobs[0].name ? ` (${safe(jobs[0].name).slice(0, 60)})` : ""}` : plural(jobs.length, "job"));

function told(results, done) {
  const refused = results.filter((one) => !one.ok), went = results.length - refused.length;
  if (went) toast(`${plural(went, results[0].kind || "one", results[0].kind ? undefined : "of them")} ${done}`.replace("1 one ", "Done: "));
  refused.slice(0, 3).forEach((one) => toast(`${safe(one.id)}: ${safe(one.detail)} ${safe(one.hint || "")}`, "bad"));
}

export function mayChange(action) {
  return right(`POST /v1/jobs/${action}`) !== "none";
}

export async function doJobs(action, jobs, after) {
  const known = JOBS[action];
  if ((await confirm({ title: `${known.verb} ${titled(jobs)}?`, text: known.text, verb: known.verb, tone: known.tone })) === null) return;
  try {
    const answer = await change(controller(`jobs/${action}`), { ids: jobs.map((job) => job.id) });
    told((answer.results || []).map((one) => ({ ...one, kind: "job" })), known.done);
  } catch (error) { toast(`${error.message} ${error.hint || ""}`, "bad"); }
  after?.();
}

// Buttons for what fits one job or several.
export function JobActions({ jobs, after, small }) {
  return html`${Object.entries(JOBS).map(([action, { verb, fits }]) => {
    const able = jobs.filter(fits);
    return mayChange(action) && able.length ? html`<button key=${action} class=${`quiet ${small ? "small" : ""}`} onClick=${() => doJobs(action, able, after)}>${verb}${jobs.length > 1 && able.length < jobs.length ? ` (${able.length})` : ""}</button>` : null;
  })}`;
}

const NODES = {
  cordon: { verb: "Cordon", done: "cordoned", fits: (state) => state === "up" || state === "draining", text: "Nothing new starts there. Running work continues.", tone: "primary", reason: true },
  drain: { verb: "Drain", done: "draining", fits: (state) => state === "up" || state === "cordoned", text: "Nothing new starts there. Running work continues to its end; then the node is empty.", tone: "primary", reason: true },
  uncordon: { verb: "Open", done: "opened", fits: (state) => state === "cordoned" || state === "draining", text: "It takes new work again. Failing checks keep a node closed.", tone: "primary" },
};

export async function doNodes(action, names, after) {
  const known = NODES[action];
  const reason = await confirm({ title: `${known.verb} ${names.length === 1 ? `node ${safe(names[0])}` : plural(names.length, "node")}?`, text: known.text, verb: known.verb, tone: known.tone, reason: known.reason });
  if (reason === null) return;
  const body = { nodes: names };
  if (known.reason && reason) body.reason = reason;
  try {
    const answer = await change(controller(`nodes/${action}`), body);
    told((answer.results || []).map((one) => ({ ...one, kind: "node" })), known.done);
  } catch (error) { toast(`${error.message} ${error.hint || ""}`, "bad"); }
  after?.();
}

export function NodeActions({ nodes, after, small }) {
  return html`${Object.entries(NODES).map(([action, { verb, fits }]) => {
    const able = nodes.filter((node) => fits(node.state)).map((node) => node.name);
    return right(`POST /v1/nodes/${action}`) !== "none" && able.length ? html`<button key=${action} class=${`quiet ${small ? "small" : ""}`} onClick=${() => doNodes(action, able, after)}>${verb}</button>` : null;
  })}`;
}
