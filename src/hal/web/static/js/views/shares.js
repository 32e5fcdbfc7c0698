// The tree of fair-share: what each account and user is meant to get, and what they have used.
import { html } from "../h.js";
import { controller, useData } from "../api.js";
import { Icon } from "../icons.js";
import { Link, go, usePlace, withQuery } from "../router.js";
import { duration, plural, safe } from "../format.js";
import { Chips, Empty, Head, Panel, Shown } from "../ui.js";

const part = (share) => `${(share * 100).toFixed(share < 0.1 ? 1 : 0)}%`;
const MOST_ROWS = 1000;

export function Shares() {
  const found = useData(controller("shares"), 15000), { query } = usePlace(), users = query.get("users") !== "0", text = (query.get("q") || "").toLowerCase();
  return html`<${Head} title="Shares" sub=${html`<span>What each account is meant to get of the cluster, and what it has used${found.data?.half_life_ms ? `; use counts half after ${duration(found.data.half_life_ms).replace(" 0h", "")}` : ""}</span>`} />
    <${Shown} of=${found} what="Loading the shares">${(data) => {
      const all = data.shares.filter((one) => one.path.length || one.user);
      if (!all.length) return html`<${Panel}><${Empty} title="No accounts yet">Accounts and their weights are in the policy: <code>hal account add</code>.<//><//>`;
      // Bars of those who share one part are comparable: the longest of them is as long as the most of any.
      const most = new Map(), parent = (one) => (one.user ? one.path : one.path.slice(0, -1)).join("/") + (one.user ? "/*" : "");
      for (const one of all) most.set(parent(one), Math.max(most.get(parent(one)) || 0.0001, one.target, one.used));
      const rows = all.filter((one) => (users || !one.user) && (!text || (one.user || "").toLowerCase().includes(text) || one.path.join("/").toLowerCase().includes(text)));
      return html`<div class="filters"><${Chips} label="Rows" of=${[["", "Accounts and users"], ["0", "Accounts"]]} at=${users ? "" : "0"} pick=${(value) => go(withQuery({ users: value }), true)} /><label class="search"><${Icon} name="search" /><span class="hide">Filter</span><input type="search" value=${query.get("q") || ""} placeholder="Account or user" spellcheck="false" onInput=${(event) => go(withQuery({ q: event.target.value }), true)} /></label></div>
        <${Panel} title="Used, of what is meant" more=${html`<span class="keyed"><i class="t-run"></i>within its share</span><span class="keyed"><i class="t-wait"></i>over it</span><span class="keyed"><b></b>meant</span>`}>${rows.length ? html`<div class="table tree"><table aria-label="Shares"><thead><tr><th scope="col">Account, user</th><th scope="col" class="l1 right">Weight</th><th scope="col"><span class="hide">Used and meant</span></th><th scope="col" class="right">Used</th><th scope="col" class="right">Meant</th><th scope="col" class="right l1" title="1: nothing used; 0.5: as much as is meant; lower: more. It is multiplied into priorities.">Factor</th></tr></thead>
        <tbody>${rows.slice(0, MOST_ROWS).map((one) => html`<${Row} key=${one.path.join("/") + (one.user ? ` ${one.user}` : "")} one=${one} most=${most.get(parent(one))} />`)}</tbody></table></div>${rows.length > MOST_ROWS ? html`<p class="note">${plural(rows.length - MOST_ROWS, "more row")}: search for a name.</p>` : null}` : html`<${Empty} title="No account or user matches" />`}<//>`;
    }}<//>`;
}

function Row({ one, most }) {
  const level = one.path.length - 1 + (one.user ? 1 : 0), over = one.used > one.target * 1.02, name = one.user || one.path[one.path.length - 1], account = one.path[one.path.length - 1];
  return html`<tr class=${one.user ? "" : "account"}><td class="name"><span style=${{ paddingLeft: `${level * 20}px` }}><${Link} to=${`/jobs?state=all&q=${encodeURIComponent(one.user ? `user:${one.user} account:${account}` : `account:${account}`)}`} class=${one.user ? "muted" : ""}>${safe(name)}<//></span></td><td class="l1 right muted">${one.weight}</td>
    <td class="lanes"><span class="lane" role="img" aria-label=${`used ${part(one.used)}, meant ${part(one.target)}`}><i class=${over ? "over" : ""} style=${{ width: `${(one.used / most) * 100}%` }}></i><b style=${{ left: `calc(${(one.target / most) * 100}% - 2px)` }}></b></span></td>
    <td class=${`right ${over ? "s-pending" : ""}`}>${part(one.used)}</td><td class="right muted">${part(one.target)}</td><td class="right l1">${one.factor ? one.factor.toFixed(2) : ""}</td></tr>`;
}
