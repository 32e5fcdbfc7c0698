// The states of all tasks on one canvas: a cell a task, or a cell of several where there are very many.
import { html, useEffect, useRef, useState } from "../h.js";
import { count } from "../format.js";
import { kindOf } from "../states.js";

const HEIGHT = 340, LEAST = 4, MOST = 18;
const COLOURS = { succeeded: "--ok", failed: "--bad-fill", "timed-out": "--bad-fill", cancelled: "--line-strong", running: "--run", allocated: "--ramp-3", held: "--held", pending: "--ramp-1" };
const WORST = ["failed", "timed-out", "running", "allocated", "held", "cancelled", "pending", "succeeded"];

// Runs of states -> the state of each task.
export function expand(ranges, total) {
  const of = new Uint8Array(total);
  let at = 0;
  for (const [state, length] of ranges.runs) { of.fill(state, at, at + length); at += length; }
  return { states: ranges.states, of };
}

const LEGEND = [["succeeded", "--ok"], ["running", "--run"], ["waiting", "--ramp-1"], ["failed", "--bad-fill"], ["held", "--held"], ["cancelled", "--line-strong"]];

export function TaskCanvas({ all, total, range, pick }) {
  const canvas = useRef(null), held = useRef({}), [tip, setTip] = useState(null), [per, setPer] = useState(1), [cursor, setCursor] = useState(-1);
  useEffect(() => {
    const el = canvas.current, draw = () => {
      if (!el?.parentElement) return;
      const width = el.parentElement.clientWidth - 32, style = getComputedStyle(document.documentElement);
      if (width < 40) return;
      const { states, of } = all;
      let size = MOST;
      while (size > LEAST && Math.floor(width / size) * Math.floor(HEIGHT / size) < total) size -= 1;
      const columns = Math.floor(width / size), most = columns * Math.floor(HEIGHT / size), each = roundUp(Math.max(1, Math.ceil(total / most)));
      const cells = Math.ceil(total / each), rows = Math.ceil(cells / columns), scale = window.devicePixelRatio || 1;
      el.width = width * scale; el.height = rows * size * scale; el.style.height = `${rows * size}px`; el.style.width = `${width}px`;
      const context = el.getContext("2d");
      context.setTransform(scale, 0, 0, scale, 0, 0);
      const kinds = states.map(kindOf), rank = kinds.map((kind) => WORST.indexOf(kind)), colour = kinds.map((kind) => style.getPropertyValue(COLOURS[kind] || "--line-strong").trim());
      for (let cell = 0; cell < cells; cell += 1) {
        // A cell of several tasks shows the one that matters most.
        let worst = of[cell * each];
        for (let n = cell * each + 1; n < Math.min(total, (cell + 1) * each); n += 1) if (rank[of[n]] < rank[worst]) worst = of[n];
        context.fillStyle = colour[worst];
        context.fillRect((cell % columns) * size, Math.floor(cell / columns) * size, size - 1, size - 1);
      }
      const mark = (a, b, name) => {
        context.strokeStyle = style.getPropertyValue(name).trim();
        context.lineWidth = 2;
        for (let cell = Math.floor(a / each); cell <= Math.floor(b / each) && cell < cells; cell += 1) context.strokeRect((cell % columns) * size, Math.floor(cell / columns) * size, size - 1, size - 1);
      };
      if (range && (range[1] - range[0]) / each < 400) mark(range[0], range[1], "--text");
      if (cursor >= 0) mark(cursor * each, cursor * each, "--focus");
      held.current = { size, columns, each, cells };
      setPer(each);
    };
    draw();
    const sized = new ResizeObserver(draw), themed = new MutationObserver(draw), dark = matchMedia("(prefers-color-scheme: dark)");
    sized.observe(el.parentElement);
    themed.observe(document.documentElement, { attributes: true, attributeFilter: ["data-theme"] });
    dark.addEventListener("change", draw);
    return () => { sized.disconnect(); themed.disconnect(); dark.removeEventListener("change", draw); };
  }, [all, total, range?.[0], range?.[1], cursor]);
  const cellAt = (event) => {
    const { size, columns, cells } = held.current, rect = canvas.current.getBoundingClientRect();
    const column = Math.floor((event.clientX - rect.left) / size), cell = Math.floor((event.clientY - rect.top) / size) * columns + column;
    return column >= 0 && column < columns && cell >= 0 && cell < cells ? cell : -1;
  };
  const spanOf = (cell) => [cell * held.current.each, Math.min(total, (cell + 1) * held.current.each) - 1];
  const describe = (cell) => {
    const [a, b] = spanOf(cell), counts = new Map();
    for (let n = a; n <= b; n += 1) counts.set(all.of[n], (counts.get(all.of[n]) || 0) + 1);
    if (a === b) return `task ${count(a)}: ${all.states[all.of[a]]}`;
    return `tasks ${count(a)} to ${count(b)}: ${[...counts].map(([state, n]) => `${count(n)} ${all.states[state]}`).join(", ")}`;
  };
  const point = (cell) => setTip(cell < 0 ? null : { x: (cell % held.current.columns) * held.current.size, y: Math.floor(cell / held.current.columns) * held.current.size, text: describe(cell) });
  const take = (cell) => { if (cell >= 0) pick(...spanOf(cell)); };
  const press = (event) => {
    const { columns, cells } = held.current, step = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: columns, ArrowUp: -columns }[event.key];
    if (step) { event.preventDefault(); const next = Math.max(0, Math.min(cells - 1, cursor + (cursor < 0 ? 1 : step))); setCursor(next); point(next); }
    else if (event.key === "Enter" && cursor >= 0) take(cursor);
  };
  return html`<div class="grid-of-tasks"><canvas ref=${canvas} tabindex="0" role="application" aria-label=${`Grid of ${total} tasks by state. Use the arrow keys to move, Enter to list the tasks of a cell; the table below lists them.`} onMouseMove=${(event) => point(cellAt(event))} onMouseLeave=${() => setTip(null)} onBlur=${() => { setTip(null); setCursor(-1); }} onClick=${(event) => take(cellAt(event))} onKeyDown=${press}></canvas>
    ${tip ? html`<div class="tip" role="status" style=${{ left: `${Math.max(0, Math.min(tip.x - 80, (canvas.current?.clientWidth || 0) - 230))}px`, top: `${tip.y + 34}px` }}>${tip.text}</div>` : null}
    <div class="legend">${LEGEND.map(([title, name]) => html`<span key=${title}><i style=${{ background: `var(${name})` }}></i>${title}</span>`)}${per > 1 ? html`<span>a cell is ${count(per)} tasks, and shows the one that matters most; a click lists them</span>` : null}</div></div>`;
}

// 1, 2, 5, 10, 20, …: numbers in which people count.
function roundUp(value) {
  for (let unit = 1; ; unit *= 10) for (const by of [1, 2, 5]) if (by * unit >= value) return by * unit;
}
