// Questions before something is changed, and messages of what became of it.
import { html, useEffect, useRef, useState } from "./h.js";
import { Icon } from "./icons.js";

let showDialog = () => {};
let showToast = () => {};

// Ask before something is changed; answers the reason (text), what was put into `fields` by name, or true; null for no.
// fields: [{name, label, value?, options?: [[value, title]], placeholder?}]
export function confirm({ title, text, verb, tone = "danger", reason = false, fields = null }) {
  return new Promise((resolve) => showDialog({ title, text, verb, tone, reason, fields, resolve }));
}

export function toast(text, tone = "") {
  showToast({ text, tone, id: Date.now() + Math.random() });
}

export function Overlays() {
  const [dialog, setDialog] = useState(null);
  const [toasts, setToasts] = useState([]);
  const el = useRef(null), text = useRef(null);
  showDialog = setDialog;
  showToast = (one) => {
    setToasts((all) => [...all.slice(-3), one]);
    setTimeout(() => setToasts((all) => all.filter((other) => other.id !== one.id)), 6000);
  };
  useEffect(() => { if (dialog && el.current && !el.current.open) el.current.showModal(); }, [dialog]);
  const given = () => {
    if (dialog.reason) return text.current.value || "";
    return dialog.fields ? Object.fromEntries(dialog.fields.map((one) => [one.name, el.current.querySelector(`[name="${one.name}"]`).value])) : true;
  };
  const done = (value) => {
    if (el.current?.open) el.current.close();
    dialog?.resolve(value);
    setDialog(null);
  };
  return html`
    ${dialog ? html`<dialog ref=${el} class="ask" aria-labelledby="ask-title" onCancel=${() => done(null)}>
      <h2 id="ask-title">${dialog.title}</h2><p>${dialog.text}</p>
      ${dialog.reason ? html`<label class="field">Reason<input ref=${text} type="text" maxlength="200" placeholder="shown to everybody" /></label>` : null}
      ${(dialog.fields || []).map((one) => html`<label class="field" key=${one.name}>${one.label}${one.options
        ? html`<select name=${one.name}>${one.options.map(([value, title]) => html`<option value=${value} selected=${value === one.value}>${title}</option>`)}</select>`
        : html`<input name=${one.name} type="text" maxlength="200" value=${one.value || ""} placeholder=${one.placeholder || ""} />`}</label>`)}
      <div class="acts"><button class="quiet" onClick=${() => done(null)}>Back</button><button class=${dialog.tone} autofocus onClick=${() => done(given())}>${dialog.verb}</button></div>
    </dialog>` : null}
    <div class="toasts" role="status" aria-live="polite">${toasts.map((one) => html`<div key=${one.id} class=${`toast ${one.tone}`}>${one.text}</div>`)}</div>`;
}

export function Copy({ text, label = "Copy" }) {
  const [done, set] = useState(false);
  const click = async () => {
    try { await navigator.clipboard.writeText(text); set(true); setTimeout(() => set(false), 1500); } catch { toast("The browser does not let this page copy."); }
  };
  return html`<button class="quiet small" onClick=${click}><${Icon} name="copy" />${done ? "Copied" : label}</button>`;
}
