// What is said of alerts: which of them people are told, how bad each is, what it is called. Pure.
export const CHANGED = "hal-alerts"; // the event of this window after a change of silences
const RANK = { critical: 0, warning: 1, info: 2 };

// Firing, and neither silenced nor moot because another one fires.
export const isTold = (alert) => alert.state === "firing" && alert.silence == null && !alert.muted_by;

// The worst first, then the newest.
export function byWeight(alerts) {
  return [...alerts].sort((a, b) => (RANK[a.severity] ?? 3) - (RANK[b.severity] ?? 3) || b.since_ms - a.since_ms);
}

// "NodesDown" -> "Nodes down".
export function titleOf(rule) {
  const words = String(rule).replace(/([a-z])([A-Z])/g, "$1 $2").toLowerCase();
  return words.charAt(0).toUpperCase() + words.slice(1);
}

export const toneOf = (severity) => ({ critical: "bad", warning: "wait" })[severity] || "off";

// What a silence must say so that it fits this alert and no other.
export function matchersOf(alert) {
  return [`rule=${alert.rule}`, ...Object.entries(alert.labels).map(([name, value]) => `${name}=${value}`)];
}
