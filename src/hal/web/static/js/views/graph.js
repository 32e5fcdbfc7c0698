// The jobs before and after a job, level by level; where there are very many, by level and name.
import { html, useEffect, useMemo, useState } from "../h.js";
import { controller, get } from "../api.js";
import { Link } from "../router.js";
import { count, plural, safe } from "../format.js";
import { jobState, kindOf } from "../states.js";
import { Empty, Fault, Loading, Panel } from "../ui.js";

const MOST_JOBS = 400, AT_ONCE = 8, MOST_SHOWN = 120, W = 190, H = 44, GX = 70, GY = 14;

const before = (job) => (job.spec?.after || []).map((one) => String(typeof one === "object" ? one.job : one).replace(/^.*:/, "").replace(/\..*$/, "")).filter((id) => /^\d+$/.test(id));

async function walk(first, tell, stopped) {
  const jobs = new Map([[first.id, first]]), waiting = [...before(first), ...(first.dependants || [])];
  const asked = new Set([first.id]);
  let cut = false;
  while (waiting.length && !stopped()) {
    const some = [];
    while (waiting.length && some.length < AT_ONCE) { const id = waiting.shift(); if (!asked.has(id)) { asked.add(id); some.push(id); } }
    if (asked.size > MOST_JOBS) { cut = true; break; }
    const found = await Promise.all(some.map((id) => get(`${controller(`jobs/${id}`)}?all_dependants=1`).catch(() => null)));
    for (const job of found.filter(Boolean)) { jobs.set(job.id, job); waiting.push(...before(job), ...(job.dependants || [])); }
    tell(new Map(jobs), cut);
  }
  tell(new Map(jobs), cut, true);
}

export function Graph({ job }) {
  const [state, setState] = useState({ jobs: new Map([[job.id, job]]), done: false, cut: false, error: null });
  useEffect(() => {
    let gone = false;
    get(`${controller(`jobs/${job.id}`)}?all_dependants=1`).then((first) => walk(first, (jobs, cut, done) => { if (!gone) setState({ jobs, cut, done, error: null }); }, () => gone)).catch((error) => { if (!gone) setState((old) => ({ ...old, error, done: true })); });
    return () => { gone = true; };
  }, [job.id]);
  const drawn = useMemo(() => layout(state.jobs, job.id), [state.jobs]);
  return html`<${Panel} title=${`Graph · ${plural(state.jobs.size, "job")}`} more=${state.cut ? `the nearest ${count(MOST_JOBS)} jobs` : ""}><${Fault} error=${state.error} />${!state.done ? html`<${Loading} what="Looking for the jobs before and after" />` : null}
    ${drawn.boxes.length > 1 ? html`<div class="dag" tabindex="0"><svg width=${drawn.width} height=${drawn.height} role="img" aria-label="Graph of jobs">
      ${drawn.edges.map(([a, b]) => html`<path class="edge" d=${`M${a.x + W} ${a.y + H / 2} C ${a.x + W + GX / 2} ${a.y + H / 2}, ${b.x - GX / 2} ${b.y + H / 2}, ${b.x} ${b.y + H / 2}`} />`)}
      ${drawn.boxes.map((box) => html`<${Link} to=${`/jobs/${box.id}${box.many ? "" : ""}`} class=${`node ${box.id === job.id ? "self" : ""}`} key=${box.key}><rect x=${box.x} y=${box.y} width=${W} height=${H} rx="8" /><circle class=${`dot s-${kindOf(box.state)}`} cx=${box.x + 14} cy=${box.y + 16} r="4.5" />
        <text x=${box.x + 26} y=${box.y + 20}>${safe(box.name).slice(0, 22)}</text><text class="small" x=${box.x + 26} y=${box.y + 36}>${box.note}</text><//>`)}</svg></div>` : state.done ? html`<${Empty} title="No job comes before or after this one" />` : null}<//>`;
}

function layout(jobs, self) {
  const level = new Map(), after = new Map([...jobs.keys()].map((id) => [id, before(jobs.get(id)).filter((one) => jobs.has(one))]));
  const depth = (id, seen = 0) => {
    if (level.has(id)) return level.get(id);
    level.set(id, 0);
    const found = seen > 300 ? 0 : Math.max(0, ...after.get(id).map((one) => depth(one, seen + 1) + 1));
    level.set(id, found);
    return found;
  };
  [...jobs.keys()].forEach((id) => depth(id));
  // Many jobs of one level, name and state are one box.
  const few = jobs.size <= MOST_SHOWN, groups = new Map(), where = new Map();
  for (const job of jobs.values()) {
    const stem = job.name.replace(/[\d]+/g, "#"), key = few || job.id === self ? job.id : `${level.get(job.id)} ${stem} ${job.state}`;
    if (!groups.has(key)) groups.set(key, []);
    groups.get(key).push(job);
    where.set(job.id, key);
  }
  const used = [], boxes = new Map();
  for (const [key, members] of [...groups].sort((a, b) => Number(a[1][0].id) - Number(b[1][0].id))) {
    const job = members[0], column = level.get(job.id), row = used[column] || 0;
    used[column] = row + 1;
    boxes.set(key, { key, id: job.id, x: column * (W + GX) + 2, y: row * (H + GY) + 2, name: members.length > 1 ? `${count(members.length)} × ${job.name.replace(/\d+/g, "#")}` : job.name, state: jobState(job), many: members.length > 1,
      note: members.length > 1 ? job.state : `${job.id} · ${job.state}${job.tasks > 1 ? ` · ${count(job.counts.succeeded)}/${count(job.tasks)}` : ""}` });
  }
  const edges = new Map();
  for (const [id, ones] of after) for (const one of ones) { const a = where.get(one), b = where.get(id); if (a !== b) edges.set(`${a}>${b}`, [boxes.get(a), boxes.get(b)]); }
  return { boxes: [...boxes.values()], edges: [...edges.values()], width: used.length * (W + GX), height: Math.max(1, ...used.filter(Boolean)) * (H + GY) + 6 };
}
