// Where the reader is: `#/tasks/order-1042?run=3`. A link can be sent to somebody else, and the server knows none of it.
import { useEffect, useState } from "./html.js";

/** The parts of the path, decoded, and the query as an object. */
export function readRoute(hash = location.hash) {
  const [way, rest = ""] = hash.replace(/^#\/?/, "").split("?");
  const parts = way.split("/").filter(Boolean).map(decoded);
  return { page: parts[0] || "now", parts: parts.slice(1), query: Object.fromEntries(new URLSearchParams(rest)) };
}

function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part; // a link that was cut
  }
}

/** The address of a place in the page. */
export function link(page, parts = [], query = {}) {
  const given = Object.entries(query).filter(([, value]) => value !== "" && value !== null && value !== undefined);
  const text = given.length ? "?" + new URLSearchParams(given) : "";
  return "#/" + [page, ...parts.map((part) => encodeURIComponent(part))].join("/") + text;
}

/** Goes to a place; `replace` leaves no step for the browser's Back. */
export function go(address, { replace = false } = {}) {
  if (replace) history.replaceState(null, "", address);
  else history.pushState(null, "", address);
  dispatchEvent(new HashChangeEvent("hashchange"));
}

export function useRoute() {
  const [route, setRoute] = useState(readRoute);
  useEffect(() => {
    const changed = () => setRoute(readRoute());
    addEventListener("hashchange", changed);
    return () => removeEventListener("hashchange", changed);
  }, []);
  return route;
}
