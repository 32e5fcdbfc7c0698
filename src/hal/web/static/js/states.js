// States of jobs, tasks and nodes: their shape, their colour, and many of them as one bar.
import { html } from "./h.js";
import { count } from "./format.js";
import { Icon, hasIcon } from "./icons.js";

const ALIKE = {
  allocated: "allocated", starting: "allocated", staging: "allocated", preparing: "allocated", finalising: "running", suspended: "held",
  checkpointing: "running", stopping: "running", lost: "failed", preempted: "pending", "node-lost": "failed", unreachable: "down",
  stopped: "down", cordoned: "held", draining: "held", removed: "cancelled", firing: "failed", resolved: "succeeded",
};

export function kindOf(state) {
  return hasIcon(state) && !ALIKE[state] ? state : ALIKE[state] || state;
}

export function State({ of, title }) {
  const kind = kindOf(of);
  return html`<span class=${`state s-${kind}`} title=${title}><${Icon} name=${kind} />${of}</span>`;
}

// The state of a job for people: one that is held says so.
export function jobState(job) {
  if (job.held && job.state === "pending") return "held";
  return job.state;
}

const ORDER = ["succeeded", "failed", "timed-out", "cancelled", "running", "allocated", "held", "pending"];

// Tasks by state, as one bar of parts.
export function Parts({ counts, total }) {
  const parts = ORDER.filter((state) => counts[state] > 0);
  const title = parts.map((state) => `${count(counts[state])} ${state}`).join(", ");
  return html`<span class="parts" role="img" aria-label=${title} title=${title}>
    ${parts.map((state) => html`<span key=${state} class=${`p-${kindOf(state)}`} style=${{ flexGrow: Math.max(counts[state], total / 60) }}></span>`)}
  </span>`;
}

export function taskCounts(job) {
  const c = { ...job.counts };
  c.allocated = Math.max(0, (c.active || 0) - (c.running || 0));
  delete c.active;
  return c;
}
