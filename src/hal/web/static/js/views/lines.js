// A line over time with the limit that it should stay below.
import { html, useMemo } from "../h.js";
import { clock } from "../format.js";

const H = 64;

export function Lines({ name, points, limit, shown, asked }) {
  const { line, mark, top, first, last } = useMemo(() => {
    const from = points[0][0], span = Math.max(1, points[points.length - 1][0] - from), most = Math.max(...points.map((one) => one[1])), high = Math.max(limit && most > limit / 12 ? limit : 0, most) * 1.06 || 1;
    const y = (value) => (H - 1 - (value / high) * (H - 3)).toFixed(2);
    return { line: points.map(([at, value]) => `${(((at - from) / span) * 300).toFixed(2)},${y(value)}`).join(" "), mark: limit && limit <= high ? y(limit) : null, top: most, first: from, last: points[points.length - 1] };
  }, [points, limit]);
  return html`<figure class="lines"><figcaption><span>${name}</span><span class="muted">${asked ? `${asked} · ` : ""}most ${shown(top)} · <strong>${shown(last[1])}</strong></span></figcaption>
    <svg viewBox=${`0 0 300 ${H}`} preserveAspectRatio="none" role="img" aria-label=${`${name} from ${clock(first)} to ${clock(last[0])}: most ${shown(top)}, last ${shown(last[1])}${asked ? `, ${asked}` : ""}`}><polygon points=${`0,${H} ${line} 300,${H}`} /><polyline points=${line} />${mark != null ? html`<line class="limit" x1="0" x2="300" y1=${mark} y2=${mark} />` : null}</svg>
    <div class="row muted"><span>${clock(first)}</span><span>${clock(last[0])}</span></div></figure>`;
}

const COLUMNS = 72, ROW = 9;

// A row for each of several of a kind, as colours over time: values from 0 to 1.
export function Strips({ name, rows, shown }) {
  const first = Math.min(...rows.map((row) => row.points[0][0])), last = Math.max(...rows.map((row) => row.points[row.points.length - 1][0])), step = Math.max(1, last - first) / COLUMNS;
  const mean = rows.reduce((sum, row) => sum + row.points[row.points.length - 1][1], 0) / rows.length;
  const cells = (points) => {
    const sums = new Float64Array(COLUMNS), seen = new Int32Array(COLUMNS);
    for (const [at, value] of points) { const n = Math.min(COLUMNS - 1, Math.floor((at - first) / step)); sums[n] += value; seen[n] += 1; }
    let before = -1;
    return Array.from(sums, (sum, n) => { if (seen[n]) before = sum / seen[n]; return before; });
  };
  return html`<figure class="lines strips"><figcaption><span>${name}</span><span class="muted">now <strong>${shown(mean)}</strong></span></figcaption>
    <svg viewBox=${`0 0 ${COLUMNS} ${rows.length * ROW}`} preserveAspectRatio="none" style=${{ height: `${Math.max(64, rows.length * ROW)}px` }} role="img" aria-label=${`${name} from ${clock(first)} to ${clock(last)}; now ${rows.map((row) => `${row.name}: ${shown(row.points[row.points.length - 1][1])}`).join(", ")}`}>
      ${rows.map((row, n) => cells(row.points).map((value, k) => (value < 0 ? null : html`<rect key=${`${n} ${k}`} class=${`f${value === 0 ? 0 : Math.min(7, 1 + Math.floor(value * 7))}`} x=${k} y=${n * ROW} width="1.02" height=${ROW - 1.5} />`)))}</svg>
    <div class="row muted"><span>${clock(first)}</span><span>${clock(last)}</span></div></figure>`;
}
