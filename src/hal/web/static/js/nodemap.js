// The cluster as a map: one cell a node, grouped by topology, on a canvas. Only cells that changed are drawn again.
import { html, useEffect, useRef, useState } from "./h.js";
import { live, watch } from "./live.js";
import { go } from "./router.js";
import { safe } from "./format.js";
import { Bar } from "./ui.js";

const GAP = 6, LANE = 22, TITLE = 18, MOST_CELL = 20, LEAST_CELL = 4;
export const METRICS = [["c", "CPU"], ["m", "Memory"], ["g", "GPU"], ["h", "Health"]];

function palette() {
  const style = getComputedStyle(document.documentElement);
  const at = (name) => style.getPropertyValue(name).trim();
  return {
    ramp: [0, 1, 2, 3, 4, 5, 6, 7].map((n) => at(`--ramp-${n}`)),
    none: at("--cell-none"), away: at("--cell-away"), awayLine: at("--cell-away-line"), closed: at("--cell-closed"), closedLine: at("--cell-closed-line"),
    ok: at("--cell-ok"), text: at("--muted"), focus: at("--focus"), line: at("--line"),
  };
}

// Blocks of one domain each, under the title of what is around them.
function groups(nodes) {
  const tops = new Map();
  nodes.names.forEach((_, at) => {
    const path = nodes.d[at] >= 0 ? nodes.domains[nodes.d[at]] : "";
    const cut = path.indexOf("/");
    const top = cut < 0 ? (nodes.levels.length > 1 || !path ? path : "") : path.slice(0, cut);
    const key = cut < 0 && top === path ? "" : path;
    if (!tops.has(top)) tops.set(top, new Map());
    const blocks = tops.get(top);
    if (!blocks.has(key)) blocks.set(key, []);
    blocks.get(key).push(at);
  });
  const order = new Intl.Collator(undefined, { numeric: true }).compare;
  return [...tops].sort((a, b) => order(a[0] || "\uffff", b[0] || "\uffff")).map(([top, blocks]) => ({
    title: top || (tops.size > 1 ? "elsewhere" : ""),
    blocks: [...blocks].sort((a, b) => order(a[0], b[0])).map(([path, members]) => ({ path, members })),
  }));
}

// Place the cells; the largest size with which all fit.
function place(nodes, width, most) {
  const tops = groups(nodes), xs = new Float32Array(nodes.names.length), ys = new Float32Array(nodes.names.length);
  // Groups beside one another in so many lanes, each into the lane that is shortest.
  const lay = (cell, lanes) => {
    const wide = Math.floor((width - LANE * (lanes - 1)) / lanes), ends = new Array(lanes).fill(0), titles = [], boxes = [];
    for (const { title, blocks } of tops) {
      const lane = ends.indexOf(Math.min(...ends)), left = lane * (wide + LANE);
      let y = ends[lane], x = 0, tallest = 0;
      if (title) { titles.push([title, left, y + 12]); y += TITLE; }
      const alone = blocks.length === 1 && blocks[0].members.length > 200;
      for (const { path, members } of blocks) {
        const most = Math.max(1, Math.floor(wide / cell)), columns = alone ? most : Math.min(most, Math.max(1, Math.ceil(Math.sqrt(members.length * 1.8))));
        const w = Math.min(columns, members.length) * cell, h = Math.ceil(members.length / columns) * cell;
        if (x > 0 && x + w > wide) { x = 0; y += tallest + GAP; tallest = 0; }
        members.forEach((at, n) => { xs[at] = left + x + (n % columns) * cell; ys[at] = y + Math.floor(n / columns) * cell; });
        boxes.push({ path, members, x: left + x, y, columns, w, h });
        x += w + GAP;
        tallest = Math.max(tallest, h);
      }
      ends[lane] = y + tallest + GAP * 1.5;
    }
    return { height: Math.max(20, Math.max(...ends) - GAP * 1.5), titles, boxes, cell, lanes };
  };
  let best = null;
  for (let lanes = 1; lanes <= Math.min(6, tops.length) && width / lanes >= 150; lanes += 1) {
    let low = LEAST_CELL, high = MOST_CELL;
    while (low <= high) {
      const middle = Math.floor((low + high) / 2), tried = lay(middle, lanes);
      if (tried.height <= most) { if (!best || middle > best.cell) best = tried; low = middle + 1; } else high = middle - 1;
    }
  }
  if (!best) best = lay(LEAST_CELL, 1);
  return { ...lay(best.cell, best.lanes), xs, ys };
}

export function isAway(nodes, at) {
  const state = nodes.states[nodes.s[at]];
  return state === "down" || state === "unreachable" || state === "stopped";
}
export function isClosed(nodes, at) {
  const state = nodes.states[nodes.s[at]];
  return state === "cordoned" || state === "draining";
}

export function NodeMap({ metric, most = 360, chosen }) {
  const canvas = useRef(null), box = useRef(null), tip = useRef(null);
  const held = useRef({ placed: null, colours: null, at: -1 });
  const [hover, setHover] = useState(null);

  useEffect(() => {
    const state = held.current, el = canvas.current;
    const context = el.getContext("2d", { alpha: true });
    let drawn = metric;

    const cell = (at) => {
      const { placed, colours } = state, nodes = live.nodes, size = placed.cell, edge = size > 6 ? 2 : 1;
      const x = placed.xs[at], y = placed.ys[at], w = size - edge;
      context.clearRect(x, y, size, size);
      const away = isAway(nodes, at), closed = isClosed(nodes, at);
      const use = drawn === "h" ? 0 : nodes[drawn][at];
      if (away) context.fillStyle = colours.away;
      else if (drawn === "h") context.fillStyle = closed ? colours.closed : colours.ok;
      else if (use < 0) context.fillStyle = colours.none;
      else context.fillStyle = colours.ramp[use === 0 ? 0 : Math.min(7, 1 + Math.floor(use / 14.5))];
      context.fillRect(x, y, w, w);
      if ((away || closed) && w > 3) {
        context.strokeStyle = away ? colours.awayLine : colours.closedLine;
        context.lineWidth = size > 9 ? 1.6 : 1;
        context.beginPath();
        if (away) { context.moveTo(x + 1, y + 1); context.lineTo(x + w - 1, y + w - 1); context.moveTo(x + w - 1, y + 1); context.lineTo(x + 1, y + w - 1); }
        else { context.moveTo(x + 1, y + w - 1); context.lineTo(x + w - 1, y + 1); }
        context.stroke();
      }
    };
    const frame = (at) => {
      const { placed, colours } = state;
      context.strokeStyle = colours.focus;
      context.lineWidth = 2;
      context.strokeRect(placed.xs[at], placed.ys[at], placed.cell - 1, placed.cell - 1);
    };
    const layout = () => {
      const width = box.current?.clientWidth;
      if (!live.nodes || !width) return;
      state.placed = place(live.nodes, width, most);
      state.colours = palette();
      const scale = window.devicePixelRatio || 1;
      el.width = Math.round(width * scale);
      el.height = Math.round(state.placed.height * scale);
      el.style.width = `${width}px`;
      el.style.height = `${state.placed.height}px`;
      context.setTransform(scale, 0, 0, scale, 0, 0);
      context.font = "600 11px Inter, sans-serif";
      context.fillStyle = state.colours.text;
      for (const [title, x, y] of state.placed.titles) context.fillText(safe(title), x, y);
      for (let at = 0; at < live.nodes.names.length; at += 1) cell(at);
      if (chosen != null && live.nodes.byName.has(chosen)) frame(live.nodes.byName.get(chosen));
    };
    let waiting = false;
    const changed = (at) => {
      if (at === null || !state.placed || state.placed.xs.length !== live.nodes.names.length) {
        if (!waiting) { waiting = true; requestAnimationFrame(() => { waiting = false; layout(); }); }
      } else at.forEach(cell);
      if (state.at >= 0) setHover({ at: state.at, x: state.x, y: state.y });
    };
    layout();
    const leave = watch("nodes", changed);
    const sized = new ResizeObserver(() => changed(null));
    sized.observe(box.current);
    const themed = new MutationObserver(() => changed(null));
    themed.observe(document.documentElement, { attributes: true, attributeFilter: ["data-theme"] });
    const dark = matchMedia("(prefers-color-scheme: dark)"), again = () => changed(null);
    dark.addEventListener("change", again);
    return () => { leave(); sized.disconnect(); themed.disconnect(); dark.removeEventListener("change", again); };
  }, [metric, most, chosen]);

  const find = (event) => {
    const { placed } = held.current;
    if (!placed) return -1;
    const rect = canvas.current.getBoundingClientRect(), x = event.clientX - rect.left, y = event.clientY - rect.top;
    const inside = placed.boxes.find((one) => x >= one.x && x < one.x + one.w && y >= one.y && y < one.y + one.h);
    if (!inside) return -1;
    const n = Math.floor((y - inside.y) / placed.cell) * inside.columns + Math.floor((x - inside.x) / placed.cell);
    return n < inside.members.length ? inside.members[n] : -1;
  };
  const point = (at) => {
    const state = held.current;
    state.at = at;
    if (at < 0) return setHover(null);
    state.x = state.placed.xs[at];
    state.y = state.placed.ys[at];
    return setHover({ at, x: state.x, y: state.y });
  };
  const key = (event) => {
    const { placed, at } = held.current, nodes = live.nodes;
    if (!nodes || !placed) return;
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (step) { event.preventDefault(); point(Math.max(0, Math.min(nodes.names.length - 1, at + step))); }
    else if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      const down = event.key === "ArrowDown", from = Math.max(0, at);
      let best = -1, far = Infinity;
      for (let n = 0; n < nodes.names.length; n += 1) {
        const dy = (placed.ys[n] - placed.ys[from]) * (down ? 1 : -1);
        const away = dy > 0 ? dy * 4 + Math.abs(placed.xs[n] - placed.xs[from]) : Infinity;
        if (away < far) { far = away; best = n; }
      }
      if (best >= 0) point(best);
    } else if (event.key === "Enter" && at >= 0) go(`/nodes/${encodeURIComponent(nodes.names[at])}`);
    else if (event.key === "Escape") point(-1);
  };
  const nodes = live.nodes, width = box.current?.clientWidth || 0;
  const summary = nodes ? `Map of ${nodes.names.length} nodes. Use the arrow keys to move, Enter to open a node. The page Nodes has the same as a table.` : "Map of the nodes";
  return html`<div class="map" ref=${box}>
    <canvas ref=${canvas} tabindex="0" role="application" aria-label=${summary} onMouseMove=${(event) => { const at = find(event); if (at !== held.current.at) point(at); }}
      onMouseLeave=${() => point(-1)} onBlur=${() => point(-1)} onClick=${(event) => { const at = find(event); if (at >= 0) go(`/nodes/${encodeURIComponent(live.nodes.names[at])}`); }} onKeyDown=${key}></canvas>
    ${hover && nodes && nodes.names[hover.at] != null ? html`<div class="tip" ref=${tip} role="status" style=${{ left: `${Math.min(hover.x + 18, Math.max(0, width - 230))}px`, top: `${hover.y + held.current.placed.cell + 8}px` }}>
      <${NodeTip} at=${hover.at} /></div>` : null}
  </div>`;
}

function NodeTip({ at }) {
  const nodes = live.nodes, name = nodes.names[at], state = nodes.states[nodes.s[at]];
  const rows = [["cpu", nodes.c[at]], ["memory", nodes.m[at]], ["gpu", nodes.g[at]]].filter(([, use]) => use >= 0);
  return html`<strong>${safe(name)}</strong> <span class="muted">${safe(nodes.d[at] >= 0 ? nodes.domains[nodes.d[at]] : "")}</span>
    <div class="muted">${state}${nodes.reasons[name] ? `: ${safe(nodes.reasons[name])}` : ""} · ${nodes.r[at]} steps</div>
    ${rows.map(([key, use]) => html`<div class="use" key=${key}><span class="k">${key}</span><${Bar} used=${use} of=${100} /><span class="v">${use}%</span></div>`)}`;
}

export function MapLegend({ metric }) {
  if (metric === "h") {
    return html`<div class="legend"><span><i class="c-ok"></i>takes work</span><span><i class="c-closed"></i>closed</span><span><i class="c-away"></i>away</span></div>`;
  }
  return html`<div class="legend"><span>idle</span><span class="ramp" aria-hidden="true">${[0, 1, 2, 3, 4, 5, 6, 7].map((n) => html`<i key=${n} class=${`r${n}`}></i>`)}</span><span>full</span>
    ${metric === "g" ? html`<span><i class="c-none"></i>no GPU</span>` : null}<span><i class="c-closed"></i>closed</span><span><i class="c-away"></i>away</span></div>`;
}
