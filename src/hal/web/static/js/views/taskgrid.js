// All tasks of an array on one canvas: a cell a task, or a cell of several where there are very many.
import { html, useEffect, useRef, useState } from "../h.js";
import { controller, useData } from "../api.js";
import { Link, go, usePlace, withQuery } from "../router.js";
import { count, plural, safe } from "../format.js";
import { Parts, State, kindOf, taskCounts } from "../states.js";
import { Table } from "../table.js";
import { Chips, Empty, Fault, Loading, Panel } from "../ui.js";

const HEIGHT = 360;
const COLOURS = { succeeded: "--ok", failed: "--bad-fill", "timed-out": "--bad-fill", cancelled: "--line-strong", running: "--run", allocated: "--ramp-3", held: "--held", pending: "--ramp-1" };
const WORST = ["failed", "timed-out", "running", "allocated", "held", "cancelled", "pending", "succeeded"];

function expand(ranges, total) {
  const states = ranges.states, of = new Uint8Array(total);
  let at = 0;
  for (const [state, length] of ranges.runs) { of.fill(state, at, at + length); at += length; }
  return { states, of };
}

export function TaskGrid({ job }) {
  const { query } = usePlace(), only = query.get("tasks") || "all";
  const grid = useData(`${controller(`jobs/${job.id}/task-states`)}`, job.end_ms ? 0 : 3000);
  const list = useData(`${controller(`jobs/${job.id}/tasks`)}?limit=500${only === "all" ? "" : `&state=${only}`}`, job.end_ms ? 0 : 3000);
  const c = taskCounts(job), rows = list.data?.tasks || [];
  const columns = [
    { key: "task", title: "Task", cell: (task) => html`<${Link} to=${`/jobs/${job.id}/tasks/${task.task}`} class="mono blue">${task.task}<//>` },
    { key: "state", title: "State", cell: (task) => html`<${State} of=${task.state} />` },
    { key: "attempt", title: "Attempt", class: "l1", cell: (task) => task.attempt || "–" },
    { key: "node", title: "Node", cell: (task) => (task.nodes.length > 1 ? plural(task.nodes.length, "node") : safe(task.nodes[0] || "")) },
    { key: "exit", title: "Exit code", class: "l1", cell: (task) => task.exit_code ?? "" },
    { key: "why", title: "Cause", class: "l2 muted", cell: (task) => safe(task.message || task.reason || task.cause) },
  ];
  return html`<${Panel} title=${`${count(job.tasks)} tasks`}><div class="counts">${Object.entries(c).filter(([, n]) => n).map(([state, n]) => html`<span key=${state}><${State} of=${state} /> ${count(n)}</span>`)}</div>
      ${grid.data ? html`<${Canvas} job=${job} ranges=${grid.data} />` : grid.error ? html`<div class="pad"><${Parts} counts=${c} total=${job.tasks} /></div>` : html`<${Loading} what="Loading the states of all tasks" />`}<//>
    <${Panel} title="Tasks" more=${html`<${Chips} label="State" of=${[["all", "All"], ["active", "Running"], ["failed", "Failed"], ["pending", "Waiting"], ["succeeded", "Succeeded"]]} at=${only} pick=${(name) => go(withQuery({ tasks: name === "all" ? "" : name }), true)} />`}>
      <${Fault} error=${list.error} /><${Table} fixed=${true} label="Tasks" columns=${columns} rows=${rows} rowKey=${(task) => task.task} to=${true} empty=${list.loading ? html`<${Loading} />` : html`<${Empty} title="No task is in that state" />`} />
      ${list.data?.cursor ? html`<p class="note">The first ${count(rows.length)} are listed: the grid above has all.</p>` : null}<//>`;
}

function Canvas({ job, ranges }) {
  const canvas = useRef(null), held = useRef({}), [tip, setTip] = useState(null);
  useEffect(() => {
    const el = canvas.current, draw = () => {
      if (!el?.parentElement) return;
      const width = el.parentElement.clientWidth - 32, total = job.tasks, style = getComputedStyle(document.documentElement);
      if (width < 40) return;
      const { states, of } = expand(ranges, total);
      let size = 18, per = 1;
      while (size > 3 && Math.floor(width / size) * Math.floor(HEIGHT / size) < total) size -= 1;
      const columns = Math.floor(width / size), most = columns * Math.floor(HEIGHT / size);
      per = Math.max(1, Math.ceil(total / most));
      const cells = Math.ceil(total / per), rows = Math.ceil(cells / columns), scale = window.devicePixelRatio || 1;
      el.width = width * scale; el.height = rows * size * scale; el.style.height = `${rows * size}px`; el.style.width = `${width}px`;
      const context = el.getContext("2d");
      context.setTransform(scale, 0, 0, scale, 0, 0);
      const kinds = states.map(kindOf), rank = kinds.map((kind) => WORST.indexOf(kind)), colour = kinds.map((kind) => style.getPropertyValue(COLOURS[kind] || "--line-strong").trim());
      for (let cell = 0; cell < cells; cell += 1) {
        // A cell of several tasks shows the one that matters most.
        let worst = of[cell * per];
        for (let n = cell * per + 1; n < Math.min(total, (cell + 1) * per); n += 1) if (rank[of[n]] < rank[worst]) worst = of[n];
        context.fillStyle = colour[worst];
        context.fillRect((cell % columns) * size, Math.floor(cell / columns) * size, size > 4 ? size - 1 : size, size > 4 ? size - 1 : size);
      }
      held.current = { size, columns, per, cells, states, of };
    };
    draw();
    if (!el) return undefined;
    const sized = new ResizeObserver(draw), themed = new MutationObserver(draw);
    sized.observe(el.parentElement);
    themed.observe(document.documentElement, { attributes: true, attributeFilter: ["data-theme"] });
    return () => { sized.disconnect(); themed.disconnect(); };
  }, [ranges, job.tasks]);
  const at = (event) => {
    const { size, columns, per, cells } = held.current, rect = canvas.current.getBoundingClientRect();
    const column = Math.floor((event.clientX - rect.left) / size), cell = Math.floor((event.clientY - rect.top) / size) * columns + column;
    return column >= 0 && column < columns && cell >= 0 && cell < cells ? cell * per : -1;
  };
  const move = (event) => {
    const task = at(event), { per, states, of } = held.current;
    setTip(task < 0 ? null : { x: event.nativeEvent?.offsetX ?? event.offsetX, y: event.offsetY, text: per > 1 ? `tasks ${count(task)}–${count(Math.min(job.tasks, task + per) - 1)}` : `task ${count(task)}: ${states[of[task]]}` });
  };
  return html`<div class="grid-of-tasks"><canvas ref=${canvas} role="img" aria-label=${`Grid of ${job.tasks} tasks by state; the table below lists them`} onMouseMove=${move} onMouseLeave=${() => setTip(null)} onClick=${(event) => { const task = at(event); if (task >= 0) go(`/jobs/${job.id}/tasks/${task}`); }}></canvas>
    ${tip ? html`<div class="tip" style=${{ left: `${Math.max(0, tip.x - 90)}px`, top: `${tip.y + 34}px` }}>${tip.text}</div>` : null}
    <div class="legend" style=${{ paddingLeft: 0 }}>${held.current.per > 1 ? html`<span>a cell is ${count(held.current.per)} tasks, and shows the one that matters most</span>` : null}</div></div>`;
}
