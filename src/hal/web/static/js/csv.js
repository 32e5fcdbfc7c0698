// Rows of usage as `hal usage --csv` writes them, saved by the browser.
const STATES = ["succeeded", "failed", "timed-out", "cancelled", "preempted", "refused", "lost", "out-of-memory"];

// Text that no spreadsheet takes for a formula.
export function harmless(text) {
  const plain = String(text ?? "").replace(/[\x00-\x1f\x7f]/g, " ");
  return /^[=+\-@]/.test(plain) ? `'${plain}` : plain;
}

function cell(value) {
  const text = value == null ? "" : typeof value === "number" ? String(value) : harmless(value);
  return /[",\n]/.test(text) ? `"${text.replace(/"/g, '""')}"` : text;
}

export function csvOf(rows, by, currency) {
  const fields = Object.keys(rows[0] || {}).filter((name) => !["key", "states", "waits"].includes(name));
  const lines = [[by, ...fields, ...STATES, "currency"], ...rows.map((row) => [harmless(row.key), ...fields.map((name) => row[name]), ...STATES.map((state) => row.states[state] || 0), currency])];
  return `${lines.map((line) => line.map(cell).join(",")).join("\n")}\n`;
}

export function download(name, text) {
  const url = URL.createObjectURL(new Blob([text], { type: "text/csv;charset=utf-8" })), link = document.createElement("a");
  link.href = url;
  link.download = name;
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
}
