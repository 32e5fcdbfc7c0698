// Asking this page's server: reads with ETags, changes with the session's CSRF key, and a hook that keeps a view fresh.
import { useEffect, useRef, useState } from "./h.js";

let session = null;
let sessions = 0; // how many there were on this page: an answer belongs to the one that asked
const listeners = new Set();
const kept = new Map(); // by path: {data, etag}
const MAX_KEPT = 300;

export class ApiError extends Error {
  constructor(status, problem) {
    super(problem.detail || problem.title || `HTTP ${status}`);
    this.status = status;
    this.code = problem.code || "";
    this.hint = problem.hint || "";
  }
}

export const getSession = () => session;

export function onSession(call) {
  listeners.add(call);
  return () => listeners.delete(call);
}

function become(found) {
  if (found?.csrf !== session?.csrf) {
    sessions += 1;
    kept.clear();
  }
  session = found;
  listeners.forEach((call) => call(found));
}

async function fault(response, asked = sessions) {
  let problem = {};
  try { problem = await response.json(); } catch { problem = { title: response.statusText }; }
  if (response.status === 401 && session && asked === sessions) become(null);
  return new ApiError(response.status, problem);
}

async function sent(path, options) {
  try {
    return await fetch(path, options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError(0, { detail: "The page's server does not answer.", code: "unreachable", hint: "Is `hal web` still running?" });
  }
}

export async function loadSession() {
  const response = await sent("/api/session");
  if (response.status === 401) return become(null);
  if (!response.ok) throw await fault(response);
  become(await response.json());
}

export async function signIn(body) {
  const response = await sent("/api/sign-in", {
    method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body),
  });
  if (!response.ok) throw await fault(response);
  become(await response.json());
}

export async function signOut() {
  await sent("/api/sign-out", { method: "POST", headers: { "x-hal-csrf": session.csrf }, body: "{}" });
  become(null);
}

// The JSON that answers; what has not changed is not sent again. An answer that comes after its session is over is
// neither kept nor shown: the path is asked for again, as whoever is signed in now.
export async function get(path, signal) {
  const known = kept.get(path), asked = sessions;
  const response = await sent(path, { signal, headers: known ? { "if-none-match": `"${known.etag}"` } : {} });
  if (asked !== sessions) return get(path, signal);
  if (response.status === 304) return known.data;
  if (!response.ok) throw await fault(response, asked);
  const data = await response.json();
  if (asked !== sessions) return get(path, signal);
  const etag = (response.headers.get("etag") || "").replace(/"/g, "");
  kept.delete(path);
  if (etag) kept.set(path, { data, etag });
  while (kept.size > MAX_KEPT) kept.delete(kept.keys().next().value);
  return data;
}

export const controller = (path) => `/api/controller/v1/${path}`;
export const collector = (path) => `/api/collector/v1/${path}`;

// A change; answers what became of it.
export async function change(path, body, method = "POST") {
  const asked = sessions;
  const response = await sent(path, {
    method,
    headers: { "content-type": "application/json", "x-hal-csrf": session.csrf },
    body: method === "DELETE" ? undefined : JSON.stringify(body),
  });
  if (!response.ok) throw await fault(response, asked);
  return response.json();
}

// How far a right reaches: all, own or none.
export function right(operation) {
  if (!session || session.read_only) return "none";
  return (session.rights || {})[operation] || "none";
}

// Whether this person may do what the collector lets operators do.
export function operates() {
  return Boolean(session) && !session.read_only && ["operator", "admin"].includes(session.role);
}

// Keeps what a path answers: {data, error, loading, refresh}. Asks again every `every` ms while the page is seen.
export function useData(path, every = 0) {
  const [state, setState] = useState(() => ({ data: path ? kept.get(path)?.data : undefined, error: null, path }));
  const again = useRef(() => {});
  useEffect(() => {
    if (!path) return undefined;
    let timer = 0, abort = new AbortController(), gone = false, failures = 0;
    const ask = async () => {
      clearTimeout(timer);
      try {
        const data = await get(path, abort.signal);
        failures = 0;
        if (!gone) setState((before) => (before.data === data && !before.error && before.path === path ? before : { data, error: null, path }));
      } catch (error) {
        if (gone || error.name === "AbortError") return;
        failures += 1;
        setState((before) => ({ data: before.path === path ? before.data : undefined, error, path }));
      }
      if (!gone && every && !document.hidden) timer = setTimeout(ask, every * Math.min(1 + failures, 10));
    };
    const seen = () => { if (!document.hidden) ask(); };
    again.current = ask;
    setState((before) => (before.path === path ? before : { data: kept.get(path)?.data, error: null, path }));
    ask();
    document.addEventListener("visibilitychange", seen);
    return () => {
      gone = true;
      clearTimeout(timer);
      abort.abort();
      document.removeEventListener("visibilitychange", seen);
    };
  }, [path, every]);
  const fresh = state.path === path;
  return {
    data: fresh ? state.data : undefined,
    error: fresh ? state.error : null,
    loading: Boolean(path) && (!fresh || (state.data === undefined && !state.error)),
    refresh: () => again.current(),
  };
}
