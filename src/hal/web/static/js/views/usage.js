// Usage and spend: what ended attempts had, used and cost, by account, user or queue, over a span.
import { html, useMemo } from "../h.js";
import { collector, getSession, useData } from "../api.js";
import { Link, go, usePlace, withQuery } from "../router.js";
import { count, duration, plural, safe } from "../format.js";
import { csvOf, download } from "../csv.js";
import { Chips, Empty, Head, Panel, Shown } from "../ui.js";
import { Columns } from "./columns.js";

const HOUR = 36e5, DAY = 864e5;
const SPANS = [["1d", "24 hours", "hour"], ["7d", "7 days", "day"], ["30d", "30 days", "day"]];
const BY = [["account", "Account"], ["user", "User"], ["queue", "Queue"]];
const MEASURES = [["core_hours", "Core hours"], ["gpu_hours", "GPU hours"], ["price", "Cost"], ["attempts", "Attempts"]];
const ZONE = Intl.DateTimeFormat().resolvedOptions().timeZone || "UTC";
const MOST_ROWS = 200;

const number = (value) => (value == null ? "–" : value >= 100 ? count(Math.round(value)) : value >= 1 ? value.toFixed(1) : value ? value.toFixed(value < 0.01 ? 4 : 2) : "0");
const part = (value) => (value == null ? html`<span class="muted">–</span>` : `${Math.round(value * 100)}%`);
const money = (value, currency) => (value == null ? "–" : `${value >= 1000 ? count(Math.round(value)) : value.toFixed(2)}${currency ? ` ${safe(currency)}` : ""}`);

// From the first whole hour or day of the span, by the clocks here.
function sinceOf(span) {
  const at = new Date();
  if (span === "1d") return Math.floor(Date.now() / HOUR) * HOUR - 23 * HOUR;
  at.setHours(0, 0, 0, 0);
  at.setDate(at.getDate() - (span === "7d" ? 6 : 29));
  return at.getTime();
}

const add = (rows, name) => rows.reduce((sum, row) => sum + (row[name] || 0), 0);

export function Usage() {
  const { query } = usePlace();
  const by = BY.some(([name]) => name === query.get("by")) ? query.get("by") : "account", span = SPANS.find(([name]) => name === query.get("span")) || SPANS[1];
  const since = sinceOf(span[0]), asked = new URLSearchParams({ by, since_ms: since });
  const found = useData(`${collector("usage")}?${asked}`, 30000), over = useData(`${collector("usage")}?${asked}&period=${span[2]}&zone=${encodeURIComponent(ZONE)}`, 60000);
  const data = found.data, rows = data?.rows || [];
  const measures = MEASURES.filter(([name]) => name === "core_hours" || name === "attempts" || rows.some((row) => row[name]));
  const measure = measures.find(([name]) => name === query.get("of")) || measures[0];
  const edges = useMemo(() => periods(since, span[2]), [since, span[2]]);
  const own = getSession().role === "user";
  return html`<${Head} title="Usage" sub=${html`<span>${own ? "what is yours, " : ""}of attempts that ended since ${new Date(since).toLocaleString(undefined, { weekday: "short", day: "numeric", month: "short", hour: "2-digit", minute: "2-digit", hourCycle: "h23" })}</span>`}>
      <button class="quiet" disabled=${!rows.length} onClick=${() => download(`hal-usage-${by}-${span[0]}.csv`, csvOf(rows, by, data.currency))}>CSV</button><//>
    <div class="filters"><${Chips} label="Span" of=${SPANS.map(([name, title]) => [name, title])} at=${span[0]} pick=${(name) => go(withQuery({ span: name === "7d" ? "" : name }), true)} /><${Chips} label="By" of=${BY} at=${by} pick=${(name) => go(withQuery({ by: name === "account" ? "" : name }), true)} /></div>
    <${Shown} of=${found} what="Adding it up">${() => (rows.length ? html`
      <${Totals} rows=${rows} currency=${data.currency} />
      ${data.lost.length ? html`<p class="fault" role="status">The history has a gap: ${plural(data.lost.reduce((sum, one) => sum + one.last - one.first + 1, 0), "ended attempt")} of this span could not be read and are in no sum.</p>` : null}
      <${Panel} title=${`${measure[1]} by ${span[2]}`} more=${html`<${Chips} label="What is drawn" of=${measures} at=${measure[0]} pick=${(name) => go(withQuery({ of: name === "core_hours" ? "" : name }), true)} />`}>
        <${Columns} rows=${over.data?.rows || []} edges=${edges} measure=${measure[0]} period=${span[2]} shown=${(value) => (measure[0] === "price" ? money(value, data.currency) : number(value))} label=${`${measure[1]} by ${span[2]} and ${by}`} /><//>
      <${Panel} title=${`By ${by}`} more=${data.rounded ? `rounded to whole ${data.rounded}s` : plural(rows.length, by === "queue" ? "queue" : by)}><${Rows} rows=${rows} by=${by} measure=${measure[0]} currency=${data.currency} /><//>` : html`<${Panel}><${Empty} title="Nothing has ended in this span">Attempts are counted when they end. Choose a longer span, or look at <${Link} to="/jobs" class="blue">what runs<//>.<//><//>`)}<//>`;
}

function periods(since, period) {
  const edges = [], now = Date.now(), at = new Date(since);
  while (at.getTime() <= now) {
    edges.push(at.getTime());
    if (period === "hour") at.setTime(at.getTime() + HOUR);
    else at.setDate(at.getDate() + 1);
  }
  return edges;
}

function Totals({ rows, currency }) {
  const cores = add(rows, "core_hours"), used = add(rows, "cpu_hours"), gpus = add(rows, "gpu_hours"), priced = rows.filter((row) => row.price != null), attempts = add(rows, "attempts"), good = rows.reduce((sum, row) => sum + (row.states.succeeded || 0), 0);
  const tile = (name, value, unit, sub) => html`<div class="tile plain"><span class="k">${name}</span><span class="v">${value}${unit ? html`<small>${unit}</small>` : null}</span><span class="d">${sub}</span></div>`;
  return html`<div class="tiles">
    ${tile("Core hours", number(cores), "", cores ? `${number(used)} hours of CPU time used, ${Math.round((used * 100) / cores)}%` : "")}
    ${gpus ? tile("GPU hours", number(gpus), "", gpuUse(rows)) : null}
    ${priced.length ? tile("Cost", money(add(priced, "price"), ""), currency, priced.length < rows.length ? `of ${priced.length} of ${rows.length} rows` : "by the prices of hal.toml") : null}
    ${tile("Attempts", count(attempts), "", `${attempts ? Math.round((good * 100) / attempts) : 0}% succeeded`)}
    ${tile("Energy", number(add(rows, "energy_kwh")), "kWh", "estimated where it is not measured")}</div>`;
}

function gpuUse(rows) {
  const measured = rows.filter((row) => row.gpu_efficiency != null), hours = add(measured, "gpu_hours");
  return hours ? `${Math.round((measured.reduce((sum, row) => sum + row.gpu_hours * row.gpu_efficiency, 0) * 100) / hours)}% of that used` : "use not measured";
}

function Rows({ rows, by, measure, currency }) {
  const most = Math.max(...rows.map((row) => row[measure] || 0), 1e-9), cost = rows.some((row) => row.price != null), gpu = rows.some((row) => row.gpu_hours);
  const link = (key) => (key ? html`<${Link} to=${`/jobs?state=all&q=${encodeURIComponent(`${by}:${key}`)}`}>${safe(key)}<//>` : html`<span class="muted">none</span>`);
  const shown = [...rows].sort((a, b) => (b[measure] || 0) - (a[measure] || 0)).slice(0, MOST_ROWS);
  return html`<div class="table"><table aria-label=${`Usage by ${by}`}><thead><tr><th scope="col">${by[0].toUpperCase() + by.slice(1)}</th><th scope="col" class="l1"><span class="hide">Share</span></th><th scope="col" class="right">Core hours</th><th scope="col" class="right l1" title="CPU time used, of core hours">CPU used</th><th scope="col" class="right l2" title="peak memory, of what was asked for">Memory used</th>${gpu ? html`<th scope="col" class="right l1">GPU hours</th>` : null}<th scope="col" class="right l2">Attempts</th><th scope="col" class="right l2">Failed</th><th scope="col" class="right l3">Mean wait</th><th scope="col" class="right l3">kWh</th>${cost ? html`<th scope="col" class="right">Cost</th>` : null}</tr></thead>
    <tbody>${shown.map((row) => html`<tr key=${row.key}><td class="name">${link(row.key)}</td><td class="l1 wide"><span class="bar" role="img" aria-label=${`${Math.round(((row[measure] || 0) * 100) / most)} percent of the most`}><span style=${{ width: `${((row[measure] || 0) * 100) / most}%` }}></span></span></td><td class="right">${number(row.core_hours)}</td><td class="right l1">${part(row.cpu_efficiency)}</td><td class="right l2">${part(row.memory_efficiency)}</td>${gpu ? html`<td class="right l1">${number(row.gpu_hours)}</td>` : null}<td class="right l2">${count(row.attempts)}</td><td class="right l2">${count((row.states.failed || 0) + (row.states["timed-out"] || 0) + (row.states["out-of-memory"] || 0)) }</td><td class="right l3">${row.wait_s == null ? "–" : duration(row.wait_s * 1000)}</td><td class="right l3">${number(row.energy_kwh)}</td>${cost ? html`<td class="right">${money(row.price, currency)}</td>` : null}</tr>`)}</tbody></table></div>${rows.length > MOST_ROWS ? html`<p class="note">The first ${count(MOST_ROWS)} of ${count(rows.length)}: the CSV has all.</p>` : null}`;
}
