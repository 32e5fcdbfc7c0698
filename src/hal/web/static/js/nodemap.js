// The cluster as a map: one cell a node, grouped by topology, on a canvas. Only cells that changed are drawn again.
import { html, useEffect, useRef, useState } from "./h.js";
import { getSession } from "./api.js";
import { live, watch } from "./live.js";
import { palette, paint } from "./mapcells.js";
import { place } from "./mapplaces.js";
import { measured, watchMeasured } from "./measured.js";
import { go, withQuery } from "./router.js";
import { plural, safe } from "./format.js";
import { Bar, Chips } from "./ui.js";

const METRICS = [["c", "CPU"], ["m", "Memory"], ["g", "GPU"], ["h", "Health"]];

export function NodeMap({ metric, used = false, most = 360, chosen }) {
  const canvas = useRef(null), box = useRef(null), tip = useRef(null);
  const held = useRef({ placed: null, colours: null, at: -1 });
  const [hover, setHover] = useState(null);

  useEffect(() => {
    const state = held.current, el = canvas.current;
    const context = el.getContext("2d", { alpha: true });
    const cell = (at) => paint(context, state.colours, { x: state.placed.xs[at], y: state.placed.ys[at], size: state.placed.cell, at, metric, used });
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
    const leave = watch("nodes", changed), leaveMeasured = used || metric === "h" ? watchMeasured(() => changed(null)) : () => {};
    const sized = new ResizeObserver(() => changed(null));
    sized.observe(box.current);
    const themed = new MutationObserver(() => changed(null));
    themed.observe(document.documentElement, { attributes: true, attributeFilter: ["data-theme"] });
    const dark = matchMedia("(prefers-color-scheme: dark)"), again = () => changed(null);
    dark.addEventListener("change", again);
    return () => { leave(); leaveMeasured(); sized.disconnect(); themed.disconnect(); dark.removeEventListener("change", again); };
  }, [metric, used, most, chosen]);

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
  const rows = [["cpu", nodes.c[at], measured.c?.[at]], ["memory", nodes.m[at], measured.m?.[at]], ["gpu", nodes.g[at], measured.g?.[at]]].filter(([, held]) => held >= 0);
  return html`<strong>${safe(name)}</strong> <span class="muted">${safe(nodes.d[at] >= 0 ? nodes.domains[nodes.d[at]] : "")}</span>
    <div class="muted">${state}${nodes.reasons[name] ? `: ${safe(nodes.reasons[name])}` : ""} · ${plural(nodes.r[at], "step")}</div>
    ${rows.map(([key, held, use]) => html`<div class="use" key=${key}><span class="k">${key}</span><${Bar} used=${held} of=${100} /><span class="v">${held}%${use >= 0 ? html` <em>used ${use}%</em>` : ""}</span></div>`)}
    ${measured.idle?.[at] > 0 ? html`<div class="s-failed">${plural(measured.idle[at], "GPU")} held and idle</div>` : null}${measured.strained?.[at] ? html`<div class="s-pending">${measured.strained[at]}</div>` : null}`;
}

export function MapLegend({ metric, used = false }) {
  if (metric === "h") {
    return html`<div class="legend"><span><i class="c-ok"></i>takes work</span>${measured.strained ? html`<span><i class="c-strained"></i>strained: memory or load near its end, or not heard by the collector</span>` : null}<span><i class="c-closed"></i>closed</span><span><i class="c-away"></i>away</span></div>`;
  }
  return html`<div class="legend"><span>${used ? "unused" : "idle"}</span><span class="ramp" aria-hidden="true">${[0, 1, 2, 3, 4, 5, 6, 7].map((n) => html`<i key=${n} class=${`r${n}`}></i>`)}</span><span>${used ? "busy" : "full"}</span>
    ${metric === "g" || used ? html`<span><i class="c-none"></i>${metric === "g" ? "no GPU" : "not measured"}</span>` : null}${metric === "g" && used ? html`<span><i class="c-idle"></i>held, not used</span>` : null}<span><i class="c-closed"></i>closed</span><span><i class="c-away"></i>away</span></div>`;
}

// What the map shows: of which resource, and whether held by steps or measured as used.
export function MapChips({ metric, used, gpu = true }) {
  const kinds = METRICS.filter(([key]) => key !== "g" || gpu);
  return html`${getSession().collector && metric !== "h" ? html`<${Chips} label="Held or used" of=${[["", "Held"], ["1", "Used"]]} at=${used ? "1" : ""} pick=${(value) => go(withQuery({ use: value }), true)} />` : null}<${Chips} label="What the map shows" of=${kinds} at=${metric} pick=${(key) => go(withQuery({ map: key === "c" ? "" : key }), true)} />`;
}

// As the address says: [metric, used].
export function mapOf(query, gpu = true) {
  const metric = METRICS.some(([key]) => key === query.get("map") && (key !== "g" || gpu)) ? query.get("map") : "c";
  return [metric, metric !== "h" && query.get("use") === "1" && getSession().collector];
}
