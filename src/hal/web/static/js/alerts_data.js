// How many alerts fire, where there is a collector.
import { collector, getSession, useData } from "./api.js";

export function useAlerts() {
  const path = getSession()?.collector ? collector("alerts") : null;
  const { data, error } = useData(path, 10000);
  const all = data?.alerts || [];
  return { all, error, data, firing: all.filter((one) => one.state === "firing" && !one.silenced).length };
}
