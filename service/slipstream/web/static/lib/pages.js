// A list that comes page by page, the newest first.
import { useEffect, useRef, useState } from "./html.js";
import { useLoad } from "./load.js";

/**
 * `read(cursor, signal)` gives a page with the list `name` and `next`. When one of `needs` changes the list begins anew;
 * when `mark` does, its first page is read again, until the reader has gone on to older ones: then what is shown stays
 * where it is, and older ones follow it without a gap. Returns what `useLoad` does, with `data` the entries, and `more`,
 * which reads the next page; null after the last.
 */
export function usePages(name, read, needs, mark) {
  const [older, setOlder] = useState({ entries: [], next: undefined });
  const [error, setError] = useState(null);
  const turn = useRef(0);
  const marked = useRef(mark);
  const gone = older.next !== undefined;
  if (!gone) marked.current = mark;
  const first = useLoad((signal) => read(null, signal), [...needs, marked.current]);
  useEffect(() => {
    turn.current += 1; // an older page that is on its way belongs to another list
    setOlder({ entries: [], next: undefined });
    setError(null);
  }, needs);
  const data = gone ? older.entries : first.data && first.data[name];
  const next = gone ? older.next : first.data && first.data.next;
  const more = next === null || next === undefined ? null : () => {
    const mine = turn.current;
    setError(null);
    setOlder({ entries: data, next }); // the page follows what is shown now, whatever comes on top of that meanwhile
    return read(next).then(
      (page) => mine === turn.current
        && setOlder((before) => (before.next === next ? { entries: [...before.entries, ...page[name]], next: page.next } : before)),
      (failure) => mine === turn.current && setError(failure),
    );
  };
  return { ...first, data, error: error || first.error, more, again: error && more ? more : first.again };
}
