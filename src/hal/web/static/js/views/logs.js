// The output of one step, followed live: text, whatever a job has printed.
import { html, useEffect, useMemo, useRef, useState } from "../h.js";
import { controller } from "../api.js";
import { Link } from "../router.js";
import { bytes, count, plain, safe } from "../format.js";
import { Icon } from "../icons.js";
import { Chips, Empty, Fault, Panel } from "../ui.js";

const TAIL_BYTES = 256 << 10, MOST_CHARS = 2 << 20, DRAW_MS = 120;

export function Logs({ job, task, short }) {
  const [stream, setStream] = useState("stdout"), [rank, setRank] = useState(0), [find, setFind] = useState("");
  const [state, setState] = useState({ text: "", error: null, open: true, note: "", path: "" });
  const box = useRef(null), stick = useRef(true);
  const started = Boolean(job.start_ms);
  useEffect(() => {
    if (!started) return undefined;
    const abort = new AbortController();
    let text = "", timer = 0, note = "", path = "";
    const draw = (open, error = null) => {
      clearTimeout(timer);
      timer = 0;
      setState({ text: plain(text), error, open, note, path });
    };
    (async () => {
      const query = new URLSearchParams({ task, rank, stream, follow: "1", offset: String(-TAIL_BYTES) });
      try {
        const response = await fetch(`${controller(`jobs/${job.id}/logs`)}?${query}`, { signal: abort.signal });
        if (!response.ok) {
          const problem = await response.json().catch(() => ({}));
          draw(false, Object.assign(new Error(problem.detail || response.statusText), { hint: problem.hint }));
          return;
        }
        const offset = Number(response.headers.get("hal-log-offset") || 0);
        path = decodeURIComponent(response.headers.get("hal-log-path") || "");
        if (offset > 0) note = `The first ${bytes(offset)} are not shown: download the whole.`;
        const reader = response.body.getReader(), decoder = new TextDecoder();
        draw(true);
        for (;;) {
          const { done, value } = await reader.read();
          if (done) break;
          text += decoder.decode(value, { stream: true });
          if (text.length > MOST_CHARS) { text = text.slice(-MOST_CHARS / 2); note = "Only the last part is shown: download the whole."; }
          if (!timer) timer = setTimeout(() => draw(true), DRAW_MS);
        }
        draw(false);
      } catch (error) {
        if (error.name !== "AbortError") draw(false, Object.assign(new Error("The output broke off."), { hint: "Load the page again to go on." }));
      }
    })();
    return () => { abort.abort(); clearTimeout(timer); };
  }, [job.id, task, rank, stream, started]);
  useEffect(() => { const el = box.current; if (el && stick.current) el.scrollTop = el.scrollHeight; }, [state.text]);
  const scrolled = () => { const el = box.current; stick.current = el.scrollHeight - el.scrollTop - el.clientHeight < 40; };
  const lines = useMemo(() => (find ? state.text.split("\n").filter((line) => line.toLowerCase().includes(find.toLowerCase())) : null), [find, state.text]);
  const whole = `${controller(`jobs/${job.id}/logs`)}?${new URLSearchParams({ task, rank, stream, follow: "1" })}`;
  return html`<${Panel} title="Output" more=${html`${state.open && started && !state.error ? html`<span class="state s-running"><i class="pulse"></i>live</span>` : null}
      <${Chips} label="Stream" of=${[["stdout", "stdout"], ["stderr", "stderr"]]} at=${stream} pick=${setStream} />
      ${job.nodes > 1 ? html`<label>node <select value=${rank} onChange=${(event) => setRank(Number(event.target.value))}>${Array.from({ length: Math.min(job.nodes, 256) }, (_, n) => html`<option value=${n}>${n}</option>`)}</select></label>` : null}
      ${started && !short ? html`<label class="search"><span class="hide">Find in the output</span><input type="search" placeholder="Find" value=${find} onInput=${(event) => setFind(event.target.value)} /></label>` : null}
      ${started ? html`<a href=${whole} download=${`job-${job.id}.${task}.${stream}.txt`}>download</a>` : null}${short ? html`<${Link} to=${`/jobs/${job.id}/logs`}>larger<//>` : null}`}>
    ${!started ? html`<${Empty} title="It has not started yet">Its output appears here as it is written.<//>` : html`
      <${Fault} error=${state.error} />${state.note ? html`<p class="note">${state.note}</p>` : null}
      ${state.path ? html`<p class="note">The job writes this output to ${safe(state.path)}, where HAL keeps none of it.</p>` : null}
      ${find ? html`<p class="note"><${Icon} name="search" />${count(lines.length)} lines</p>` : null}
      <div class="log" ref=${box} onScroll=${scrolled} tabindex="0" role="log" aria-label=${`Output of job ${job.id}`} style=${short ? { height: "300px" } : undefined}>
        <pre>${find ? lines.slice(-5000).join("\n") : state.text}${!state.text && !state.open && !state.error ? html`<span class="muted">It has printed nothing here.</span>` : ""}</pre></div>`}<//>`;
}
