// Alerts: what is wrong, since when, what to do about it; of what nobody is told, and until when.
import { html, useState } from "../h.js";
import { change, collector, operates, useData } from "../api.js";
import { CHANGED, byWeight, isTold, matchersOf, titleOf, toneOf } from "../alerting.js";
import { about, clock, duration, full, plural, safe } from "../format.js";
import { confirm, toast } from "../dialogs.js";
import { Icon } from "../icons.js";
import { Ago, Empty, Head, Panel, Shown, useNow } from "../ui.js";

const SPANS = [["1h", "1 hour"], ["4h", "4 hours"], ["1d", "1 day"], ["7d", "7 days"], ["30d", "30 days"]];
const RESOLVED_SHOWN = 20;

async function silence(matchers, title, after) {
  const given = await confirm({ title: `Silence ${title}?`, text: "Nobody is told of it until then; this page goes on showing it.", verb: "Silence", tone: "primary",
    fields: [{ name: "matchers", label: "Alerts with all of these labels", value: matchers.join(", "), placeholder: "rule=NodesDown, queue=gpu*" }, { name: "duration", label: "For", options: SPANS, value: "4h" }, { name: "comment", label: "Why", placeholder: "shown to everybody" }] });
  if (given === null) return;
  try {
    await change(collector("silences"), { matchers: given.matchers.split(",").map((one) => one.trim()).filter(Boolean), duration: given.duration, comment: given.comment });
    toast("Silenced");
  } catch (error) { toast(`${error.message} ${error.hint || ""}`, "bad"); }
  after();
}

async function unsilence(one, after) {
  if ((await confirm({ title: `End silence ${one.id}?`, text: `Alerts with ${one.matchers.map(safe).join(", ")} are told again.`, verb: "End it", tone: "primary" })) === null) return;
  try { await change(`${collector("silences")}/${one.id}`, null, "DELETE"); toast(`Silence ${one.id} has ended`); } catch (error) { toast(`${error.message} ${error.hint || ""}`, "bad"); }
  after();
}

// Text in which `what stands in ticks` is something to type.
function Prose({ text }) {
  return html`${String(text).split("`").map((part, n) => (n % 2 ? html`<code key=${n}>${safe(part)}</code>` : safe(part)))}`;
}

function Alert({ one, now, silences, refresh, rule }) {
  const [open, setOpen] = useState(false);
  const quiet = silences.find((other) => other.id === one.silence), fires = rule && one.state === "pending" ? one.since_ms + rule.for_s * 1000 : null;
  return html`<li class=${`alert ${toneOf(one.severity)} ${isTold(one) ? "" : "calm"}`}><${Icon} name=${one.silence != null ? "silenced" : one.state === "resolved" ? "succeeded" : one.state === "pending" ? "pending" : "warn"} />
    <div class="what"><p class="line"><strong>${safe(one.summary)}</strong></p>
      <p class="muted line"><span class=${`sev ${toneOf(one.severity)}`}>${safe(one.severity)}</span><span>${titleOf(one.rule)}</span><span title=${full(one.since_ms)}>since ${clock(one.since_ms, now)}, ${duration((one.resolved_ms ?? now) - one.since_ms)}</span>${fires ? html`<span>${fires > now ? `fires in ${about(fires - now)} if it stays so` : "fires now"}</span>` : null}${one.resolved_ms ? html`<span>over <${Ago} at=${one.resolved_ms} now=${now} /></span>` : null}${one.muted_by ? html`<span>moot while ${titleOf(one.muted_by)} fires</span>` : null}
        ${quiet ? html`<span>silenced by ${safe(quiet.author)} until ${clock(quiet.until_ms, now)}${quiet.comment ? `: ${safe(quiet.comment)}` : ""}</span>` : null}</p>
      ${one.detail ? html`<p class="detail">${safe(one.detail)}</p>` : null}
      ${one.state !== "resolved" ? html`<p class="do"><${Prose} text=${one.description} /></p>` : null}
      ${open && rule ? html`<div class="rule"><code>${safe(rule.expr)}</code><p class="muted">for ${duration(rule.for_s * 1000)}; more in ${safe(one.runbook)}</p></div>` : null}</div>
    <div class="acts">${rule ? html`<button class="quiet small" aria-expanded=${String(open)} onClick=${() => setOpen(!open)}>Rule</button>` : null}${operates() && one.state !== "resolved" && one.silence == null ? html`<button class="quiet small" onClick=${() => silence(matchersOf(one), titleOf(one.rule).toLowerCase(), refresh)}>Silence</button>` : null}</div></li>`;
}

function Silences({ found, now, refresh }) {
  const rows = [...found].sort((a, b) => Number(b.active) - Number(a.active) || b.until_ms - a.until_ms), able = operates();
  return html`<${Panel} title="Silences" more=${able ? html`<button class="quiet small" onClick=${() => silence(["rule="], "some alerts", refresh)}>New silence</button>` : null}>${rows.length ? html`<ul class="list">${rows.slice(0, 50).map((one) => html`<li key=${one.id} class=${one.active ? "" : "over"}><div class="row"><span>${one.matchers.map((text) => html`<span class="tag" key=${text}>${safe(text)}</span>`)}</span>${one.active && able ? html`<button class="quiet small" onClick=${() => unsilence(one, refresh)}>End</button>` : null}</div>
    <p class="muted">${one.active ? html`until ${clock(one.until_ms, now)}, <${Ago} at=${one.until_ms} now=${now} />` : html`ended <${Ago} at=${one.until_ms} now=${now} />`} · ${safe(one.author)}${one.comment ? `: ${safe(one.comment)}` : ""}</p></li>`)}</ul>` : html`<${Empty} title="Nothing is silenced">${able ? "A silence keeps messages away while you work on something." : "Operators can silence an alert while they work on it."}<//>`}<//>`;
}

function Routes({ routes }) {
  if (!routes.length) return null;
  return html`<${Panel} title="Who is told"><ul class="list">${routes.map((one) => html`<li key=${one.name}><div class="row"><span><strong>${safe(one.name)}</strong> <span class="muted">${safe(one.kind)}</span></span><span class="muted nowrap">${plural(one.sent, "message")}${one.dropped ? `, ${one.dropped} dropped` : ""}</span></div>${one.last_error ? html`<p class="s-failed">${safe(one.last_error)}</p>` : null}</li>`)}</ul><//>`;
}

export function Alerts() {
  const found = useData(collector("alerts"), 5000), quiet = useData(collector("silences"), 10000), rules = useData(collector("alerts/rules"), 300000), now = useNow(1000);
  const refresh = () => { found.refresh(); quiet.refresh(); window.dispatchEvent(new Event(CHANGED)); };
  const known = new Map((rules.data?.rules || []).map((one) => [one.name, one])), silences = quiet.data?.silences || [];
  return html`<${Shown} of=${found} what="Loading the alerts">${(data) => {
    const of = (state) => byWeight(data.alerts.filter((one) => one.state === state));
    const firing = of("firing").sort((a, b) => Number(isTold(b)) - Number(isTold(a))), pending = of("pending"), resolved = of("resolved").sort((a, b) => b.resolved_ms - a.resolved_ms).slice(0, RESOLVED_SHOWN);
    const list = (rows) => html`<ul class="alerts">${rows.map((one) => html`<${Alert} key=${one.rule + JSON.stringify(one.labels)} one=${one} now=${now} silences=${silences} refresh=${refresh} rule=${known.get(one.rule)} />`)}</ul>`;
    return html`<${Head} title="Alerts" sub=${html`${firing.some(isTold) ? html`<span class="s-failed">${plural(firing.filter(isTold).length, "alert")} firing</span>` : html`<span class="well"><${Icon} name="succeeded" />Nothing fires</span>`}<span>${plural(known.size, "rule")} looked at <${Ago} at=${data.looked_ms || null} now=${now} /></span>${data.answers || !data.looked_ms ? null : html`<span class="s-failed">the controller did not answer</span>`}`} />
      <div class="cols"><div>
        <${Panel} title=${`Firing · ${firing.length}`}>${firing.length ? list(firing) : html`<${Empty} title="Nothing fires">What is wrong appears here, with what to do about it.<//>`}<//>
        ${pending.length ? html`<${Panel} title=${`Pending · ${pending.length}`} more="so, but not for long enough">${list(pending)}<//>` : null}
        ${resolved.length ? html`<${Panel} title="Over, within a day">${list(resolved)}<//>` : null}</div>
      <div><${Silences} found=${silences} now=${now} refresh=${refresh} /><${Routes} routes=${data.routes} />
        <${Panel} title="Rules" more=${plural(known.size, "rule")}><ul class="list">${[...known.values()].map((one) => html`<li key=${one.name} class="row"><span>${titleOf(one.name)}</span><span class=${`sev ${toneOf(one.severity)}`}>${safe(one.severity)}</span></li>`)}</ul><//></div></div>`;
  }}<//>`;
}
