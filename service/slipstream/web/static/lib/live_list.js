// A list, the newest first, that tells of new entries without moving what is read.
import { useEffect, useRef, useState } from "./html.js";
import { useCalm } from "./live.js";

const PAUSE = 2000; // ms between two looks at the first page, however often the list changes
const ROUNDS = 5; // pages that are read in one go while a filter leaves little of each
const ENOUGH = 20; // entries

/** Reads from a cursor on until there is enough to show. */
async function readOn(read, name, cursor, signal) {
  const entries = [];
  let next = cursor;
  for (let round = 0; round < ROUNDS; round += 1) {
    const page = await read(next, signal);
    entries.push(...page[name]);
    next = page.next;
    if (next === null || entries.length >= ENOUGH) break;
  }
  return { entries, next };
}

const START = { entries: null, next: null, first: null, loading: true, error: null };

/**
 * `read(cursor, signal)` gives a page with the list `name` and `next`; `id(entry)` names an entry, and pages go by
 * `at(entry)`, which may grow. The list begins anew when `place` changes. When `mark` does, its first page is read again:
 * entries that are shown are renewed where they stand, or go if they should be in it and are not; others wait for `show`.
 * Nothing is read without a `place`.
 *
 * Returns {data, error, loading, again, more, waiting, show}: `data` is null until the first page is there, `more` reads
 * older ones and is null after the last, `waiting` says how many new ones there are.
 */
export function useLiveList({ name, id, at, read, place, mark }) {
  const [list, setList] = useState(START);
  const [turn, setTurn] = useState(0);
  const calm = useCalm(mark, PAUSE);
  const again = () => setTurn((now) => now + 1);
  const control = useRef(null);
  const seen = useRef(null);

  useEffect(() => {
    if (place === null) return undefined;
    const mine = new AbortController();
    control.current = mine;
    seen.current = null;
    setList(START);
    readOn(read, name, null, mine.signal).then(
      ({ entries, next }) => mine.signal.aborted || setList({ ...START, entries, next, loading: false }),
      (error) => mine.signal.aborted || setList({ ...START, loading: false, error }),
    );
    return () => mine.abort();
  }, [place, turn]);

  useEffect(() => {
    const before = seen.current;
    seen.current = calm;
    // the first mark is that of the list which was just read
    if (place === null || before === null || before === calm) return;
    // a list that is refused would be so again; whoever gave no answer may give one now
    if (list.entries === null && list.error && !(list.error.status < 500)) return again();
    const mine = control.current;
    read(null, mine.signal).then(
      (page) => mine.signal.aborted || setList((now) => renewed(now, { entries: page[name], next: page.next }, id, at)),
      () => {}, // what is shown stays, and the next mark asks again
    );
  }, [calm, place, turn]);

  const more = list.next === null || list.loading ? null : () => {
    const mine = control.current;
    setList((now) => ({ ...now, error: null, loading: true }));
    return readOn(read, name, list.next, mine.signal).then(
      ({ entries, next }) => mine.signal.aborted || setList((now) => {
        const known = new Set(now.entries.map(id));
        return { ...now, entries: [...now.entries, ...entries.filter((each) => !known.has(id(each)))], next, loading: false };
      }),
      (error) => mine.signal.aborted || setList((now) => ({ ...now, error, loading: false })),
    );
  };
  return {
    data: list.entries,
    error: list.error,
    loading: list.loading,
    again,
    more,
    waiting: list.first && !list.loading ? list.first.waiting : 0, // not while older ones are on their way: they would follow a gap
    beyond: Boolean(list.first && list.first.beyond),
    show: () => setList((now) => ({ ...now, entries: now.first.entries, next: now.first.next, first: null })),
  };
}

/** The list after its first page was read again. */
function renewed(now, first, id, at) {
  const end = first.next === null ? -Infinity : first.entries.length ? at(first.entries.at(-1)) : Infinity;
  if (now.entries === null || end === Infinity) return now;
  const newer = new Map(first.entries.map((each) => [id(each), each]));
  const entries = now.entries.map((each) => newer.get(id(each)) || each).filter((each) => newer.has(id(each)) || at(each) <= end);
  if (entries.length === 0) return { ...now, ...first, first: null };
  const shown = new Set(entries.map(id));
  const last = now.next === null ? -Infinity : Math.min(...now.entries.map(at)); // what is older comes with `more`
  const waiting = first.entries.filter((each) => !shown.has(id(each)) && at(each) > last).length;
  return { ...now, entries, first: waiting === 0 ? null : { ...first, waiting, beyond: waiting === first.entries.length && first.next !== null } };
}
