// Bookings as a calendar: who has which nodes, when, in this week and the next ones.
import { html } from "../h.js";
import { controller, useData } from "../api.js";
import { go, usePlace, withQuery } from "../router.js";
import { clock, duration, durationMs, plural, safe } from "../format.js";
import { Empty, Facts, Head, Panel, Shown, useNow } from "../ui.js";
import { Gantt } from "./gantt.js";

const DAY = 864e5, REPEATS = { daily: DAY, weekly: 7 * DAY }, MOST = 200;

// When a booking holds within [from, until).
export function occurrences(one, from, until) {
  const lasts = durationMs(one.duration ?? "1h"), every = REPEATS[one.repeat], found = [];
  let at = one.start_ms || 0;
  if (every && at + lasts < from) at += Math.floor((from - lasts - at) / every) * every;
  for (let n = 0; n < MOST && at < until && !(one.until_ms && at > one.until_ms); n += 1) {
    if (at + lasts > from) found.push([at, at + lasts]);
    if (!every) break;
    at += every;
  }
  return found;
}

const whom = (one) => (one.maintenance ? "maintenance: nobody" : [...(one.accounts || []), ...(one.users || [])].map(safe).join(", ") || "–");
const what = (one) => [one.nodes?.length ? `${one.nodes.slice(0, 6).map(safe).join(", ")}${one.nodes.length > 6 ? " …" : ""}` : one.count ? `any ${plural(one.count, "node")}` : "", ...Object.entries(one.licences || {}).map(([name, n]) => `${n} ${safe(name)}`)].filter(Boolean).join(" · ");

export function Bookings() {
  const policy = useData(controller("policy"), 30000), now = useNow(30000), { query } = usePlace();
  const week = Math.max(-52, Math.min(52, parseInt(query.get("week") || "0", 10) || 0));
  const monday = new Date(now);
  monday.setHours(0, 0, 0, 0);
  monday.setDate(monday.getDate() - ((monday.getDay() + 6) % 7) + week * 7);
  const from = monday.getTime(), until = from + 7 * DAY;
  const turn = (by) => go(withQuery({ week: week + by || "" }), true);
  return html`<${Head} title="Bookings" sub=${html`<span>${new Date(from).toLocaleDateString(undefined, { day: "numeric", month: "long" })} to ${new Date(until - 1).toLocaleDateString(undefined, { day: "numeric", month: "long", year: "numeric" })}</span>`}>
      <button class="quiet" onClick=${() => turn(-1)} aria-label="The week before">←</button><button class="quiet" onClick=${() => go(withQuery({ week: "" }), true)} disabled=${!week}>This week</button><button class="quiet" onClick=${() => turn(1)} aria-label="The week after">→</button><//>
    <${Shown} of=${policy} what="Loading the bookings">${(data) => {
      const all = Object.entries(data.policy.bookings || {}).map(([name, one]) => ({ name, ...one }));
      if (!all.length) return html`<${Panel}><${Empty} title="No bookings">A booking sets nodes or licences aside for a time: <code>hal booking add course --start 2030-01-07T09:00 --duration 2h --nodes n1,n2</code><//><//>`;
      const rows = all.map((one) => ({ name: one.name, bars: occurrences(one, from, until).map(([a, b]) => ({ from: a, to: b, tone: one.maintenance ? "bad" : "run", title: `${safe(one.name)}: ${what(one)}, for ${whom(one)}` })) }));
      const seen = rows.filter((row) => row.bars.length);
      return html`<${Panel} title="Week">${seen.length ? html`<${Gantt} rows=${seen} now=${now} from=${from} until=${until} label="Bookings of the week" names=${120} />` : html`<${Empty} title="Nothing is booked in this week" />`}<//>
        ${all.map((one) => html`<${Panel} key=${one.name} title=${safe(one.name)} more=${one.repeat && one.repeat !== "once" ? one.repeat : ""}><${Facts} rows=${[["Begins", clock(one.start_ms, now)], ["Lasts", duration(durationMs(one.duration ?? "1h"))], ["What", what(one) || "–"], ["For", whom(one)], one.description ? ["About", safe(one.description)] : null]} /><//>`)}`;
    }}<//>`;
}
