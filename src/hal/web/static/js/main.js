// The page: who is signed in, the frame around all views, the keyboard.
import { html, render, useEffect, useRef, useState } from "./h.js";
import { collector, getSession, loadSession, onSession, signIn, signOut, useData } from "./api.js";
import { CHANGED, isTold } from "./alerting.js";
import { live, start, stop, useLive } from "./live.js";
import { Link, match, usePlace } from "./router.js";
import { Overlays } from "./dialogs.js";
import { Icon } from "./icons.js";
import { Empty, Fault, Head, Loading } from "./ui.js";
import { plural, safe, short } from "./format.js";
import { Palette } from "./palette.js";
import { Keys } from "./keys.js";


const load = (name, view) => () => import(`./views/${name}.js`).then((module) => module[view]);
const ROUTES = [
  ["/", load("overview", "Overview")],
  ["/jobs", load("jobs", "Jobs")],
  ["/jobs/:id", load("job", "Job")],
  ["/jobs/:id/:tab", load("job", "Job")],
  ["/jobs/:id/tasks/:task", load("job", "Job")],
  ["/queues", load("queues", "Queues")],
  ["/queues/:name", load("queues", "Queue")],
  ["/nodes", load("nodes", "Nodes")],
  ["/nodes/:name", load("node", "Node")],
  ["/timeline", load("timeline", "Timeline")],
  ["/shares", load("shares", "Shares")],
  ["/bookings", load("bookings", "Bookings")],
  ["/sessions", load("sessions", "Sessions")],
  ["/alerts", load("alerts", "Alerts")],
  ["/usage", load("usage", "Usage")],
  ["/logs", load("logsearch", "LogSearch")],
];
const PLACES = [
  ["/", "overview", "Overview", "o"], ["/jobs", "jobs", "Jobs", "j"], ["/queues", "queues", "Queues", "q"], ["/nodes", "nodes", "Nodes", "n"],
  ["/timeline", "timeline", "Timeline", "t"], ["/shares", "shares", "Shares", "s"], ["/bookings", "bookings", "Bookings", "b"], ["/sessions", "sessions", "Sessions", "e"],
];
const COLLECTED = [["/alerts", "alerts", "Alerts", "a"], ["/usage", "usage", "Usage", "u"], ["/logs", "search", "Log search", "l"]];

const loaded = new Map();

function View({ path }) {
  const found = ROUTES.map(([pattern, view]) => [match(pattern, path), view]).find(([params]) => params);
  const [, redraw] = useState(0);
  const [error, setError] = useState(null);
  const view = found?.[1];
  useEffect(() => {
    setError(null);
    if (!view || loaded.has(view)) return;
    view().then((component) => { loaded.set(view, component); redraw((n) => n + 1); }, () => setError(new Error("This part of the page could not be loaded.")));
  }, [view]);
  if (!found) return html`<${Head} title="Not found" /><${Empty} title="There is nothing at this address">The link may be old, or mistyped. <${Link} to="/" class="blue">Go to the overview<//>.<//>`;
  const Component = loaded.get(view);
  if (error) return html`<${Fault} error=${error} again=${() => location.reload()} />`;
  return Component ? html`<${Component} ...${found[0]} key=${view} />` : html`<${Loading} />`;
}

function Nav({ path, find }) {
  useLive();
  const session = getSession();
  const queues = live.pulse?.queues || [], jobs = live.pulse?.health.jobs || {};
  const running = jobs.running || 0;
  const nodes = live.pulse?.health.nodes || {};
  const away = (nodes.down || 0) + (nodes.unreachable || 0) + (nodes.stopped || 0);
  const alerts = useData(session.collector ? collector("alerts?state=firing") : null, 10000), told = alerts.data?.alerts.filter(isTold) || [];
  useEffect(() => {
    window.addEventListener(CHANGED, alerts.refresh);
    return () => window.removeEventListener(CHANGED, alerts.refresh);
  });
  const grave = told.some((one) => one.severity === "critical");
  const badge = { "/alerts": told.length ? [short(told.length), grave ? "bad" : "wait", `${plural(told.length, "alert")} firing`] : null, "/jobs": running ? [short(running), "", `${running} running`] : null, "/nodes": away ? [short(away), "bad", `${away} away`] : null, "/queues": queues.length > 1 ? [queues.length, "", `${queues.length} queues`] : null };
  const at = (to) => (to === "/" ? path === "/" : path === to || path.startsWith(`${to}/`));
  const item = ([to, icon, title], n) => html`<li key=${to} class=${n > 3 && !(to === "/alerts" && told.length) ? "minor" : ""}><${Link} to=${to} aria-current=${at(to) ? "page" : undefined} title=${title}><${Icon} name=${icon} /><span>${title}</span>${badge[to] ? html`<span class=${`n ${badge[to][1]}`} title=${badge[to][2]}>${badge[to][0]}</span>` : null}<//></li>`;
  return html`<nav class="nav" aria-label="Pages">
    <${Link} to="/" class="brand" title="HAL: overview"><img src="/static/icon.svg" alt="" width="22" height="22" /><span>HAL</span><i class=${`pulse ${live.connected ? "" : "off"}`} title=${live.connected ? "live" : "not connected"}></i><//>
    <button class="plain find" onClick=${find} title="Search (/)"><${Icon} name="search" /><span>Search</span><kbd>/</kbd></button>
    <ul>${PLACES.map(item)}${session.collector ? COLLECTED.map((one) => item(one, 9)) : null}</ul>
    <div class="foot">
      <button class="plain minor" onClick=${() => window.dispatchEvent(new Event("hal-keys"))} title="Keyboard (?)"><${Icon} name="keys" /><span>Keyboard</span></button>
      <button class="plain" onClick=${nextTheme} title="Theme: light, dark, as the system"><${Icon} name="theme" /><span>Theme</span></button>
      <button class="plain" onClick=${() => signOut()} title="Sign out"><${Icon} name="out" /><span>Sign out</span></button>
      <div class="who" title=${`${safe(session.user)}, ${session.role}`}><strong>${safe(session.user)}</strong>${session.role}${session.read_only ? ", read-only" : ""} · HAL ${session.version}</div>
    </div></nav>`;
}

function nextTheme() {
  const dark = matchMedia("(prefers-color-scheme: dark)").matches, now = document.documentElement.dataset.theme;
  const next = now === "auto" ? (dark ? "light" : "dark") : now === (dark ? "light" : "dark") ? (dark ? "dark" : "light") : "auto";
  document.documentElement.dataset.theme = next;
  try { localStorage.setItem("hal-theme", next); } catch { /* not kept */ }
}

function Trouble() {
  useLive();
  const [late, setLate] = useState(false);
  useEffect(() => {
    if (live.connected) { setLate(false); return undefined; }
    const timer = setTimeout(() => setLate(!live.connected), 4000);
    return () => clearTimeout(timer);
  }, [live.connected]);
  if (live.trouble) return html`<div class="banner" role="alert"><${Icon} name="warn" /><span>${live.trouble.detail} ${live.trouble.hint || ""}</span></div>`;
  if (late && !live.connected) return html`<div class="banner" role="alert"><${Icon} name="warn" /><span>Not connected: what is shown may be old. Trying again…</span></div>`;
  return null;
}

function Frame() {
  const { path } = usePlace();
  const [palette, setPalette] = useState(false);
  const main = useRef(null);
  useEffect(() => { start(); return stop; }, []);
  const find = () => setPalette(true);
  return html`<a class="skip" href="#main" onClick=${(event) => { event.preventDefault(); main.current.focus(); }}>Skip to the content</a>
    <div class="app"><${Nav} path=${path} find=${find} />
    <main id="main" ref=${main} tabindex="-1">
      <div class="topbar"><img src="/static/icon.svg" alt="" width="24" height="24" />HAL<button class="quiet small" onClick=${find}><${Icon} name="search" />Search</button></div>
      <${Trouble} /><${View} path=${path} /></main></div>
    <${Keys} find=${find} places=${[...PLACES, ...(getSession().collector ? COLLECTED : [])]} />
    ${palette ? html`<${Palette} close=${() => setPalette(false)} places=${[...PLACES, ...(getSession().collector ? COLLECTED : [])]} />` : null}<${Overlays} />`;
}

function SignIn() {
  const [error, setError] = useState(null), [busy, setBusy] = useState(false);
  const field = useRef(null);
  const enter = async (body) => {
    setBusy(true);
    setError(null);
    // Before: the page that is drawn next goes by the address.
    if (location.pathname === "/sign-in") history.replaceState(null, "", "/");
    try {
      await signIn(body);
    } catch (problem) { setError(problem); }
    setBusy(false);
  };
  useEffect(() => {
    document.title = "Sign in · HAL";
    if (location.pathname === "/sign-in" && location.hash.length > 1) {
      const key = location.hash.slice(1);
      enter({ key });
    } else field.current?.focus();
  }, []);
  const submit = (event) => { event.preventDefault(); enter({ token: field.current.value }); };
  return html`<main class="gate"><form onSubmit=${submit}><img src="/static/icon.svg" alt="" width="36" height="36" /><h1>Sign in to HAL</h1>
    <p class="muted">You see here what your token lets you see, and can change what it lets you change.</p>
    <label class="field">API token<input ref=${field} type="password" name="token" autocomplete="off" required spellcheck="false" /></label>
    <${Fault} error=${error} /><button class="primary" disabled=${busy}>${busy ? "Signing in…" : "Sign in"}</button>
    <p class="muted">No token? On the machine of HAL, its owner gets a link with <code>hal web --link</code>; others ask an admin for a token.</p></form></main>`;
}

function App() {
  const [state, setState] = useState("loading"), [error, setError] = useState(null);
  const ask = () => {
    setState("loading");
    loadSession().then(() => setError(null), (problem) => { setError(problem); setState("broken"); });
  };
  useEffect(() => { const leave = onSession((session) => setState(session ? session.user : "out")); ask(); return leave; }, []);
  if (state === "loading") return html`<div class="gate"><${Loading} /></div>`;
  if (state === "broken") return html`<main class="gate"><div class="card"><h1>HAL does not answer</h1><${Fault} error=${error} /><button class="primary" onClick=${ask}>Try again</button></div></main>`;
  return state === "out" ? html`<${SignIn} />` : html`<${Frame} key=${state} />`;
}

render(html`<${App} />`, document.getElementById("page"));

