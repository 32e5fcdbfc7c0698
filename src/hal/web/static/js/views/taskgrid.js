// All tasks of an array: a grid of cells by state, and a list of those of a range, what failed first.
import { html, useMemo } from "../h.js";
import { controller, useData } from "../api.js";
import { Link, go, usePlace, withQuery } from "../router.js";
import { count, plural, safe } from "../format.js";
import { Parts, State, taskCounts } from "../states.js";
import { Table } from "../table.js";
import { Chips, Empty, Fault, Loading, Panel } from "../ui.js";
import { TaskCanvas, expand } from "./taskcanvas.js";

const PAGE = 500, MOST_FAILED = 100;
const FAILED = "failed,timed-out";

// "100-199" -> [100, 199] within the job, or null.
function rangeOf(text, total) {
  const [, a, b] = /^(\d+)-(\d+)$/.exec(text || "") || [];
  return a != null && Number(a) <= Number(b) && Number(a) < total ? [Number(a), Math.min(Number(b), total - 1)] : null;
}

export function TaskGrid({ job }) {
  const { query } = usePlace(), only = query.get("tasks") || "all", range = rangeOf(query.get("range"), job.tasks), every = job.end_ms ? 0 : 3000;
  const grid = useData(controller(`jobs/${job.id}/task-states`), every);
  const all = useMemo(() => (grid.data ? expand(grid.data, job.tasks) : null), [grid.data, job.tasks]);
  const [from, until] = range || [0, job.tasks - 1], page = [from, Math.min(until, from + PAGE - 1)];
  const asked = new URLSearchParams({ limit: PAGE, ...(range || only === "all" ? { tasks: `${page[0]}-${page[1]}` } : {}), ...(only === "all" ? {} : { state: only }) });
  const list = useData(`${controller(`jobs/${job.id}/tasks`)}?${asked}`, every);
  const c = taskCounts(job), failed = (c.failed || 0) + (c["timed-out"] || 0);
  // Without a choice, what failed is listed before the rest.
  const first = useData(only === "all" && !range && failed ? `${controller(`jobs/${job.id}/tasks`)}?limit=${MOST_FAILED}&state=${FAILED}` : null, every);
  const rows = useMemo(() => {
    const worst = first.data?.tasks || [], known = new Set(worst.map((task) => task.task));
    return [...worst, ...(list.data?.tasks || []).filter((task) => !known.has(task.task))];
  }, [first.data, list.data]);
  const show = (a, b) => go(withQuery({ range: a == null ? "" : `${a}-${b}` }), true);
  const length = range ? until - from + 1 : PAGE;
  return html`<${Panel} title=${`${count(job.tasks)} tasks`} more=${range ? html`<span>tasks ${count(from)} to ${count(until)} are listed</span><button class="quiet small" onClick=${() => show(null)}>All tasks</button>` : null}><div class="counts">${Object.entries(c).filter(([, n]) => n).map(([state, n]) => html`<span key=${state}><${State} of=${state} /> ${count(n)}</span>`)}</div>
      ${all ? html`<${TaskCanvas} all=${all} total=${job.tasks} range=${range} pick=${(a, b) => (a === b ? go(`/jobs/${job.id}/tasks/${a}`) : show(a, b))} />` : grid.error ? html`<div class="pad"><${Parts} counts=${c} total=${job.tasks} /></div>` : html`<${Loading} what="Loading the states of all tasks" />`}<//>
    <${Panel} title=${range ? `Tasks ${count(from)} to ${count(until)}` : only === "all" ? (failed ? "Tasks, failed ones first" : "Tasks") : "Tasks"} more=${html`<${Chips} label="State" of=${[["all", "All"], ["active", "Running"], [FAILED, "Failed", failed || null], ["pending", "Waiting"], ["succeeded", "Succeeded"]]} at=${only} pick=${(name) => go(withQuery({ tasks: name === "all" ? "" : name }), true)} />`}>
      <${Fault} error=${list.error} /><${Table} fixed=${true} label="Tasks" columns=${columnsOf(job)} rows=${rows} rowKey=${(task) => task.task} to=${true} empty=${list.loading ? html`<${Loading} />` : html`<${Empty} title=${range ? "No task of this range is in that state" : "No task is in that state"} />`} />
      ${job.tasks > PAGE || range ? html`<nav class="pages" aria-label="Ranges of tasks"><button class="quiet small" disabled=${from === 0} onClick=${() => show(Math.max(0, from - length), from - 1)}>← Before</button><span class="muted">${only === "all" || range ? `${count(page[0])} to ${count(page[1])} of ${count(job.tasks)}` : `the first ${count(rows.length)}`}</span><button class="quiet small" disabled=${page[1] >= job.tasks - 1} onClick=${() => show(page[1] + 1, Math.min(job.tasks - 1, page[1] + length))}>Next →</button></nav>` : null}<//>`;
}

function columnsOf(job) {
  return [
    { key: "task", title: "Task", cell: (task) => html`<${Link} to=${`/jobs/${job.id}/tasks/${task.task}`} class="mono blue">${task.task}<//>` },
    { key: "state", title: "State", cell: (task) => html`<${State} of=${task.state} />` },
    { key: "attempt", title: "Attempt", class: "l1", cell: (task) => task.attempt || "–" },
    { key: "node", title: "Node", cell: (task) => (task.nodes.length > 1 ? plural(task.nodes.length, "node") : safe(task.nodes[0] || "")) },
    { key: "exit", title: "Exit code", class: "l1", cell: (task) => task.exit_code ?? "" },
    { key: "why", title: "Cause", class: "l2 muted", cell: (task) => safe(task.message || task.reason || task.cause) },
  ];
}
