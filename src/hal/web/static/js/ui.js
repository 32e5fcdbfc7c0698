// The parts that views share: panels, bars, notes, heads, lines over time.
import { html, useEffect, useMemo, useState } from "./h.js";
import { ago, amount, count, duration, full, percent } from "./format.js";
import { Icon } from "./icons.js";
import { Link } from "./router.js";

export function Bar({ used, of, label, tone = "" }) {
  const share = of ? Math.min(100, (used * 100) / of) : 0;
  return html`<span class=${`bar ${tone}`} role="img" aria-label=${label || `${Math.round(share)} percent`}><span style=${{ width: `${share}%` }}></span></span>`;
}

export function Ago({ at, now }) {
  return html`<time title=${full(at)}>${ago(at, now)}</time>`;
}

export function Loading({ what = "Loading" }) {
  return html`<p class="note loading" role="status"><span class="spin"></span>${what}…</p>`;
}

export function Empty({ title, children }) {
  return html`<div class="empty"><strong>${title}</strong>${children ? html`<p>${children}</p>` : null}</div>`;
}

export function Fault({ error, again }) {
  if (!error) return null;
  return html`<div class="fault" role="alert"><${Icon} name="warn" /><div><strong>${error.message}</strong>${error.hint ? html`<p>${error.hint}</p>` : null}</div>
    ${again ? html`<button class="quiet" onClick=${again}>Try again</button>` : null}</div>`;
}

// What a view shows of data that is being asked for: loading, the error, or the rest.
export function Shown({ of, children, what }) {
  if (of.data === undefined && of.error) return html`<${Fault} error=${of.error} again=${of.refresh} />`;
  if (of.data === undefined) return html`<${Loading} what=${what} />`;
  return html`${of.error ? html`<${Fault} error=${of.error} again=${of.refresh} />` : null}${children(of.data)}`;
}

export function Panel({ title, more, children, class: kind = "", id }) {
  return html`<section class=${`panel ${kind}`} aria-label=${typeof title === "string" ? title : undefined} id=${id}>
    ${title ? html`<header><h2>${title}</h2>${more ? html`<div class="more">${more}</div>` : null}</header>` : null}${children}</section>`;
}

export function Facts({ rows, wide }) {
  return html`<dl class=${`facts ${wide ? "wide" : ""}`}>${rows.filter(Boolean).map(([name, value]) => html`<div key=${name}><dt>${name}</dt><dd>${value}</dd></div>`)}</dl>`;
}

export function Head({ title, crumbs, children, sub }) {
  useEffect(() => { document.title = typeof title === "string" ? `${title} · HAL` : "HAL"; }, [title]);
  return html`<header class="head"><div class="what">${crumbs ? html`<p class="crumbs">${crumbs}</p>` : null}<h1>${title}</h1>${sub ? html`<div class="sub">${sub}</div>` : null}</div>
    <div class="acts">${children}</div></header>`;
}

export function Tabs({ of, at, to, label }) {
  return html`<nav class="tabs" aria-label=${label}>${of.map(([name, title, n]) => html`<${Link} key=${name} to=${to(name)} aria-current=${name === at ? "true" : undefined}>${title}${n != null ? html`<span class="n">${count(n)}</span>` : null}<//>`)}</nav>`;
}

export function Chips({ of, at, pick, label }) {
  return html`<div class="chips" role="group" aria-label=${label}>${of.map(([value, title, n]) => html`
    <button key=${value} type="button" aria-pressed=${String(value === at)} onClick=${() => pick(value)}>${title}${n != null ? html`<span class="n">${count(n)}</span>` : null}</button>`)}</div>`;
}

export function Use({ name, used, of }) {
  return html`<div class="use"><span class="k">${name}</span><${Bar} used=${used} of=${of} label=${`${name}: ${percent(used, of)} percent used`} /><span class="v">${amount(name, used)} <em>of ${amount(name, of)}</em></span></div>`;
}

export function Age({ from, to, now }) {
  return html`${from == null ? "–" : duration((to ?? now) - from)}`;
}

// The time of now, which moves on each second while the page is seen.
export function useNow(every = 1000) {
  const [now, set] = useState(Date.now());
  useEffect(() => {
    const timer = setInterval(() => { if (!document.hidden) set(Date.now()); }, every);
    return () => clearInterval(timer);
  }, [every]);
  return now;
}

export function Spark({ points, max, label, height = 36 }) {
  const line = useMemo(() => {
    const seen = points.filter((p) => p[1] != null && p[1] >= 0);
    if (seen.length < 2) return null;
    const first = seen[0][0], span = Math.max(1, seen[seen.length - 1][0] - first);
    const top = max || Math.max(1, ...seen.map((p) => p[1]));
    return seen.map((p) => `${(((p[0] - first) / span) * 100).toFixed(2)},${(30 - (Math.min(p[1], top) / top) * 28).toFixed(2)}`).join(" ");
  }, [points, max]);
  if (!line) return html`<div class="spark wait" style=${{ height: `${height}px` }}></div>`;
  return html`<svg class="spark" viewBox="0 0 100 31" preserveAspectRatio="none" role="img" aria-label=${label} style=${{ height: `${height}px` }}>
    <polygon points=${`0,31 ${line} 100,31`} /><polyline points=${line} /></svg>`;
}
