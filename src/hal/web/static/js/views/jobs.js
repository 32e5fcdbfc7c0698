// All jobs that one may see: filter, sort, select; what waits says why.
import { html, useCallback, useEffect, useMemo, useRef, useState } from "../h.js";
import { controller, get } from "../api.js";
import { live, useLive } from "../live.js";
import { Link, go, usePlace, withQuery } from "../router.js";
import { JobActions, mayChange } from "../actions.js";
import { useCursor } from "../keys.js";
import { count, duration, plural, request, safe } from "../format.js";
import { Icon } from "../icons.js";
import { Parts, State, jobState, taskCounts } from "../states.js";
import { Table, sorted } from "../table.js";
import { Ago, Chips, Empty, Fault, Head, Loading, useNow } from "../ui.js";

const PAGE = 200, EVERY_MS = 3000, MOST = 20000;
const STATES = [["live", "Live"], ["running", "Running"], ["pending", "Waiting"], ["held", "Held"], ["failed", "Failed"], ["ended", "Ended"], ["all", "All"]];
const ASKED = { running: "active", all: "", failed: "failed,timed-out" };

// "user:alice queue:gpu name" -> parameters of the list.
export function readFilter(text) {
  const found = {}, words = [];
  for (const word of text.split(/\s+/).filter(Boolean)) {
    const [, key, value] = /^(user|queue|account|node|label):(.+)$/.exec(word) || [];
    if (key) found[key] = value;
    else words.push(word);
  }
  if (words.length) found.name = `*${words.join(" ").replace(/^\*+|\*+$/g, "")}*`;
  return found;
}

// Rows by id, brought page by page; the pages that are seen are asked for again.
function useJobs(base) {
  const store = useRef({ base: "", rows: new Map(), cursors: [null], whole: false, busy: false });
  const [state, setState] = useState({ rows: [], loading: true, error: null, whole: false });
  const publish = useCallback((error = null) => {
    const rows = [...store.current.rows.values()].sort((a, b) => b.id - a.id);
    setState({ rows, loading: false, error, whole: store.current.whole });
  }, []);
  const bring = useCallback(async (cursor, next) => {
    const held = store.current;
    const page = await get(`${controller("jobs")}?${base}&limit=${PAGE}&reasons=1&placed=1${cursor ? `&cursor=${cursor}` : ""}`);
    if (store.current !== held) return;
    const last = page.cursor && page.jobs.length ? Number(page.jobs[page.jobs.length - 1].id) : -1, first = cursor ? Number(cursor) - 1 : Infinity;
    for (const id of held.rows.keys()) if (Number(id) >= last && Number(id) <= first) held.rows.delete(id);
    for (const job of page.jobs) held.rows.set(job.id, job);
    if (next) {
      if (page.cursor && held.rows.size < MOST) held.cursors.push(page.cursor);
      else held.whole = true;
    } else if (!page.cursor && !cursor) { held.cursors = [null]; held.whole = true; }
  }, [base]);
  useEffect(() => {
    store.current = { base, rows: new Map(), cursors: [null], whole: false, busy: true };
    setState({ rows: [], loading: true, error: null, whole: false });
    let gone = false, timer = 0;
    const look = async () => {
      const begun = Date.now();
      try {
        await bring(null, store.current.cursors.length === 1 && !store.current.whole);
        const seen = store.current.seen;
        if (seen && store.current.cursors.includes(seen)) await bring(seen, false);
        if (!gone) publish();
      } catch (error) { if (!gone) publish(error); }
      store.current.busy = false;
      // What takes long is asked for less often.
      if (!gone) timer = setTimeout(() => (document.hidden ? (timer = setTimeout(look, EVERY_MS)) : look()), Math.max(EVERY_MS, 15 * (Date.now() - begun)));
    };
    look();
    store.current.look = look;
    return () => { gone = true; clearTimeout(timer); store.current = { rows: new Map(), cursors: [null] }; };
  }, [base, bring]);
  const more = useCallback(async () => {
    const held = store.current;
    if (held.busy || held.whole || held.cursors.length < 2) return;
    held.busy = true;
    try { await bring(held.cursors[held.cursors.length - 1], true); publish(); } catch (error) { publish(error); }
    held.busy = false;
  }, [bring]);
  return { ...state, more, refresh: () => bring(null, false).then(() => publish(), () => {}) };
}

export function why(job) {
  if (job.waiting) return job.waiting.short || job.waiting.reason;
  if (job.placement) return job.placement.nodes.length > 2 || job.placement.more ? `${job.placement.nodes[0]} and ${job.placement.more ? "more" : job.placement.nodes.length - 1}` : job.placement.nodes.join(", ");
  return job.reason || (job.exit_code ? `exit code ${job.exit_code}` : "");
}

const time = (job, now) => (job.end_ms ? job.end_ms - (job.start_ms ?? job.end_ms) : job.start_ms ? now - job.start_ms : null);

export function jobColumns(now, { queue = true } = {}) {
  return [
    { key: "state", title: "State", cell: (job) => html`<${State} of=${jobState(job)} />`, sort: jobState },
    { key: "id", title: "Job", cell: (job) => html`<${Link} to=${`/jobs/${job.id}`} class="mono blue">${job.id}<//>`, sort: (job) => Number(job.id), down: true },
    { key: "name", title: "Name", class: "name", cell: (job) => html`<span title=${safe(job.name)}>${safe(job.name)}</span>`, sort: (job) => job.name },
    { key: "tasks", title: "Tasks", class: "wide l1", cell: (job) => (job.tasks > 1 ? html`<span title=${`${count(job.tasks)} tasks`}><${Parts} counts=${taskCounts(job)} total=${job.tasks} /></span>` : html`<span class="muted">${job.nodes > 1 ? plural(job.nodes, "node") : ""}</span>`), sort: (job) => job.tasks * job.nodes, down: true },
    { key: "user", title: "User", class: "l2", cell: (job) => safe(job.user), sort: (job) => job.user },
    ...(queue ? [{ key: "queue", title: "Queue", class: "l2", cell: (job) => safe(job.queue), sort: (job) => job.queue }] : []),
    { key: "account", title: "Account", class: "l3", cell: (job) => safe(job.account), sort: (job) => job.account },
    { key: "request", title: "Request", class: "l3 muted", cell: (job) => request(job.request) },
    { key: "where", title: "Where, or why not", class: "l1", cell: (job) => html`<span title=${safe(why(job))} class=${job.waiting ? "muted" : ""}>${safe(why(job))}</span>`, sort: why },
    { key: "submit", title: "Submitted", class: "l2 muted", cell: (job) => html`<${Ago} at=${job.submit_ms} now=${now} />`, sort: (job) => job.submit_ms, down: true },
    { key: "time", title: "Time", class: "right", cell: (job) => (time(job, now) == null ? html`<span class="muted" title="waits since">${duration(now - job.submit_ms)}</span>` : duration(time(job, now))), sort: (job) => time(job, now), down: true },
  ];
}

export function Jobs() {
  const { query } = usePlace(), now = useNow(1000);
  useLive();
  const state = STATES.some(([name]) => name === query.get("state")) ? query.get("state") : "live", text = query.get("q") || "";
  const base = useMemo(() => {
    const asked = new URLSearchParams(readFilter(text));
    const states = state in ASKED ? ASKED[state] : state;
    if (states) asked.set("state", states);
    return asked.toString();
  }, [state, text]);
  const { rows, loading, error, whole, more, refresh } = useJobs(base);
  const sort = query.get("sort") ? { key: query.get("sort").replace(/^-/, ""), down: query.get("sort").startsWith("-") } : { key: "id", down: true };
  const columns = jobColumns(now), shown = useMemo(() => sorted(rows, columns, sort), [rows, sort.key, sort.down]);
  const [selected, setSelected] = useState(new Set()), last = useRef(null);
  useEffect(() => setSelected(new Set()), [base]);
  const pick = (id, range) => setSelected((before) => {
    const after = new Set(before), from = shown.findIndex((job) => job.id === last.current), to = shown.findIndex((job) => job.id === id);
    if (range && from >= 0) shown.slice(Math.min(from, to), Math.max(from, to) + 1).forEach((job) => after.add(job.id));
    else if (!after.delete(id)) after.add(id);
    last.current = id;
    return after;
  });
  const [cursor] = useCursor(shown, { open: (job) => go(`/jobs/${job.id}`), pick: (job) => pick(job.id) });
  const [typed, setTyped] = useState(text);
  useEffect(() => setTyped(text), [text]);
  useEffect(() => { const timer = setTimeout(() => { if (typed !== text) go(withQuery({ q: typed.trim() }), true); }, 350); return () => clearTimeout(timer); }, [typed]);
  const counts = live.pulse?.health.jobs || {}, running = Object.entries(counts).reduce((sum, [name, n]) => (["pending", "held"].includes(name) ? sum : sum + n), 0);
  const numbers = { running, pending: counts.pending || 0, live: running + (counts.pending || 0) + (counts.held || 0), held: counts.held };
  const chosen = shown.filter((job) => selected.has(job.id)), able = ["cancel", "hold", "release", "requeue"].some(mayChange);
  const empty = loading ? html`<${Loading} what="Loading jobs" />` : html`<${Empty} title=${text ? "No job matches" : state === "live" ? "No job waits or runs" : "No such jobs"}>${text ? html`Try fewer words, or <${Link} to=${withQuery({ q: "", state: "all" })} class="blue">show all jobs<//>.` : html`Submit one with <code>hal run -- hostname</code>.`}<//>`;
  return html`<${Head} title="Jobs" sub=${html`<span>${whole ? plural(rows.length, "job") : `the newest ${count(rows.length)}${whole ? "" : ", more below"}`}</span>`} />
    <div class="filters"><${Chips} label="State" of=${STATES.map(([name, title]) => [name, title, text ? null : numbers[name] || null])} at=${state} pick=${(name) => go(withQuery({ state: name === "live" ? "" : name }))} />
      <label class="search"><${Icon} name="search" /><span class="hide">Filter jobs</span><input type="search" value=${typed} placeholder="Name, user:alice, queue:gpu, account:…, node:…" spellcheck="false" onInput=${(event) => setTyped(event.target.value)} /></label></div>
    <${Fault} error=${error} />
    <section class="panel" aria-label="Jobs"><${Table} label="Jobs" columns=${columns} rows=${shown} rowKey=${(job) => job.id} to=${true} sort=${sort} onSort=${({ key, down }) => go(withQuery({ sort: (down ? "-" : "") + key }), true)}
      selected=${selected} onSelect=${able ? pick : null} cursor=${cursor} onEnd=${more} empty=${empty} /></section>
    ${chosen.length ? html`<div class="selection" role="region" aria-label="Selected jobs"><strong>${count(chosen.length)} selected</strong><${JobActions} jobs=${chosen} after=${() => { setSelected(new Set()); refresh(); }} /><button class="quiet" onClick=${() => setSelected(new Set())}>Clear</button></div>` : null}`;
}
