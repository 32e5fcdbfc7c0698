// Lines of jobs and of HAL's own processes, by their words: where there is a collector.
import { html, useEffect, useState } from "../h.js";
import { collector, useData } from "../api.js";
import { Link, go, usePlace, withQuery } from "../router.js";
import { full, plain, safe } from "../format.js";
import { Icon } from "../icons.js";
import { Chips, Empty, Head, Panel, Shown } from "../ui.js";

const LEAST = [["", "All"], ["warning", "Warnings"], ["error", "Errors"]];

export function LogSearch() {
  const { query } = usePlace(), text = query.get("q") || "", severity = query.get("severity") || "", [typed, setTyped] = useState(text);
  useEffect(() => { const timer = setTimeout(() => { if (typed !== text) go(withQuery({ q: typed.trim() }), true); }, 350); return () => clearTimeout(timer); }, [typed]);
  const asked = new URLSearchParams({ limit: "200", query: text });
  if (severity) asked.set("severity", severity);
  if (query.get("job")) asked.set("job", query.get("job"));
  const found = useData(`${collector("logs/search")}?${asked}`, 5000);
  return html`<${Head} title="Log search" />
    <div class="filters"><${Chips} label="Severity" of=${LEAST} at=${severity} pick=${(name) => go(withQuery({ severity: name }), true)} /><label class="search"><${Icon} name="search" /><span class="hide">Words</span><input type="search" value=${typed} placeholder="Words that a line has" spellcheck="false" onInput=${(event) => setTyped(event.target.value)} /></label></div>
    <${Panel} title="Newest first"><${Shown} of=${found} what="Searching">${(data) => (data.lines.length ? html`<div class="log" tabindex="0" style=${{ height: "auto", maxHeight: "72vh" }}>${data.lines.map((line, n) => html`<div key=${`${line.at_ms} ${n}`} class="mono line"><span class="muted">${full(line.at_ms)} ${line.node ? safe(line.node) : ""} </span>${line.job ? html`<${Link} to=${`/jobs/${line.job}`} class="blue">${line.job}<//> ` : html`<span class="muted">${safe(line.component)} </span>`}${line.severity && !["info", ""].includes(line.severity) ? html`<span class="s-failed">${safe(line.severity)} </span>` : null}${plain(line.text)}</div>`)}</div>` : html`<${Empty} title="No line has these words">${data.cursor ? "Older ones may: ask for more words, or a job." : "Try fewer words."}<//>`)}<//><//>`;
}
