// A list that comes page by page, the newest first.
import { useEffect, useRef, useState } from "./html.js";
import { useLoad } from "./load.js";

/**
 * `read(cursor, signal)` gives a page with the list `name` and `next`. When one of `needs` changes the list begins anew;
 * when `mark` does, only its first page is read again, and a reader who has gone on to older ones is not moved.
 * Returns what `useLoad` does, with `data` the entries, and `more`, which reads the next page; null after the last.
 */
export function usePages(name, read, needs, mark) {
  const [older, setOlder] = useState({ entries: [], next: undefined });
  const [error, setError] = useState(null);
  const turn = useRef(0);
  const gone = older.next !== undefined;
  const first = useLoad((signal) => read(null, signal), [...needs, gone ? null : mark]);
  useEffect(() => {
    turn.current += 1; // an older page that is on its way belongs to another list
    setOlder({ entries: [], next: undefined });
    setError(null);
  }, needs);
  const next = gone ? older.next : first.data && first.data.next;
  const more = next === null || next === undefined ? null : () => {
    const mine = turn.current;
    setError(null);
    return read(next).then(
      (page) => mine === turn.current
        && setOlder((before) => ({ entries: [...before.entries, ...page[name]], next: page.next })),
      (failure) => mine === turn.current && setError(failure),
    );
  };
  const data = first.data && [...first.data[name], ...older.entries];
  return { ...first, data, error: error || first.error, more };
}
