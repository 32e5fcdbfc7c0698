// Which view a path names; links that change the path without loading the page again.
import { html, useEffect, useState } from "./h.js";

const listeners = new Set();

function changed() {
  listeners.forEach((call) => call());
}
window.addEventListener("popstate", changed);

// Only paths of this page: never a URL of another place.
export function go(path, replace = false) {
  if (!path.startsWith("/") || path.startsWith("//")) return;
  if (path === location.pathname + location.search) return;
  history[replace ? "replaceState" : "pushState"](null, "", path);
  if (!replace) window.scrollTo(0, 0);
  changed();
}

export function usePlace() {
  const [, redraw] = useState(0);
  useEffect(() => {
    const call = () => redraw((n) => n + 1);
    listeners.add(call);
    call(); // it may have changed since it was drawn
    return () => listeners.delete(call);
  }, []);
  return { path: location.pathname, query: new URLSearchParams(location.search) };
}

// Change some parameters of the path; '' and null take one away.
export function withQuery(changes, base = location) {
  const query = new URLSearchParams(base.search);
  for (const [name, value] of Object.entries(changes)) {
    if (value == null || value === "") query.delete(name);
    else query.set(name, value);
  }
  const text = query.toString();
  return base.pathname + (text ? `?${text}` : "");
}

export function Link({ to, children, ...more }) {
  const click = (event) => {
    if (event.metaKey || event.ctrlKey || event.shiftKey || event.altKey || event.button) return;
    event.preventDefault();
    event.stopPropagation();
    go(to);
  };
  return html`<a href=${to} onClick=${click} ...${more}>${children}</a>`;
}

// "/jobs/:id" -> {id} or null.
export function match(pattern, path) {
  const want = pattern.split("/"), have = path.replace(/\/+$/, "").split("/");
  if (path === "/") have.splice(1);
  const wanted = pattern === "/" ? [""] : want;
  if (wanted.length !== have.length) return null;
  const found = {};
  for (let n = 0; n < wanted.length; n += 1) {
    if (wanted[n].startsWith(":")) {
      try { found[wanted[n].slice(1)] = decodeURIComponent(have[n]); } catch { return null; }
    } else if (wanted[n] !== have[n]) return null;
  }
  return found;
}
