// Search: a job by number or name, a node, a queue, a page.
import { html, useEffect, useLayoutEffect, useMemo, useRef, useState } from "./h.js";
import { controller, useData } from "./api.js";
import { live } from "./live.js";
import { go } from "./router.js";
import { safe } from "./format.js";
import { Icon } from "./icons.js";
import { jobState, kindOf } from "./states.js";

const MOST = 8;

export function Palette({ close, places }) {
  const dialog = useRef(null), list = useRef(null);
  const [text, setText] = useState(""), [asked, setAsked] = useState(""), [at, setAt] = useState(0);
  // At once: what is typed next is meant for it.
  useLayoutEffect(() => { dialog.current.showModal(); }, []);
  useEffect(() => { const timer = setTimeout(() => setAsked(text.trim()), 160); return () => clearTimeout(timer); }, [text]);
  const name = asked.replace(/[*?]/g, "");
  const found = useData(name.length > 1 && !/^\d+$/.test(name) ? `${controller("jobs")}?limit=8&name=${encodeURIComponent(`*${name}*`)}` : null);
  const items = useMemo(() => {
    const low = text.trim().toLowerCase(), all = [];
    const number = /^#?(\d+)(?:\.(\d+))?$/.exec(low);
    if (number) all.push({ icon: "jobs", text: `Job ${number[1]}${number[2] ? `, task ${number[2]}` : ""}`, kind: "job", to: number[2] ? `/jobs/${number[1]}/tasks/${number[2]}` : `/jobs/${number[1]}` });
    for (const [to, icon, title] of places) if (!low || title.toLowerCase().includes(low)) all.push({ icon, text: title, kind: "page", to });
    if (low) {
      const names = live.nodes?.names || [];
      names.filter((one) => one.toLowerCase().includes(low)).slice(0, MOST).forEach((one) => all.push({ icon: "nodes", text: safe(one), kind: "node", to: `/nodes/${encodeURIComponent(one)}` }));
      if (!live.nodes && /^[\w.-]+$/.test(low)) all.push({ icon: "nodes", text: `Node ${low}`, kind: "node", to: `/nodes/${encodeURIComponent(low)}` });
      (live.pulse?.queues || []).filter((one) => one.name.toLowerCase().includes(low)).slice(0, 5).forEach((one) => all.push({ icon: "queues", text: safe(one.name), kind: "queue", to: `/queues/${encodeURIComponent(one.name)}` }));
      (found.data?.jobs || []).forEach((job) => all.push({ icon: kindOf(jobState(job)), text: `${job.id} ${safe(job.name)}`, kind: `${safe(job.user)} · ${job.state}`, to: `/jobs/${job.id}` }));
      all.push({ icon: "search", text: `All jobs named “${text.trim()}”`, kind: "jobs", to: `/jobs?state=all&q=${encodeURIComponent(text.trim())}` });
    }
    return all;
  }, [text, found.data]);
  const chosen = Math.min(at, items.length - 1);
  useEffect(() => { list.current?.querySelector('[aria-selected="true"]')?.scrollIntoView({ block: "nearest" }); }, [chosen]);
  const take = (item) => { dialog.current.close(); if (item) go(item.to); };
  const press = (event) => {
    if (event.key === "ArrowDown") { event.preventDefault(); setAt(Math.min(items.length - 1, chosen + 1)); }
    else if (event.key === "ArrowUp") { event.preventDefault(); setAt(Math.max(0, chosen - 1)); }
    else if (event.key === "Enter") { event.preventDefault(); take(items[chosen]); }
  };
  return html`<dialog class="palette" ref=${dialog} aria-label="Search" onClose=${close} onClick=${(event) => { if (event.target === dialog.current) dialog.current.close(); }}>
    <input type="search" placeholder="Job number or name, node, queue, page" aria-label="Search" autofocus spellcheck="false" role="combobox" aria-expanded="true" aria-controls="found" aria-activedescendant=${items.length ? `found-${chosen}` : undefined}
      value=${text} onInput=${(event) => { setText(event.target.value); setAt(0); }} onKeyDown=${press} />
    <ul id="found" ref=${list} role="listbox" aria-label="Found">${items.map((item, n) => html`<li key=${item.to + item.text} id=${`found-${n}`} role="option" aria-selected=${String(n === chosen)} onMouseMove=${() => setAt(n)} onClick=${() => take(item)}><${Icon} name=${item.icon} /><span>${item.text}</span><span class="muted">${item.kind}</span></li>`)}</ul>
  </dialog>`;
}
