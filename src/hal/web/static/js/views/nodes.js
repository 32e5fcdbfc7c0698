// All nodes: the map, and a table of what each offers and holds.
import { html, useRef, useState } from "../h.js";
import { right } from "../api.js";
import { live, useLive } from "../live.js";
import { Link, go, usePlace, withQuery } from "../router.js";
import { NodeActions } from "../actions.js";
import { useCursor } from "../keys.js";
import { count, plural, safe } from "../format.js";
import { Icon } from "../icons.js";
import { State } from "../states.js";
import { Table, sorted } from "../table.js";
import { Bar, Chips, Empty, Head, Loading, Panel } from "../ui.js";
import { useMeasured } from "../measured.js";
import { MapChips, MapLegend, NodeMap, mapOf } from "../nodemap.js";

const KINDS = { up: ["up"], closed: ["cordoned", "draining"], away: ["down", "unreachable", "stopped"] };

const use = (value) => (value < 0 ? html`<span class="muted">–</span>` : html`<span class="share"><${Bar} used=${value} of=${100} label=${`${value} percent`} /><span>${value}%</span></span>`);

export function Nodes() {
  useLive("nodes");
  const { query } = usePlace(), nodes = live.nodes;
  const state = query.get("state") || "all", text = query.get("q") || "", [metric, used] = mapOf(query);
  const sort = query.get("sort") ? { key: query.get("sort").replace(/^-/, ""), down: query.get("sort").startsWith("-") } : { key: "name", down: false };
  const [selected, setSelected] = useState(new Set()), last = useRef(null);
  const now = useMeasured(used), of = (letter, at) => (used ? (now[letter] ? now[letter][at] : -1) : nodes[letter][at]);
  const rows = nodes ? nodes.names.map((name, at) => ({ name, at, state: nodes.states[nodes.s[at]], domain: nodes.d[at] >= 0 ? nodes.domains[nodes.d[at]] : "", c: of("c", at), m: of("m", at), g: of("g", at), running: nodes.r[at], reason: nodes.reasons[name] || "" })) : [];
  const low = text.toLowerCase();
  const fits = rows.filter((row) => (state === "all" || (KINDS[state] || []).includes(row.state)) && (!low || row.name.toLowerCase().includes(low) || row.domain.toLowerCase().includes(low) || row.reason.toLowerCase().includes(low)));
  const columns = [
    { key: "state", title: "State", cell: (row) => html`<${State} of=${row.state} title=${safe(row.reason)} />`, sort: (row) => row.state },
    { key: "name", title: "Node", class: "name", cell: (row) => html`<${Link} to=${`/nodes/${encodeURIComponent(row.name)}`}>${safe(row.name)}<//>`, sort: (row) => row.name },
    { key: "domain", title: "Where", class: "l1 muted", cell: (row) => safe(row.domain), sort: (row) => row.domain },
    { key: "c", title: used ? "CPU used" : "CPU", class: "wide", cell: (row) => use(row.c), sort: (row) => row.c, down: true },
    { key: "m", title: used ? "Memory used" : "Memory", class: "wide l1", cell: (row) => use(row.m), sort: (row) => row.m, down: true },
    { key: "g", title: used ? "GPU used" : "GPU", class: "wide l1", cell: (row) => use(row.g), sort: (row) => row.g, down: true },
    { key: "running", title: "Steps", class: "right", cell: (row) => count(row.running), sort: (row) => row.running, down: true },
    { key: "reason", title: "Reason", class: "l2 muted", cell: (row) => html`<span title=${safe(row.reason)}>${safe(row.reason)}</span>`, sort: (row) => row.reason },
  ];
  const shown = sorted(fits, columns, sort);
  const pick = (name, range) => setSelected((before) => {
    const after = new Set(before), from = shown.findIndex((row) => row.name === last.current), to = shown.findIndex((row) => row.name === name);
    if (range && from >= 0) shown.slice(Math.min(from, to), Math.max(from, to) + 1).forEach((row) => after.add(row.name));
    else if (!after.delete(name)) after.add(name);
    last.current = name;
    return after;
  });
  const [cursor] = useCursor(shown, { open: (row) => go(`/nodes/${encodeURIComponent(row.name)}`), pick: (row) => pick(row.name) });
  if (!nodes) return html`<${Head} title="Nodes" /><${Loading} what="Loading the nodes" />`;
  const able = right("POST /v1/nodes/cordon") !== "none", chosen = rows.filter((row) => selected.has(row.name));
  const many = (kind) => rows.filter((row) => KINDS[kind].includes(row.state)).length;
  return html`<${Head} title="Nodes" sub=${html`<span>${plural(rows.length, "node")}, ${count(many("up"))} up</span>`} />
    <${Panel} title="Map" more=${html`<${MapChips} metric=${metric} used=${used} />`}><${NodeMap} metric=${metric} used=${used} most=${240} /><${MapLegend} metric=${metric} used=${used} /><//>
    <div class="filters"><${Chips} label="State" of=${[["all", "All", rows.length], ["up", "Up", many("up")], ["closed", "Closed", many("closed") || null], ["away", "Away", many("away") || null]]} at=${state} pick=${(name) => go(withQuery({ state: name === "all" ? "" : name }), true)} />
      <label class="search"><${Icon} name="search" /><span class="hide">Filter nodes</span><input type="search" value=${text} placeholder="Name, rack, reason" spellcheck="false" onInput=${(event) => go(withQuery({ q: event.target.value }), true)} /></label></div>
    <section class="panel" aria-label="Nodes"><${Table} label="Nodes" columns=${columns} rows=${shown} rowKey=${(row) => row.name} to=${true} sort=${sort} onSort=${({ key, down }) => go(withQuery({ sort: (down ? "-" : "") + key }), true)} selected=${selected} onSelect=${able ? pick : null} cursor=${cursor} empty=${html`<${Empty} title=${rows.length ? "No node matches" : "No nodes yet"}>${rows.length ? "Try fewer words, or another state." : html`Start one with <code>hal up</code>.`}<//>`} /></section>
    ${chosen.length ? html`<div class="selection" role="region" aria-label="Selected nodes"><strong>${count(chosen.length)} selected</strong><${NodeActions} nodes=${chosen} after=${() => setSelected(new Set())} /><button class="quiet" onClick=${() => setSelected(new Set())}>Clear</button></div>` : null}`;
}
