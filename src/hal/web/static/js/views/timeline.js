// What ran, what runs and what is reserved, as bars over time: a line a job.
import { html } from "../h.js";
import { controller, useData } from "../api.js";
import { Link, go, usePlace, withQuery } from "../router.js";
import { clock, plural, safe } from "../format.js";
import { Ago, Chips, Empty, Head, Loading, Panel, useNow } from "../ui.js";
import { Gantt } from "./gantt.js";

const RANGES = [["1h", "1 hour", 36e5], ["6h", "6 hours", 216e5], ["1d", "1 day", 864e5]];
const TONE = { succeeded: "ok", failed: "bad", "timed-out": "bad", lost: "bad" };

export function Timeline() {
  const { query } = usePlace(), now = useNow(5000), range = RANGES.find(([key]) => key === query.get("range")) || RANGES[0];
  const running = useData(`${controller("jobs")}?state=active&placed=1&limit=200`, 6000), plan = useData(controller("plan"), 6000), ended = useData(`${controller("attempts")}?newest=1&limit=200`, 8000);
  const from = now - range[2], until = now + range[2];
  if (running.loading || ended.loading) return html`<${Head} title="Timeline" /><${Loading} what="Loading what ran and runs" />`;
  const past = new Map();
  for (const one of ended.data?.attempts || []) {
    if (one.end_ms < from || !one.start_ms) continue;
    if (!past.has(one.job)) past.set(one.job, { key: `e${one.job}`, name: `${one.job} ${one.name}`, bars: [] });
    past.get(one.job).bars.push({ from: one.start_ms, to: one.end_ms, tone: TONE[one.state] || "off", title: `${safe(one.name)} ${one.state} on ${one.nodes.slice(0, 3).map(safe).join(", ")}` });
  }
  const live = (running.data?.jobs || []).filter((job) => job.start_ms).slice(0, 60).map((job) => ({ key: job.id, name: `${job.id} ${job.name}`, bars: [{ from: job.start_ms, to: now, tone: "run", title: `${safe(job.name)} runs${job.placement ? ` on ${job.placement.nodes.slice(0, 3).map(safe).join(", ")}` : ""}` }], until: job.placement?.ends_by_ms ?? null }));
  const next = (plan.data?.reservations || []).filter((one) => one.start_ms).slice(0, 40).map((one) => ({ key: `p${one.job}.${one.task}`, name: `${one.job} reserved`, bars: [{ from: one.start_ms, to: one.end_ms ?? until, tone: "plan", title: `job ${one.job} has ${plural(one.nodes.length, "node")} reserved from ${clock(one.start_ms)}` }] }));
  const part = (title, rows, empty) => html`<${Panel} title=${title} more=${plural(rows.length, "job")}>${rows.length ? html`<${Gantt} rows=${rows} now=${now} from=${from} until=${until} label=${title} names=${170} />` : html`<${Empty} title=${empty} />`}<//>`;
  return html`<${Head} title="Timeline" sub=${html`<span>to the left what was, to the right what is planned; dashed: until its walltime</span>`}><${Chips} label="Range" of=${RANGES.map(([key, title]) => [key, title])} at=${range[0]} pick=${(key) => go(withQuery({ range: key === "1h" ? "" : key }), true)} /><//>
    ${part("Reserved", next, "Nothing has nodes reserved")}${next.length ? html`<p class="hide">${next.map((row) => row.bars[0].title).join("; ")}</p>` : null}
    ${part("Runs", live, "Nothing runs")}${part("Ended", [...past.values()].reverse().slice(0, 40), "Nothing has ended in this time")}
    <p class="muted">Every job is in the <${Link} to="/jobs" class="blue">list of jobs<//>; the newest end was <${Ago} at=${ended.data?.attempts?.[ended.data.attempts.length - 1]?.end_ms} now=${now} />.</p>`;
}
