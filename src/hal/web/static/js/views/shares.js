// The tree of fair-share: what each account and user is meant to get, and what they have used.
import { html } from "../h.js";
import { controller, useData } from "../api.js";
import { duration, safe } from "../format.js";
import { Empty, Head, Panel, Shown } from "../ui.js";

const part = (share) => `${(share * 100).toFixed(share < 0.1 ? 1 : 0)}%`;

export function Shares() {
  const found = useData(controller("shares"), 15000);
  return html`<${Head} title="Shares" sub=${html`<span>What each account is meant to get of the cluster, and what it has used${found.data?.half_life_ms ? `; use counts half after ${duration(found.data.half_life_ms)}` : ""}</span>`} />
    <${Panel}><${Shown} of=${found} what="Loading the shares">${(data) => {
      const rows = data.shares.filter((one) => one.path.length || one.user);
      return rows.length ? html`<div class="table tree"><table aria-label="Shares"><thead><tr><th scope="col">Account, user</th><th scope="col" class="l1 right">Weight</th><th scope="col">Used, of its target (the mark)</th><th scope="col" class="right">Factor</th></tr></thead>
        <tbody>${rows.map((one) => {
          const most = Math.max(one.target, one.used, 0.0001), level = one.path.length - 1 + (one.user ? 1 : 0);
          return html`<tr key=${one.path.join("/") + (one.user || "")}><td class="name"><span style=${{ paddingLeft: `${level * 22}px` }}>${one.user ? html`<span class="muted">${safe(one.user)}</span>` : safe(one.path[one.path.length - 1])}</span></td><td class="l1 right">${one.weight}</td>
            <td><span class="share" role="img" aria-label=${`used ${part(one.used)}, target ${part(one.target)}`}><span class="lane"><i class=${one.used > one.target * 1.02 ? "over" : ""} style=${{ width: `${(one.used / most) * 100}%` }}></i><b style=${{ left: `calc(${(one.target / most) * 100}% - 2px)` }}></b></span><span class="muted">${part(one.used)} of ${part(one.target)}</span></span></td>
            <td class="right">${one.factor ? one.factor.toFixed(2) : html`<span class="muted">–</span>`}</td></tr>`;
        })}</tbody></table></div>` : html`<${Empty} title="No accounts yet">Accounts and their weights are in the policy: <code>hal account add</code>.<//>`;
    }}<//><//>`;
}
