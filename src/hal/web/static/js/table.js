// Tables of any length: only the rows that are seen are in the page.
import { html, useEffect, useLayoutEffect, useRef, useState } from "./h.js";

const SPARE = 8;

// columns: [{key, title, cell(row), sort?(row), class?}]
export function Table({ columns, rows, rowKey, to, label, height = 36, selected, onSelect, sort, onSort, empty, onEnd, cursor, fixed = false }) {
  const box = useRef(null);
  const [view, setView] = useState({ from: 0, to: 60 });
  const measure = () => {
    const el = box.current;
    if (!el) return;
    const own = fixed;
    const top = own ? el.scrollTop : Math.max(0, -el.getBoundingClientRect().top);
    const seen = own ? el.clientHeight : window.innerHeight;
    const from = Math.max(0, Math.floor(top / height) - SPARE);
    const until = Math.ceil((top + seen) / height) + SPARE;
    setView((before) => (before.from === from && before.to === until ? before : { from, to: until }));
    if (onEnd && until >= rows.length) onEnd();
  };
  useLayoutEffect(measure, [rows.length, height]);
  useEffect(() => {
    const on = fixed ? box.current : window;
    if (!on) return undefined;
    on.addEventListener("scroll", measure, { passive: true });
    window.addEventListener("resize", measure);
    return () => { on.removeEventListener("scroll", measure); window.removeEventListener("resize", measure); };
  });
  useEffect(() => {
    if (cursor == null || cursor < 0 || !box.current) return;
    const el = box.current.querySelector(`[data-at="${cursor}"]`);
    if (el) el.scrollIntoView({ block: "nearest" });
  }, [cursor]);
  const from = Math.min(view.from, Math.max(0, rows.length - 1)), until = Math.min(view.to, rows.length);
  const head = (column) => {
    const by = sort && sort.key === column.key;
    return html`<th key=${column.key} scope="col" class=${column.class} aria-sort=${by ? (sort.down ? "descending" : "ascending") : undefined}>
      ${column.sort && onSort ? html`<button class="sort" onClick=${() => onSort({ key: column.key, down: by ? !sort.down : Boolean(column.down) })}>${column.title}<span aria-hidden="true">${by ? (sort.down ? " ↓" : " ↑") : ""}</span></button>` : column.title}</th>`;
  };
  if (!rows.length && empty) return empty;
  return html`<div class=${`table ${fixed ? "fixed" : ""}`} ref=${box} tabindex=${fixed ? 0 : undefined}>
    <table aria-label=${label} aria-rowcount=${rows.length + 1}>
      <thead><tr>${onSelect ? html`<th class="pick"><span class="hide">Select</span></th>` : null}${columns.map(head)}</tr></thead>
      <tbody>
        ${from > 0 ? html`<tr class="space" aria-hidden="true" style=${{ height: `${from * height}px` }}><td></td></tr>` : null}
        ${rows.slice(from, until).map((row, n) => {
          const key = rowKey(row), at = from + n;
          return html`<tr key=${key} data-at=${at} aria-rowindex=${at + 2} class=${`${to ? "link" : ""} ${at === cursor ? "cursor" : ""}`} onClick=${to ? (event) => { if (!event.target.closest("a,button,input,label")) event.currentTarget.querySelector("a")?.click(); } : undefined}>
            ${onSelect ? html`<td class="pick"><label><span class="hide">Select ${key}</span><input type="checkbox" checked=${selected.has(key)} onClick=${(event) => onSelect(key, event.shiftKey)} /></label></td>` : null}
            ${columns.map((column) => html`<td key=${column.key} class=${column.class}>${column.cell(row)}</td>`)}</tr>`;
        })}
        ${until < rows.length ? html`<tr class="space" aria-hidden="true" style=${{ height: `${(rows.length - until) * height}px` }}><td></td></tr>` : null}
      </tbody>
    </table></div>`;
}

export function sorted(rows, columns, sort) {
  const column = sort && columns.find((one) => one.key === sort.key);
  if (!column || !column.sort) return rows;
  const by = sort.down ? -1 : 1;
  return [...rows].sort((a, b) => {
    const x = column.sort(a), y = column.sort(b);
    if (x == null || y == null) return x == null && y == null ? 0 : x == null ? 1 : -1;
    return by * (typeof x === "string" ? x.localeCompare(y, undefined, { numeric: true }) : x - y);
  });
}
