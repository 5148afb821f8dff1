// What the sidecar tells by itself: one stream of server-sent events a tab, closed while the tab is hidden.
import { useEffect, useRef, useState } from "./html.js";

const EVENTS = ["status", "serving", "changed"];
const RETRY = 5000; // ms; a stream that the server refused is not opened again by the browser

// `unavailable`: why the sidecar can read nothing, in words; null while it can
const state = { connected: false, status: null, serving: null, changed: {}, unavailable: null };
const listeners = new Set();
let source = null;
let retry = null;
let wanted = false;
let refused = () => {};

function tell() {
  for (const listener of listeners) listener();
}

function open() {
  clearTimeout(retry);
  if (source || !wanted || document.hidden) return;
  source = new EventSource("events");
  source.onopen = () => {
    state.connected = true;
    tell();
  };
  source.onerror = () => {
    state.connected = false;
    if (source.readyState === EventSource.CLOSED) {
      close();
      retry = setTimeout(open, RETRY);
      refused();
    }
    tell();
  };
  for (const name of EVENTS) {
    source.addEventListener(name, (event) => {
      state[name] = JSON.parse(event.data);
      if (name === "status") state.unavailable = null;
      tell();
    });
  }
  source.addEventListener("unavailable", (event) => {
    state.unavailable = JSON.parse(event.data).error.message;
    tell();
  });
}

function close() {
  clearTimeout(retry);
  if (source) source.close();
  source = null;
  state.connected = false;
}

document.addEventListener("visibilitychange", () => {
  if (document.hidden) close();
  else open();
  tell();
});

/** Opens the stream. `onRefused` is called when it gets another answer than events: the browser does not say which. */
export function start(onRefused) {
  wanted = true;
  refused = onRefused;
  open();
}

/** Closes the stream, and forgets what it told: nobody is signed in. */
export function stop() {
  wanted = false;
  close();
  Object.assign(state, { status: null, serving: null, changed: {}, unavailable: null });
  tell();
}

/** The newest state that was told, or what `pick` takes of it. */
export function useLive(pick = (all) => all) {
  const [value, setValue] = useState(() => pick(state));
  useEffect(() => {
    const changed = () => setValue(() => pick({ ...state }));
    listeners.add(changed);
    changed();
    return () => listeners.delete(changed);
  }, []);
  return value;
}

/** A mark that changes when a list does: "tasks", "versions", "rollouts", "experiments", "preferences", "evaluations", "datasets", "audit". */
export function useMark(name) {
  return useLive((all) => JSON.stringify(all.changed[name] ?? null));
}

/** `value` as it was at most `pause` ms ago. */
export function useCalm(value, pause) {
  const [calm, setCalm] = useState(value);
  const last = useRef(0);
  useEffect(() => {
    const timer = setTimeout(() => {
      last.current = Date.now();
      setCalm(value);
    }, Math.max(0, last.current + pause - Date.now()));
    return () => clearTimeout(timer);
  }, [value]);
  return calm;
}
