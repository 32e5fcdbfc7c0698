// How one cell of the map looks: by what steps hold of the node, by what was measured there, or by its health.
import { live } from "./live.js";
import { measured } from "./measured.js";

export function palette() {
  const style = getComputedStyle(document.documentElement);
  const at = (name) => style.getPropertyValue(name).trim();
  return {
    ramp: [0, 1, 2, 3, 4, 5, 6, 7].map((n) => at(`--ramp-${n}`)),
    none: at("--cell-none"), away: at("--cell-away"), awayLine: at("--cell-away-line"), closed: at("--cell-closed"), closedLine: at("--cell-closed-line"),
    ok: at("--cell-ok"), strained: at("--wait-fill"), idle: at("--bad-fill"), text: at("--muted"), focus: at("--focus"), line: at("--line"),
  };
}

function isAway(nodes, at) {
  const state = nodes.states[nodes.s[at]];
  return state === "down" || state === "unreachable" || state === "stopped";
}
function isClosed(nodes, at) {
  const state = nodes.states[nodes.s[at]];
  return state === "cordoned" || state === "draining";
}

// What its colour stands for: 0 to 100, or -1 for none.
function shareOf(metric, used, at) {
  return used ? (measured[metric] ? measured[metric][at] : -1) : live.nodes[metric][at];
}

// Paint one cell: `size` is that of a cell with its gap.
export function paint(context, colours, { x, y, size, at, metric, used }) {
  const nodes = live.nodes, w = size - (size > 6 ? 2 : 1), away = isAway(nodes, at), closed = isClosed(nodes, at), share = metric === "h" ? 0 : shareOf(metric, used, at);
  context.clearRect(x, y, size, size);
  if (away) context.fillStyle = colours.away;
  else if (metric === "h") context.fillStyle = closed ? colours.closed : measured.strained?.[at] ? colours.strained : colours.ok;
  else if (share < 0) context.fillStyle = colours.none;
  else context.fillStyle = colours.ramp[share === 0 ? 0 : Math.min(7, 1 + Math.floor(share / 14.5))];
  context.fillRect(x, y, w, w);
  if ((away || closed) && w > 3) {
    context.strokeStyle = away ? colours.awayLine : colours.closedLine;
    context.lineWidth = size > 9 ? 1.6 : 1;
    context.beginPath();
    if (away) { context.moveTo(x + 1, y + 1); context.lineTo(x + w - 1, y + w - 1); context.moveTo(x + w - 1, y + 1); context.lineTo(x + 1, y + w - 1); }
    else { context.moveTo(x + 1, y + w - 1); context.lineTo(x + w - 1, y + 1); }
    context.stroke();
  } else if (used && metric === "g" && measured.idle?.[at] > 0) {
    // GPUs that somebody holds and does not use.
    const dot = Math.max(2, Math.round(w / 2.6));
    context.fillStyle = colours.idle;
    context.fillRect(x + w - dot, y + w - dot, dot, dot);
  }
}
