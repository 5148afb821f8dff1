// What is read from the API, with the states that a reader sees: it is on its way, it failed, it is there.
import { useEffect, useState } from "./html.js";

/**
 * Reads again whenever one of `needs` changes. Returns {data, error, loading, again}; `data` stays what it was while a
 * newer one is on its way, so that a page does not flicker.
 */
export function useLoad(read, needs) {
  const [state, setState] = useState({ data: null, error: null, loading: true });
  const [turn, setTurn] = useState(0);
  useEffect(() => {
    const control = new AbortController();
    setState((before) => ({ ...before, loading: true }));
    read(control.signal).then(
      (data) => control.signal.aborted || setState({ data, error: null, loading: false }),
      (error) => control.signal.aborted || setState((before) => ({ ...before, error, loading: false })),
    );
    return () => control.abort();
  }, [...needs, turn]);
  return { ...state, again: () => setTurn((before) => before + 1) };
}

/** As useLoad, and read again every so many milliseconds while the page is looked at, until `over` of the data is true. */
export function useWatched(read, needs, milliseconds, over) {
  const [turn, setTurn] = useState(0);
  const [ended, setEnded] = useState(false);
  useEffect(() => {
    if (ended) return undefined;
    const timer = setInterval(() => document.hidden || setTurn((before) => before + 1), milliseconds);
    return () => clearInterval(timer);
  }, [milliseconds, ended]);
  return useLoad((signal) => read(signal).then((found) => {
    setEnded(over(found));
    return found;
  }), [...needs, turn]);
}
