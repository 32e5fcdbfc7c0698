// Bars over time: what was, what is, what is planned.
import { html, useEffect, useRef, useState } from "../h.js";
import { clock, full, safe } from "../format.js";

const ROW = 26, TOP = 22, STEPS = [1e3, 5e3, 15e3, 6e4, 3e5, 9e5, 18e5, 36e5, 72e5, 216e5, 432e5, 864e5, 6048e5];

// rows: [{name, to?, bars: [{from, to, tone, title}], end?, until?}]
export function Gantt({ rows, now, label, from, until, names = 96 }) {
  const box = useRef(null), [width, setWidth] = useState(720);
  useEffect(() => {
    const sized = new ResizeObserver(([entry]) => setWidth(Math.max(240, entry.contentRect.width)));
    sized.observe(box.current);
    return () => sized.disconnect();
  }, []);
  const all = rows.flatMap((row) => row.bars);
  const first = from ?? Math.min(...all.map((bar) => bar.from), now), last = until ?? Math.max(...all.map((bar) => bar.to), ...rows.map((row) => row.until || 0), first + 1000);
  const span = Math.max(1, last - first), left = width < 500 ? 70 : names, right = width < 500 || !rows.some((row) => row.end) ? 8 : 96, inner = Math.max(60, width - left - right);
  const x = (at) => left + ((Math.min(Math.max(at, first), last) - first) / span) * inner;
  const step = STEPS.find((one) => (span / one) * 70 < inner) || STEPS[STEPS.length - 1];
  const ticks = [];
  const zone = new Date(first).getTimezoneOffset() * 6e4;
  for (let at = Math.ceil((first - zone) / step) * step + zone; at <= last; at += step) ticks.push(at);
  const height = TOP + rows.length * ROW;
  const short = (at) => (step < 6e4 ? new Date(at).toLocaleTimeString(undefined, { hour12: false }) : step >= 864e5 ? new Date(at).toLocaleDateString(undefined, { day: "numeric", month: "short" }) : clock(at, at));
  return html`<div class="gantt" ref=${box}><svg role="img" aria-label=${label} height=${height} width=${width} viewBox=${`0 0 ${width} ${height}`}>
    ${ticks.map((at) => html`<g key=${at}><line class="tick" x1=${x(at)} x2=${x(at)} y1=${TOP - 4} y2=${height} /><text x=${x(at)} y="11" text-anchor="middle">${short(at)}</text></g>`)}
    ${rows.map((row, n) => html`<g key=${row.key ?? row.name + n}><text x="0" y=${TOP + n * ROW + 16}>${safe(row.name).slice(0, Math.floor(left / 6.4))}</text>
      ${row.bars.map((bar, i) => html`<rect key=${i} class=${`bar-${bar.tone}`} rx="3" x=${x(bar.from)} y=${TOP + n * ROW + 5} width=${Math.max(2, x(bar.to) - x(bar.from))} height=${ROW - 10}><title>${safe(bar.title)} · ${full(bar.from)}</title></rect>`)}
      ${row.until && row.until > now ? html`<rect class="bar-plan" rx="3" x=${x(now)} y=${TOP + n * ROW + 5.5} width=${Math.max(2, x(row.until) - x(now))} height=${ROW - 11} clip-path=${row.until > last ? "inset(-2px 2px -2px -2px)" : undefined}><title>may run until ${full(row.until)}</title></rect>` : null}
      ${row.end && right > 8 ? html`<text x=${width - right + 10} y=${TOP + n * ROW + 16}>${safe(row.end)}</text>` : null}</g>`)}
    ${now > first && now < last ? html`<line class="now" x1=${x(now)} x2=${x(now)} y1=${TOP - 6} y2=${height} />` : null}</svg></div>`;
}
