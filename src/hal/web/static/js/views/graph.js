// The jobs before and after a job, layer by layer; many that are alike are one box, which opens to the list of its jobs.
import { html, useEffect, useMemo, useRef, useState } from "../h.js";
import { controller, useData } from "../api.js";
import { countsOf, layout, readGraph, search } from "../dag.js";
import { Icon } from "../icons.js";
import { Link, go, usePlace, withQuery } from "../router.js";
import { count, plural, safe } from "../format.js";
import { State, kindOf } from "../states.js";
import { Table } from "../table.js";
import { Chips, Empty, Panel, Shown } from "../ui.js";

const W = 182, H = 58, GX = 46, GY = 14, NEAR = 60, MOST_LINES = 1500, OPENS = 40, OFTEN_UP_TO = 2000;
const ORDER = ["failed", "timed-out", "running", "allocated", "held", "pending", "cancelled", "succeeded"];
const rank = (state) => { const at = ORDER.indexOf(kindOf(state)); return at < 0 ? 4 : at; };

export function Graph({ job }) {
  const [slow, setSlow] = useState(false);
  const found = useData(controller(`jobs/${job.id}/graph`), slow ? 60000 : 5000);
  const graph = useMemo(() => (found.data ? readGraph(found.data) : null), [found.data]);
  useEffect(() => { if (graph) setSlow(graph.n > OFTEN_UP_TO); }, [graph]);
  return html`<${Shown} of=${found} what="Loading the jobs before and after">${() => (graph.n > 1 ? html`<${Drawn} graph=${graph} />` : html`<${Panel}><${Empty} title="No job comes before or after this one" /><//>`)}<//>`;
}

function Drawn({ graph }) {
  const { query } = usePlace(), near = query.get("graph") === "near" && graph.n > NEAR, text = query.get("find") || "";
  const [opened, setOpened] = useState(new Set()), [chosen, setChosen] = useState(null), [typed, setTyped] = useState(text);
  const scroll = useRef(null);
  const members = useMemo(() => Int32Array.from({ length: near ? NEAR : graph.n }, (_, i) => i), [graph, near]);
  const drawn = useMemo(() => layout(graph, members, opened), [graph, members, opened]);
  const hits = useMemo(() => search(graph, text), [graph, text]), lit = useMemo(() => new Set(hits), [hits]);
  const states = useMemo(() => countsOf(graph, members), [graph, members]);
  const box = drawn.boxes.find((one) => one.key === chosen && !one.single) || null;
  useEffect(() => { const timer = setTimeout(() => { if (typed !== text) go(withQuery({ find: typed.trim() }), true); }, 250); return () => clearTimeout(timer); }, [typed]);
  const own = drawn.boxes.find((one) => one.members.includes(0));
  useEffect(() => {
    const el = scroll.current;
    if (el && own) { el.scrollLeft = own.column * (W + GX) - (el.clientWidth - W) / 2; el.scrollTop = own.row * (H + GY) - (el.clientHeight - H) / 2; }
  }, [graph.job, near]);
  const open = (one) => setOpened((old) => new Set(old).add(one.key));
  return html`<${Panel} title=${`Graph · ${plural(graph.n, "job")}`} more=${html`${graph.truncated ? html`<span>the nearest of more</span>` : null}${graph.n > NEAR ? html`<${Chips} label="What is drawn" of=${[["", "All"], ["near", "Nearest"]]} at=${near ? "near" : ""} pick=${(name) => go(withQuery({ graph: name }), true)} />` : null}${opened.size ? html`<button class="quiet small" onClick=${() => setOpened(new Set())}>Close boxes</button>` : null}`}>
    <div class="counts">${Object.entries(states).sort((a, b) => rank(a[0]) - rank(b[0])).map(([state, n]) => html`<span key=${state}><${State} of=${state} /> ${count(n)}</span>`)}</div>
    <div class="filters pad"><label class="search"><${Icon} name="search" /><span class="hide">Find in the graph</span><input type="search" value=${typed} placeholder="Number, name or state of a job" spellcheck="false" onInput=${(event) => setTyped(event.target.value)} /></label>${text ? html`<span class="muted">${plural(hits.length, "job")} found</span>` : null}</div>
    <div class="dag" tabindex="0" ref=${scroll} role="group" aria-label="Graph of jobs"><svg width=${drawn.columns * (W + GX) - GX + 4} height=${drawn.rows * (H + GY) + 4}>
      ${drawn.lines.slice(0, MOST_LINES).map(([a, b, many]) => { const from = drawn.boxes[a], to = drawn.boxes[b]; return html`<${Line} key=${`${from.key}>${to.key}`} from=${from} to=${to} many=${many} />`; })}
      ${drawn.boxes.map((one) => html`<${Box} key=${one.key} one=${one} graph=${graph} self=${one === own} lit=${text ? one.members.filter((i) => lit.has(i)).length : 0} dim=${Boolean(text)} chosen=${one.key === chosen} choose=${() => setChosen(one.key === chosen ? null : one.key)} />`)}</svg></div>
    ${drawn.lines.length > MOST_LINES ? html`<p class="note">${count(drawn.lines.length - MOST_LINES)} lines are not drawn.</p>` : null}<//>
    ${box ? html`<${Members} title=${`${count(box.members.length)} × ${safe(box.title)}`} graph=${graph} members=${box.members} open=${box.members.length <= OPENS ? () => open(box) : null} />` : null}
    ${text && hits.length ? html`<${Members} title=${`Found: ${safe(text)}`} graph=${graph} members=${hits} />` : null}`;
}

const x = (box) => box.column * (W + GX) + 2, y = (box) => box.row * (H + GY) + 2;

function Line({ from, to, many }) {
  const a = x(from) + W, b = x(to), ay = y(from) + H / 2, by = y(to) + H / 2, bend = Math.max(24, (b - a) / 2);
  return html`<path class="edge" stroke-width=${Math.min(5, 1.2 + Math.log10(many))} d=${`M${a} ${ay} C ${a + bend} ${ay}, ${b - bend} ${by}, ${b} ${by}`}><title>${plural(many, "dependency", "dependencies")}</title></path>`;
}

function Box({ one, graph, self, lit, dim, chosen, choose }) {
  const counts = countsOf(graph, one.members), total = one.members.length, i = one.members[0], kinds = Object.entries(counts).sort((a, b) => rank(a[0]) - rank(b[0]));
  const title = one.single ? safe(one.title) : `${count(total)} × ${safe(one.title)}`, note = one.single ? `${graph.ids[i]} · ${kinds[0][0]}${graph.tasks[i] > 1 ? ` · ${count(graph.tasks[i])} tasks` : ""}` : kinds.slice(0, 2).map(([state, n]) => `${count(n)} ${state}`).join(" · ");
  let left = x(one) + 12;
  const inside = html`<rect class="face" x=${x(one)} y=${y(one)} width=${W} height=${H} rx="9" />
    <text x=${x(one) + 12} y=${y(one) + 20}>${title.length > 24 ? `${title.slice(0, 23)}…` : title}</text>
    ${kinds.map(([state, n]) => { const wide = (n / total) * (W - 24), at = left; left += wide; return html`<rect key=${state} class=${`part p-${kindOf(state)}`} x=${at} y=${y(one) + 28} width=${Math.max(1, wide - (kinds.length > 1 ? 1 : 0))} height="5" rx="2" />`; })}
    <text class="small" x=${x(one) + 12} y=${y(one) + 48}>${lit ? `${count(lit)} found` : note}</text><title>${`${title}: ${kinds.map(([state, n]) => `${count(n)} ${state}`).join(", ")}`}</title>`;
  const kind = `node ${self ? "self" : ""} ${dim && !lit ? "dim" : ""} ${chosen ? "chosen" : ""}`;
  if (one.single) return html`<${Link} to=${`/jobs/${graph.ids[i]}/graph`} class=${kind} aria-label=${`Job ${note}, ${title}`}>${inside}<//>`;
  return html`<g class=${`${kind} many`} role="button" tabindex="0" aria-expanded=${String(chosen)} aria-label=${`${title}: ${note}`} onClick=${choose} onKeyDown=${(event) => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); choose(); } }}>${inside}</g>`;
}

function Members({ title, graph, members, open }) {
  const [only, setOnly] = useState("");
  const counts = countsOf(graph, members), kinds = Object.entries(counts).sort((a, b) => rank(a[0]) - rank(b[0]));
  const rows = useMemo(() => {
    const kept = only && counts[only] ? members.filter((i) => graph.states[graph.state[i]] === only) : Array.from(members);
    const ranks = graph.states.map(rank);
    return kept.sort((a, b) => ranks[graph.state[a]] - ranks[graph.state[b]] || graph.ids[a] - graph.ids[b]);
  }, [graph, members, only]);
  const columns = [
    { key: "state", title: "State", cell: (i) => html`<${State} of=${graph.states[graph.state[i]]} />` },
    { key: "id", title: "Job", cell: (i) => html`<${Link} to=${`/jobs/${graph.ids[i]}`} class="mono blue">${graph.ids[i]}<//>` },
    { key: "name", title: "Name", class: "name", cell: (i) => safe(graph.names[graph.name[i]]) },
    { key: "tasks", title: "Tasks", class: "right l1", cell: (i) => count(graph.tasks[i]) },
    { key: "graph", title: "", class: "right l1", cell: (i) => html`<${Link} to=${`/jobs/${graph.ids[i]}/graph?graph=near`} class="blue">its graph<//>` },
  ];
  return html`<${Panel} title=${title} more=${html`${kinds.length > 1 ? html`<${Chips} label="State" of=${[["", "All"], ...kinds.map(([state, n]) => [state, state, n])]} at=${counts[only] ? only : ""} pick=${setOnly} />` : null}${open ? html`<button class="quiet small" onClick=${open}>Draw each</button>` : null}`}>
    <${Table} fixed=${true} label=${title} columns=${columns} rows=${rows} rowKey=${(i) => graph.ids[i]} to=${true} /><//>`;
}
