// The control API. All addresses are relative, so that the page works below any path of a proxy.

/** An answer that is no success: `status`, and the `code`, `param` and message of the API's errors. */
export class ApiError extends Error {
  constructor(status, error) {
    super(error.message || `the sidecar answered ${status}`);
    this.status = status;
    this.code = error.code || "";
    this.param = error.param || null;
  }
}

const listeners = new Set();

/** Calls `listener` when a request was refused because nobody is signed in any more. Returns what ends that. */
export function onSignedOut(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

/** The path of a route: its parts are encoded, so that a name with a slash stays one part. */
export function path(...parts) {
  return parts.map((part) => encodeURIComponent(part)).join("/");
}

/** A query, without the parameters that have no value. */
export function query(values) {
  const given = Object.entries(values).filter(([, value]) => value !== "" && value !== null && value !== undefined);
  return given.length ? "?" + new URLSearchParams(given) : "";
}

/** Sends a request. Returns the JSON of its answer. Throws an ApiError; and another Error if nothing answers. */
export async function send(method, address, body, { headers = {}, signal, keepalive = false } = {}) {
  const options = { method, headers: { accept: "application/json", ...headers }, signal, keepalive };
  if (body !== undefined) {
    options.headers["content-type"] = "application/json";
    options.body = JSON.stringify(body);
  }
  let answer;
  try {
    answer = await fetch(address, options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Error("The sidecar does not answer" + (method === "GET" ? ". It may be restarting."
      : ", so it is not known whether this was done. Look, and do it again if it was not."));
  }
  const text = await answer.text();
  let json = null;
  try {
    json = text ? JSON.parse(text) : null;
  } catch {
    // an answer of somebody between us and the sidecar
  }
  if (answer.ok) return json;
  const error = new ApiError(answer.status, (json && json.error) || {});
  if (answer.status === 401) for (const listener of listeners) listener(error);
  throw error;
}

export const get = (address, options) => send("GET", address, undefined, options);
export const post = (address, body, options) => send("POST", address, body, options);
