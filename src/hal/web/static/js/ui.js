// The parts that views share: states, bars, notes, tables of thousands of rows, dialogs.
import { html, useEffect, useLayoutEffect, useMemo, useRef, useState } from "./h.js";
import { ago, amount, count, duration, full, percent } from "./format.js";
import { Link } from "./router.js";

// ── icons: each state has a shape, not a colour alone ──────────────────────────────────────────────────────────

const PATHS = {
  pending: ["M8 2.5a5.5 5.5 0 1 0 0 11 5.5 5.5 0 0 0 0-11Z", "line dash"],
  allocated: ["M8 2.5a5.5 5.5 0 1 0 0 11 5.5 5.5 0 0 0 0-11Z M8 5v3l2 1.5", "line"],
  running: ["M8 2a6 6 0 1 0 0 12A6 6 0 0 0 8 2Zm-1.5 3.4 4.2 2.6-4.2 2.6Z", "solid"],
  succeeded: ["M3.2 8.4 6.5 11.6 12.8 4.8", "line"],
  failed: ["M4 4l8 8M12 4l-8 8", "line"],
  cancelled: ["M8 2.5a5.5 5.5 0 1 0 0 11 5.5 5.5 0 0 0 0-11Z M4.2 4.2l7.6 7.6", "line"],
  held: ["M5.5 3.5v9M10.5 3.5v9", "line"],
  "timed-out": ["M8 2.5a5.5 5.5 0 1 0 0 11 5.5 5.5 0 0 0 0-11Z M8 4.8V8l-2.4 1.6", "line"],
  up: ["M3.2 8.4 6.5 11.6 12.8 4.8", "line"],
  down: ["M4 4l8 8M12 4l-8 8", "line"],
  warn: ["M8 2 14.5 13.5h-13Z M8 6.2v3.4M8 11.4v.3", "line"],
  overview: ["M2.5 2.5h4.5v6H2.5zM9 2.5h4.5v3.5H9zM9 8h4.5v5.5H9zM2.5 10.5h4.5v3H2.5z", "line"],
  jobs: ["M3 4h10M3 8h10M3 12h6", "line"],
  queues: ["M2.5 4.5h11M4.5 8h7M6.5 11.5h3", "line"],
  nodes: ["M2.5 3h11v4h-11zM2.5 9h11v4h-11zM5 5h.2M5 11h.2", "line"],
  shares: ["M8 2.5v5.5l4.5 3M8 2.5a5.5 5.5 0 1 0 0 11 5.5 5.5 0 0 0 0-11Z", "line"],
  bookings: ["M2.5 4h11v9.5h-11zM2.5 7h11M5.5 2.5v3M10.5 2.5v3", "line"],
  sessions: ["M2.5 3h11v8h-11zM6 13.5h4M5 6l1.5 1.5L5 9", "line"],
  alerts: ["M8 2.5a4 4 0 0 0-4 4v3l-1.2 2h10.4L12 9.5v-3a4 4 0 0 0-4-4ZM6.8 13.5h2.4", "line"],
  usage: ["M2.5 13.5h11M4.5 11V7M8 11V3M11.5 11V5.5", "line"],
  timeline: ["M2.5 4h5M5 8h6M8 12h5.5", "line"],
  search: ["M7 2.5a4.5 4.5 0 1 0 0 9 4.5 4.5 0 0 0 0-9ZM10.5 10.5 13.5 13.5", "line"],
  theme: ["M8 2.5v11a5.5 5.5 0 0 0 0-11Z M8 2.5a5.5 5.5 0 1 0 0 11", "line"],
  out: ["M6.5 3h-3v10h3M7 8h6.5M11 5.5 13.5 8 11 10.5", "line"],
  menu: ["M2.5 4.5h11M2.5 8h11M2.5 11.5h11", "line"],
  copy: ["M5.5 5.5h8v8h-8zM3 10.5h-.5v-8h8V3", "line"],
  more: ["M3.5 8h.2M8 8h.2M12.3 8h.2", "line"],
  close: ["M4 4l8 8M12 4l-8 8", "line"],
  down2: ["M4 6.5 8 10.5 12 6.5", "line"],
  keys: ["M2 4.5h12v7H2zM4.5 7h.2M7 7h.2M9.5 7h.2M5.5 9.3h5", "line"],
};

export function Icon({ name, label }) {
  const [path, kind] = PATHS[name] || PATHS.more;
  return html`<svg class=${`icon ${kind}`} viewBox="0 0 16 16" role=${label ? "img" : undefined} aria-label=${label} aria-hidden=${label ? undefined : "true"}><path d=${path} /></svg>`;
}

// ── states ─────────────────────────────────────────────────────────────────────────────────────────────────────

const ALIKE = {
  allocated: "allocated", starting: "allocated", staging: "allocated", preparing: "allocated", finalising: "running", suspended: "held",
  checkpointing: "running", stopping: "running", lost: "failed", preempted: "pending", "node-lost": "failed", unreachable: "down",
  stopped: "down", cordoned: "held", draining: "held", removed: "cancelled", firing: "failed", resolved: "succeeded",
};

export function kindOf(state) {
  return PATHS[state] && !ALIKE[state] ? state : ALIKE[state] || state;
}

export function State({ of, title }) {
  const kind = kindOf(of);
  return html`<span class=${`state s-${kind}`} title=${title}><${Icon} name=${kind} />${of}</span>`;
}

// The state of a job for people: one that is held says so.
export function jobState(job) {
  if (job.held && job.state === "pending") return "held";
  return job.state;
}

// ── small things ───────────────────────────────────────────────────────────────────────────────────────────────

export function Bar({ used, of, label, tone = "" }) {
  const share = of ? Math.min(100, (used * 100) / of) : 0;
  return html`<span class=${`bar ${tone}`} role="img" aria-label=${label || `${Math.round(share)} percent`}><span style=${{ width: `${share}%` }}></span></span>`;
}

const ORDER = ["succeeded", "failed", "timed-out", "cancelled", "running", "allocated", "held", "pending"];

// Tasks by state, as one bar of parts.
export function Parts({ counts, total }) {
  const parts = ORDER.filter((state) => counts[state] > 0);
  const title = parts.map((state) => `${count(counts[state])} ${state}`).join(", ");
  return html`<span class="parts" role="img" aria-label=${title} title=${title}>
    ${parts.map((state) => html`<span key=${state} class=${`p-${kindOf(state)}`} style=${{ flexGrow: Math.max(counts[state], total / 60) }}></span>`)}
  </span>`;
}

export function taskCounts(job) {
  const c = { ...job.counts };
  c.allocated = Math.max(0, (c.active || 0) - (c.running || 0));
  delete c.active;
  return c;
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

export function Facts({ rows }) {
  return html`<dl class="facts">${rows.filter(Boolean).map(([name, value]) => html`<div key=${name}><dt>${name}</dt><dd>${value}</dd></div>`)}</dl>`;
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

// ── tables of any length: only the rows that are seen are in the page ──────────────────────────────────────────

const SPARE = 8;

// columns: [{key, title, cell(row), sort?(row), class?}]
export function Table({ columns, rows, rowKey, to, label, height = 36, selected, onSelect, sort, onSort, empty, onEnd, cursor, fixed = false }) {
  const box = useRef(null);
  const [view, setView] = useState({ from: 0, to: 60 });
  const measure = () => {
    const el = box.current;
    if (!el) return;
    const own = fixed;
    const top = own ? el.scrollTop : Math.max(0, -el.getBoundingClientRect().top);
    const seen = own ? el.clientHeight : window.innerHeight;
    const from = Math.max(0, Math.floor(top / height) - SPARE);
    const until = Math.ceil((top + seen) / height) + SPARE;
    setView((before) => (before.from === from && before.to === until ? before : { from, to: until }));
    if (onEnd && until >= rows.length) onEnd();
  };
  useLayoutEffect(measure, [rows.length, height]);
  useEffect(() => {
    const on = fixed ? box.current : window;
    if (!on) return undefined;
    on.addEventListener("scroll", measure, { passive: true });
    window.addEventListener("resize", measure);
    return () => { on.removeEventListener("scroll", measure); window.removeEventListener("resize", measure); };
  });
  useEffect(() => {
    if (cursor == null || cursor < 0 || !box.current) return;
    const el = box.current.querySelector(`[data-at="${cursor}"]`);
    if (el) el.scrollIntoView({ block: "nearest" });
  }, [cursor]);
  const from = Math.min(view.from, Math.max(0, rows.length - 1)), until = Math.min(view.to, rows.length);
  const head = (column) => {
    const by = sort && sort.key === column.key;
    return html`<th key=${column.key} scope="col" class=${column.class} aria-sort=${by ? (sort.down ? "descending" : "ascending") : undefined}>
      ${column.sort && onSort ? html`<button class="sort" onClick=${() => onSort({ key: column.key, down: by ? !sort.down : Boolean(column.down) })}>${column.title}<span aria-hidden="true">${by ? (sort.down ? " ↓" : " ↑") : ""}</span></button>` : column.title}</th>`;
  };
  if (!rows.length && empty) return empty;
  return html`<div class=${`table ${fixed ? "fixed" : ""}`} ref=${box} tabindex=${fixed ? 0 : undefined}>
    <table aria-label=${label} aria-rowcount=${rows.length + 1}>
      <thead><tr>${onSelect ? html`<th class="pick"><span class="hide">Select</span></th>` : null}${columns.map(head)}</tr></thead>
      <tbody>
        ${from > 0 ? html`<tr class="space" aria-hidden="true" style=${{ height: `${from * height}px` }}><td></td></tr>` : null}
        ${rows.slice(from, until).map((row, n) => {
          const key = rowKey(row), at = from + n;
          return html`<tr key=${key} data-at=${at} aria-rowindex=${at + 2} class=${`${to ? "link" : ""} ${at === cursor ? "cursor" : ""}`} onClick=${to ? (event) => { if (!event.target.closest("a,button,input,label")) event.currentTarget.querySelector("a")?.click(); } : undefined}>
            ${onSelect ? html`<td class="pick"><label><span class="hide">Select ${key}</span><input type="checkbox" checked=${selected.has(key)} onClick=${(event) => onSelect(key, event.shiftKey)} /></label></td>` : null}
            ${columns.map((column) => html`<td key=${column.key} class=${column.class}>${column.cell(row)}</td>`)}</tr>`;
        })}
        ${until < rows.length ? html`<tr class="space" aria-hidden="true" style=${{ height: `${(rows.length - until) * height}px` }}><td></td></tr>` : null}
      </tbody>
    </table></div>`;
}

export function sorted(rows, columns, sort) {
  const column = sort && columns.find((one) => one.key === sort.key);
  if (!column || !column.sort) return rows;
  const by = sort.down ? -1 : 1;
  return [...rows].sort((a, b) => {
    const x = column.sort(a), y = column.sort(b);
    if (x == null || y == null) return x == null && y == null ? 0 : x == null ? 1 : -1;
    return by * (typeof x === "string" ? x.localeCompare(y, undefined, { numeric: true }) : x - y);
  });
}

// ── dialogs and messages ───────────────────────────────────────────────────────────────────────────────────────

let showDialog = () => {};
let showToast = () => {};

// Ask before something is changed; answers the reason (text) or true, or null for no.
export function confirm({ title, text, verb, tone = "danger", reason = false }) {
  return new Promise((resolve) => showDialog({ title, text, verb, tone, reason, resolve }));
}

export function toast(text, tone = "") {
  showToast({ text, tone, id: Date.now() + Math.random() });
}

export function Overlays() {
  const [dialog, setDialog] = useState(null);
  const [toasts, setToasts] = useState([]);
  const el = useRef(null), text = useRef(null);
  showDialog = setDialog;
  showToast = (one) => {
    setToasts((all) => [...all.slice(-3), one]);
    setTimeout(() => setToasts((all) => all.filter((other) => other.id !== one.id)), 6000);
  };
  useEffect(() => { if (dialog && el.current && !el.current.open) el.current.showModal(); }, [dialog]);
  const done = (value) => {
    if (el.current?.open) el.current.close();
    dialog?.resolve(value);
    setDialog(null);
  };
  return html`
    ${dialog ? html`<dialog ref=${el} class="ask" aria-labelledby="ask-title" onCancel=${() => done(null)}>
      <h2 id="ask-title">${dialog.title}</h2><p>${dialog.text}</p>
      ${dialog.reason ? html`<label class="field">Reason<input ref=${text} type="text" maxlength="200" placeholder="shown to everybody" /></label>` : null}
      <div class="acts"><button class="quiet" onClick=${() => done(null)}>Back</button><button class=${dialog.tone} autofocus onClick=${() => done(dialog.reason ? text.current.value || "" : true)}>${dialog.verb}</button></div>
    </dialog>` : null}
    <div class="toasts" role="status" aria-live="polite">${toasts.map((one) => html`<div key=${one.id} class=${`toast ${one.tone}`}>${one.text}</div>`)}</div>`;
}

// ── a line of the last half hour ───────────────────────────────────────────────────────────────────────────────

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

export function Copy({ text, label = "Copy" }) {
  const [done, set] = useState(false);
  const click = async () => {
    try { await navigator.clipboard.writeText(text); set(true); setTimeout(() => set(false), 1500); } catch { toast("The browser does not let this page copy."); }
  };
  return html`<button class="quiet small" onClick=${click}><${Icon} name="copy" />${done ? "Copied" : label}</button>`;
}
