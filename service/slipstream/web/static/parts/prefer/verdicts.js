// Pairs that an annotator is shown, and her verdicts: the last one is held back for some seconds, so that it can be
// undone, and is sent at the latest when the page goes away.
import { ApiError, get, post, query } from "../../lib/api.js";
import { useEffect, useRef, useState } from "../../lib/html.js";
import { beforeSignOut } from "../../lib/session.js";
import { notice } from "../basics.js";
import { add } from "./today.js";

export const HELD = 8000; // ms

const unsent = []; // verdicts that did not reach the sidecar; they outlive the page of pairs, and wait for the next try

/** Whether the sidecar has refused a verdict itself, so that trying again changes nothing. */
const refused = (error) => error instanceof ApiError && error.status >= 400 && error.status < 500 && ![401, 408, 429].includes(error.status);

async function deliver(verdict, keepalive = false) {
  const { pair, choice, reason, annotator } = verdict;
  const body = { pair_id: pair.pair_id, choice, annotator, ...(reason ? { reason } : {}) };
  try {
    await post("preferences", body, { keepalive });
    if (!verdict.counted) add(annotator); // one that was sent again as the page went away
    verdict.counted = true;
  } catch (error) {
    if (!refused(error)) throw error;
    notice(`Not counted. ${error.message}`, "bad");
  }
}

let delivering = null;

/** Sends what waits, one after the other; verdicts that another key gave are dropped. Throws as the first fails. */
function deliverAll(key) {
  delivering ||= eachOf(key).finally(() => {
    delivering = null;
  });
  return delivering;
}

async function eachOf(key) {
  while (unsent.length > 0) {
    const [verdict] = unsent;
    if (verdict.key === key) await deliver(verdict);
    if (unsent[0] === verdict) unsent.shift();
  }
}

const START = { pair: null, looking: true, error: null, held: null, reason: "" };

/**
 * `key`: the name of the key that is signed in. Returns {pair, looking, error, held, reason, judge(choice, reason), undo(),
 * again({quiet})}: `pair` is null where there is none, `held` the verdict that can be undone, `reason` what was written
 * with one that was undone.
 */
export function useVerdicts(annotator, key) {
  const [state, setState] = useState(START);
  const held = useRef(null); // {pair, choice, reason, annotator, key, timer}
  const turn = useRef(0); // rises with each change of what is shown: answers of an earlier one are late

  const show = (change) => setState((now) => ({ ...now, ...change }));

  /** Takes the held verdict, so that it is sent once and can be undone no more. */
  const take = () => {
    const verdict = held.current;
    if (verdict) {
      clearTimeout(verdict.timer);
      held.current = null;
      unsent.push(verdict);
    }
    return verdict;
  };

  const next = async ({ quiet = false } = {}) => {
    const mine = (turn.current += 1);
    if (!quiet) show({ pair: null, looking: true, error: null, reason: "" });
    try {
      await deliverAll(key);
      const after = held.current && held.current.pair.pair_id;
      const { pair } = await get("preferences/next" + query({ annotator, after }));
      if (mine === turn.current) show({ pair, looking: false, error: null });
    } catch (error) {
      if (mine === turn.current) show({ looking: false, error });
    }
  };

  const settle = () => {
    if (!take()) return;
    show({ held: null });
    deliverAll(key).catch((error) => show({ error }));
  };

  const judge = (choice, reason) => {
    if (!state.pair || state.looking) return;
    take();
    const verdict = { pair: state.pair, choice, reason, annotator, key };
    verdict.timer = setTimeout(settle, HELD);
    held.current = verdict;
    show({ held: verdict });
    next();
  };

  const undo = () => {
    const verdict = held.current;
    if (!verdict) return;
    clearTimeout(verdict.timer);
    held.current = null;
    turn.current += 1;
    show({ pair: verdict.pair, looking: false, error: null, held: null, reason: verdict.reason });
  };

  useEffect(() => {
    next();
    const leave = () => {
      if (take()) show({ held: null });
      for (const verdict of unsent.splice(0)) deliver(verdict, true).catch(() => unsent.push(verdict));
    };
    const hidden = () => document.hidden && leave(); // on phones the last thing that a page is told
    addEventListener("pagehide", leave);
    document.addEventListener("visibilitychange", hidden);
    const stay = beforeSignOut(() => {
      take();
      return deliverAll(key);
    });
    return () => {
      removeEventListener("pagehide", leave);
      document.removeEventListener("visibilitychange", hidden);
      stay();
      turn.current += 1;
      leave();
    };
  }, [annotator]);

  return { ...state, judge, undo, again: next };
}
