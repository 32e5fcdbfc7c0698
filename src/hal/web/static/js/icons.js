// Icons: each state has a shape, not a colour alone.
import { html } from "./h.js";

const PATHS = {
  pending: ["M8 2.5a5.5 5.5 0 1 0 0 11 5.5 5.5 0 0 0 0-11Z", "line dash"],
  allocated: ["M8 2.5a5.5 5.5 0 1 0 0 11 5.5 5.5 0 0 0 0-11Z M8 5v3l2 1.5", "line"],
  running: ["M8 2a6 6 0 1 0 0 12A6 6 0 0 0 8 2Zm-1.5 3.4 4.2 2.6-4.2 2.6Z", "solid"],
  succeeded: ["M3.2 8.4 6.5 11.6 12.8 4.8", "line"],
  failed: ["M4 4l8 8M12 4l-8 8", "line"],
  cancelled: ["M8 2.5a5.5 5.5 0 1 0 0 11 5.5 5.5 0 0 0 0-11Z M4.2 4.2l7.6 7.6", "line"],
  held: ["M5.5 3.5v9M10.5 3.5v9", "line"],
  "timed-out": ["M8 2.5a5.5 5.5 0 1 0 0 11 5.5 5.5 0 0 0 0-11Z M8 4.8V8l-2.4 1.6", "line"],
  up: ["M3.2 8.4 6.5 11.6 12.8 4.8", "line"],
  down: ["M4 4l8 8M12 4l-8 8", "line"],
  warn: ["M8 2 14.5 13.5h-13Z M8 6.2v3.4M8 11.4v.3", "line"],
  overview: ["M2.5 2.5h4.5v6H2.5zM9 2.5h4.5v3.5H9zM9 8h4.5v5.5H9zM2.5 10.5h4.5v3H2.5z", "line"],
  jobs: ["M3 4h10M3 8h10M3 12h6", "line"],
  queues: ["M2.5 4.5h11M4.5 8h7M6.5 11.5h3", "line"],
  nodes: ["M2.5 3h11v4h-11zM2.5 9h11v4h-11zM5 5h.2M5 11h.2", "line"],
  shares: ["M8 2.5v5.5l4.5 3M8 2.5a5.5 5.5 0 1 0 0 11 5.5 5.5 0 0 0 0-11Z", "line"],
  bookings: ["M2.5 4h11v9.5h-11zM2.5 7h11M5.5 2.5v3M10.5 2.5v3", "line"],
  sessions: ["M2.5 3h11v8h-11zM6 13.5h4M5 6l1.5 1.5L5 9", "line"],
  alerts: ["M8 2.5a4 4 0 0 0-4 4v3l-1.2 2h10.4L12 9.5v-3a4 4 0 0 0-4-4ZM6.8 13.5h2.4", "line"],
  silenced: ["M4 6.5a4 4 0 0 1 6.4-3.2M12 7v2.5l1.2 2H6.5M6.8 13.5h2.4M2.5 2.5l11 11", "line"],
  usage: ["M2.5 13.5h11M4.5 11V7M8 11V3M11.5 11V5.5", "line"],
  timeline: ["M2.5 4h5M5 8h6M8 12h5.5", "line"],
  search: ["M7 2.5a4.5 4.5 0 1 0 0 9 4.5 4.5 0 0 0 0-9ZM10.5 10.5 13.5 13.5", "line"],
  theme: ["M8 2.5v11a5.5 5.5 0 0 0 0-11Z M8 2.5a5.5 5.5 0 1 0 0 11", "line"],
  out: ["M6.5 3h-3v10h3M7 8h6.5M11 5.5 13.5 8 11 10.5", "line"],
  menu: ["M2.5 4.5h11M2.5 8h11M2.5 11.5h11", "line"],
  copy: ["M5.5 5.5h8v8h-8zM3 10.5h-.5v-8h8V3", "line"],
  more: ["M3.5 8h.2M8 8h.2M12.3 8h.2", "line"],
  close: ["M4 4l8 8M12 4l-8 8", "line"],
  down2: ["M4 6.5 8 10.5 12 6.5", "line"],
  keys: ["M2 4.5h12v7H2zM4.5 7h.2M7 7h.2M9.5 7h.2M5.5 9.3h5", "line"],
};

export function Icon({ name, label }) {
  const [path, kind] = PATHS[name] || PATHS.more;
  return html`<svg class=${`icon ${kind}`} viewBox="0 0 16 16" role=${label ? "img" : undefined} aria-label=${label} aria-hidden=${label ? undefined : "true"}><path d=${path} /></svg>`;
}

export const hasIcon = (name) => name in PATHS;
