// The keyboard: / searches, g and a letter goes somewhere, ? shows the keys. Views have keys of their own (useKeys).
import { html, useEffect, useRef, useState } from "./h.js";
import { go } from "./router.js";

const own = new Set();
const WAIT_MS = 1200;

export function isTyping(event) {
  const el = event.target;
  return el.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(el.tagName) ? el.type !== "checkbox" : Boolean(document.querySelector("dialog[open]"));
}

// Keys of a view: called with the key; answers true where it was one.
export function useKeys(call) {
  const now = useRef(call);
  now.current = call;
  useEffect(() => {
    const one = (event) => now.current(event);
    own.add(one);
    return () => own.delete(one);
  }, []);
}

export function Keys({ find, places }) {
  const [help, setHelp] = useState(false), el = useRef(null), first = useRef(0);
  useEffect(() => {
    const show = () => setHelp(true);
    const press = (event) => {
      if ((event.metaKey || event.ctrlKey) && event.key === "k") { event.preventDefault(); find(); return; }
      if (isTyping(event) || event.metaKey || event.ctrlKey || event.altKey) return;
      if (Date.now() - first.current < WAIT_MS) {
        first.current = 0;
        const place = places.find((one) => one[3] === event.key);
        if (place) { event.preventDefault(); go(place[0]); return; }
      }
      if (event.key === "g") first.current = Date.now();
      else if (event.key === "/") { event.preventDefault(); find(); }
      else if (event.key === "?") show();
      else if ([...own].some((one) => one(event))) event.preventDefault();
    };
    window.addEventListener("keydown", press);
    window.addEventListener("hal-keys", show);
    return () => { window.removeEventListener("keydown", press); window.removeEventListener("hal-keys", show); };
  }, [places.length]);
  useEffect(() => { if (help && !el.current.open) el.current.showModal(); }, [help]);
  if (!help) return null;
  const rows = [["Search", "/"], ...places.map(([, , title, key]) => [title, `g ${key}`]), ["Next, previous row", "j k"], ["Open the row", "Enter"], ["Select the row", "x"], ["Back", "Esc"], ["These keys", "?"]];
  return html`<dialog ref=${el} aria-labelledby="keys-title" onClose=${() => setHelp(false)}><h2 id="keys-title">Keyboard</h2>
    <div class="keys">${rows.map(([title, keys]) => [html`<span>${title}</span>`, html`<span>${keys.split(" ").map((key) => html`<kbd>${key}</kbd> `)}</span>`])}</div>
    <div class="acts"><button class="quiet" onClick=${() => el.current.close()}>Close</button></div></dialog>`;
}

// j, k, Enter, x over the rows of a table: [cursor, setCursor].
export function useCursor(rows, { open, pick } = {}) {
  const [at, set] = useState(-1);
  useKeys((event) => {
    if (event.key === "j") set((n) => Math.min(rows.length - 1, n + 1));
    else if (event.key === "k") set((n) => Math.max(0, n - 1));
    else if (event.key === "Enter" && at >= 0 && rows[at] && event.target === document.body) open?.(rows[at]);
    else if (event.key === "x" && at >= 0 && rows[at] && pick) pick(rows[at]);
    else if (event.key === "Escape") set(-1);
    else return false;
    return true;
  });
  return [at, set];
}
