// The trace of a job's attempts, where the collector has it.
import { html } from "../h.js";
import { collector, useData } from "../api.js";
import { duration, safe } from "../format.js";
import { Empty, Loading, Panel } from "../ui.js";
import { Gantt } from "./gantt.js";

export function Trace({ job }) {
  const found = useData(collector(`traces/${job.trace_id}`), 5000);
  if (found.error) return html`<${Empty} title="No trace is kept of this job">${found.error.status === 404 ? "It was not sampled, or it is older than what is kept." : found.error.message}<//>`;
  if (!found.data) return html`<${Loading} what="Loading the trace" />`;
  const spans = found.data.spans || [], now = Date.now();
  if (!spans.length) return html`<${Empty} title="No trace is kept of this job" />`;
  const depth = new Map();
  const rows = [...spans].sort((a, b) => a.start_ms - b.start_ms).slice(0, 200).map((span) => {
    const level = span.parent_id && depth.has(span.parent_id) ? depth.get(span.parent_id) + 1 : 0;
    depth.set(span.span_id ?? span.id, level);
    const end = span.end_ms ?? now;
    return { key: span.span_id ?? span.id, name: `${"  ".repeat(level)}${safe(span.name)}`, end: duration(end - span.start_ms), bars: [{ from: span.start_ms, to: end, tone: span.status === "error" ? "bad" : "run", title: `${safe(span.name)} ${duration(end - span.start_ms)}` }] };
  });
  return html`<${Panel} title=${`Trace ${safe(job.trace_id)}`}><${Gantt} rows=${rows} now=${now} label="Spans of the trace" names=${180} /><//>`;
}
