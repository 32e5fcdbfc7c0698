// Columns over time, each of parts by key: the largest keys have a colour of their own, the rest is one part.
import { html, useEffect, useMemo, useRef, useState } from "../h.js";
import { safe } from "../format.js";

const COLOURS = 6, HEIGHT = 190, FOOT = 20, LEFT = 52;

const day = new Intl.DateTimeFormat(undefined, { day: "numeric", month: "short" }), hour = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", hourCycle: "h23" });

// A round number at or above the largest.
function ceiling(value) {
  if (!(value > 0)) return 1;
  const unit = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 2.5, 5, 10].find((by) => by * unit >= value) * unit;
}

export function Columns({ rows, edges, measure, period, shown, label }) {
  const box = useRef(null), [width, setWidth] = useState(720), [at, setAt] = useState(-1);
  useEffect(() => {
    const sized = new ResizeObserver(([entry]) => setWidth(Math.max(220, entry.contentRect.width)));
    sized.observe(box.current);
    return () => sized.disconnect();
  }, []);
  const { keys, stacks } = useMemo(() => {
    const sums = new Map();
    for (const row of rows) sums.set(row.key, (sums.get(row.key) || 0) + (row[measure] || 0));
    const order = [...sums].filter(([, sum]) => sum > 0).sort((a, b) => b[1] - a[1]).map(([key]) => key), own = order.slice(0, order.length > COLOURS + 1 ? COLOURS : COLOURS + 1);
    const rank = new Map(own.map((key, n) => [key, n])), all = edges.map(() => new Float64Array(own.length + 1));
    for (const row of rows) {
      let n = edges.length - 1;
      while (n > 0 && edges[n] > row.since_ms) n -= 1;
      if (n >= 0) all[n][rank.get(row.key) ?? own.length] += row[measure] || 0;
    }
    return { keys: order.length > own.length ? [...own, null] : own, stacks: all };
  }, [rows, edges, measure]);
  const totals = stacks.map((one) => one.reduce((sum, value) => sum + value, 0)), top = ceiling(Math.max(...totals, 0));
  const inner = width - LEFT, step = inner / Math.max(1, edges.length), wide = Math.max(2, Math.min(46, step * 0.72)), tall = HEIGHT - FOOT, every = Math.ceil(58 / step);
  const name = (edge) => (period === "hour" ? hour.format(edge) : day.format(edge));
  const title = (n) => `${name(edges[n])}: ${shown(totals[n])}`;
  return html`<div class="columns" ref=${box}><svg role="img" aria-label=${`${label}: ${edges.map((_, n) => (totals[n] ? title(n) : "")).filter(Boolean).join(", ") || "nothing"}`} width=${width} height=${HEIGHT} viewBox=${`0 0 ${width} ${HEIGHT}`} onMouseLeave=${() => setAt(-1)}>
      ${[0, 0.5, 1].map((share) => html`<g key=${share}><line class="tick" x1=${LEFT} x2=${width} y1=${4 + (tall - 4) * (1 - share)} y2=${4 + (tall - 4) * (1 - share)} /><text x=${LEFT - 8} y=${8 + (tall - 4) * (1 - share)} text-anchor="end">${share ? shown(top * share) : "0"}</text></g>`)}
      ${edges.map((edge, n) => {
        let y = tall;
        return html`<g key=${edge} onMouseEnter=${() => setAt(n)}><rect class=${`hit ${n === at ? "on" : ""}`} x=${LEFT + n * step} y="0" width=${step} height=${tall} />
          ${[...stacks[n]].map((value, k) => { const h = (value / top) * (tall - 4); y -= h; return value > 0 ? html`<rect key=${k} class=${keys[k] == null ? "cat-rest" : `cat-${k}`} x=${LEFT + n * step + (step - wide) / 2} y=${y} width=${wide} height=${Math.max(0.75, h - (h > 3 ? 1 : 0))} />` : null; })}
          ${n % every === 0 ? html`<text x=${LEFT + (n + 0.5) * step} y=${HEIGHT - 5} text-anchor="middle">${name(edge)}</text>` : null}</g>`;
      })}</svg>
    <div class="legend">${keys.map((key, k) => html`<span key=${k}><i class=${key == null ? "cat-rest" : `cat-${k}`}></i>${key == null ? "others" : safe(key) || "none"}${at >= 0 && stacks[at]?.[k] ? html` <strong>${shown(stacks[at][k])}</strong>` : null}</span>`)}${at >= 0 ? html`<span class="muted">${title(at)}</span>` : null}</div></div>`;
}
