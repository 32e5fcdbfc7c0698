// Bookings as a calendar: who has which nodes, when, in this week and the next ones; on a phone as a list of days.
import { html } from "../h.js";
import { controller, useData } from "../api.js";
import { go, usePlace, withQuery } from "../router.js";
import { clock, duration, durationMs, plural, safe } from "../format.js";
import { Ago, Empty, Head, Panel, Shown, useNow } from "../ui.js";

const DAY = 864e5, REPEATS = { daily: DAY, weekly: 7 * DAY }, MOST = 200, COLOURS = 7;
const FIRST_HOUR = 6;

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
const hours = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", hourCycle: "h23" });
const weekday = new Intl.DateTimeFormat(undefined, { weekday: "short", day: "numeric" }), whole = new Intl.DateTimeFormat(undefined, { weekday: "long", day: "numeric", month: "long" });

// "09:00–11:00"; over a night with its days.
function timesOf({ begins, ends }) {
  const same = new Date(begins).toDateString() === new Date(ends - 1).toDateString(), at = (time) => (same ? hours.format(time) : `${weekday.format(time)}, ${hours.format(time)}`);
  return `${at(begins)}–${at(ends)}`;
}

// The parts of a day that are booked, each with a lane beside those that overlap it.
function partsOf(all, from, until) {
  const parts = all.flatMap((one) => occurrences(one, from, until).map(([a, b]) => ({ one, from: Math.max(a, from), to: Math.min(b, until), begins: a, ends: b }))).sort((a, b) => a.from - b.from || b.to - a.to);
  let group = [], end = 0;
  const close = () => { const lanes = Math.max(1, ...group.map((part) => part.lane + 1)); group.forEach((part) => { part.lanes = lanes; }); group = []; };
  for (const part of parts) {
    if (part.from >= end) close();
    const taken = new Set(group.filter((other) => other.to > part.from).map((other) => other.lane));
    part.lane = 0;
    while (taken.has(part.lane)) part.lane += 1;
    group.push(part);
    end = Math.max(end, part.to);
  }
  close();
  return parts;
}

export function Bookings() {
  const policy = useData(controller("policy"), 30000), now = useNow(30000), { query } = usePlace();
  const week = Math.max(-52, Math.min(52, parseInt(query.get("week") || "0", 10) || 0));
  const monday = new Date(now);
  monday.setHours(0, 0, 0, 0);
  monday.setDate(monday.getDate() - ((monday.getDay() + 6) % 7) + week * 7);
  // By the calendar, so that days of 23 and 25 hours are days.
  const days = Array.from({ length: 8 }, (_, n) => { const day = new Date(monday); day.setDate(day.getDate() + n); return day.getTime(); });
  const turn = (by) => go(withQuery({ week: week + by || "" }), true);
  return html`<${Head} title="Bookings" sub=${html`<span>${new Date(days[0]).toLocaleDateString(undefined, { day: "numeric", month: "long" })} to ${new Date(days[7] - 1).toLocaleDateString(undefined, { day: "numeric", month: "long", year: "numeric" })}</span>`}>
      <button class="quiet" onClick=${() => turn(-1)} aria-label="The week before">←</button><button class="quiet" onClick=${() => go(withQuery({ week: "" }), true)} disabled=${!week}>This week</button><button class="quiet" onClick=${() => turn(1)} aria-label="The week after">→</button><//>
    <${Shown} of=${policy} what="Loading the bookings">${(data) => {
      const all = Object.entries(data.policy.bookings || {}).map(([name, one], n) => ({ name, tone: one.maintenance ? "off" : `b${n % COLOURS}`, ...one }));
      if (!all.length) return html`<${Panel}><${Empty} title="No bookings">A booking sets nodes or licences aside for a time: <code>hal booking add course --start 2030-01-07T09:00 --duration 2h --nodes n1,n2</code><//><//>`;
      const parts = days.slice(0, 7).map((day, n) => partsOf(all, day, days[n + 1]));
      return html`<${Panel}><${Week} days=${days} parts=${parts} now=${now} /><${Agenda} days=${days} parts=${parts} now=${now} /><//><${All} all=${all} now=${now} />`;
    }}<//>`;
}

function Week({ days, parts, now }) {
  // Early hours are shown where something is booked in them.
  const early = parts.some((day, n) => day.some((part) => part.from - days[n] < FIRST_HOUR * 36e5 && part.to - days[n] > 36e5)) || parts.flat().some((part) => part.to - part.from < 2 * 36e5 && new Date(part.from).getHours() < FIRST_HOUR);
  const first = early ? 0 : FIRST_HOUR, marks = Array.from({ length: 24 - first }, (_, n) => first + n).filter((hour) => hour % 3 === 0);
  const y = (at, day, next) => { const from = day + first * 36e5; return Math.max(0, Math.min(100, ((at - from) / (next - from)) * 100)); };
  return html`<div class="calendar" role="group" aria-label="Week"><div class="hours" aria-hidden="true"><div class="top"></div><div class="lane">${marks.map((hour) => html`<span key=${hour} style=${{ top: `${((hour - first) / (24 - first)) * 100}%` }}>${String(hour).padStart(2, "0")}:00</span>`)}</div></div>
    ${days.slice(0, 7).map((day, n) => html`<div key=${day} class=${`day ${now >= day && now < days[n + 1] ? "today" : ""}`}><div class="top">${weekday.format(day)}</div><div class="lane">
      ${marks.map((hour) => html`<i key=${hour} class="rule" style=${{ top: `${((hour - first) / (24 - first)) * 100}%` }}></i>`)}
      ${parts[n].map((part) => { const top = y(part.from, day, days[n + 1]), tall = y(part.to, day, days[n + 1]) - top; return html`<div key=${part.one.name + part.from} class=${`booked ${part.one.tone}`} title=${`${safe(part.one.name)}: ${what(part.one)}, for ${whom(part.one)}, ${timesOf(part)}`} style=${{ top: `${top}%`, height: `${Math.max(tall, 3.2)}%`, left: `${(part.lane / part.lanes) * 100}%`, width: `${100 / part.lanes}%` }}><strong>${safe(part.one.name)}</strong>${tall > 5 ? html`<span>${timesOf(part)}</span>` : null}${tall > 9 ? html`<span>${what(part.one)}</span><span>${whom(part.one)}</span>` : null}</div>`; })}
      ${now >= day && now < days[n + 1] && y(now, day, days[n + 1]) > 0 ? html`<b class="now" style=${{ top: `${y(now, day, days[n + 1])}%` }}></b>` : null}</div></div>`)}</div>`;
}

function Agenda({ days, parts, now }) {
  const seen = days.slice(0, 7).map((day, n) => [day, parts[n], days[n + 1]]).filter(([, list]) => list.length);
  return html`<div class="agenda">${seen.length ? seen.map(([day, list, next]) => html`<section key=${day}><h3 class=${now >= day && now < next ? "today" : ""}>${whole.format(day)}</h3><ul>${list.map((part) => html`<li key=${part.one.name + part.from}><i class=${`mark ${part.one.tone}`}></i><div><strong>${safe(part.one.name)}</strong> <span class="muted">${timesOf(part)}</span><p class="muted">${what(part.one)} · ${whom(part.one)}</p></div></li>`)}</ul></section>`) : html`<${Empty} title="Nothing is booked in this week" />`}</div>`;
}

function All({ all, now }) {
  const next = (one) => occurrences(one, now, now + 400 * DAY)[0], rows = all.map((one) => [one, next(one)]).sort((a, b) => (a[1]?.[0] ?? Infinity) - (b[1]?.[0] ?? Infinity));
  return html`<${Panel} title="All bookings" more=${plural(all.length, "booking")}><div class="table"><table aria-label="All bookings"><thead><tr><th scope="col">Booking</th><th scope="col">Next</th><th scope="col" class="l1">Lasts</th><th scope="col" class="l2">Repeats</th><th scope="col" class="l1">What</th><th scope="col" class="l2">For</th><th scope="col" class="l3">About</th></tr></thead><tbody>
    ${rows.map(([one, times]) => html`<tr key=${one.name}><td class="name"><i class=${`mark ${one.tone}`}></i>${safe(one.name)}</td><td>${!times ? html`<span class="muted">over</span>` : times[0] <= now ? html`<span class="s-running">now, until ${clock(times[1], now)}</span>` : html`${clock(times[0], now)} <span class="muted l1"><${Ago} at=${times[0]} now=${now} /></span>`}</td><td class="l1">${duration(durationMs(one.duration ?? "1h"))}</td><td class="l2">${one.repeat && one.repeat !== "once" ? safe(one.repeat) : html`<span class="muted">once</span>`}</td><td class="l1">${what(one) || "–"}</td><td class="l2">${whom(one)}</td><td class="l3 muted">${safe(one.description || "")}</td></tr>`)}</tbody></table></div><//>`;
}
