// How a group of runs was delivered, and which version was trained on it.
import { get, query } from "../../lib/api.js";
import { html, useEffect, useState } from "../../lib/html.js";
import { useCalm, useMark } from "../../lib/live.js";
import { link } from "../../lib/router.js";
import { can } from "../../lib/session.js";
import { Badge } from "../basics.js";
import { words } from "./links.js";

const PAUSE = 3000; // ms between two looks
const PAGE = 100;
const PAGES = 5; // of versions: an older one is not looked for

const KINDS = { delivered: "good", ready: "note", committing: "note", dropped: "bad", lost: "bad" };
const MEANING = {
  running: "some of its runs have not ended",
  ready: "it waits for the next commit",
  committing: "a commit has taken it; its rewards do not change any more",
  delivered: "the Explorer has it",
  rerun: "the Explorer lost it, and another group takes its place",
  dropped: "it teaches nothing: no run has a reward, or only one of several, or it was lost too often",
  lost: "a client's group that the Explorer lost: it cannot be run again",
};

/** The version that was trained on a commit: undefined while it is looked for, null if it is not known. */
async function trainedOn(commit, signal) {
  let cursor = null;
  for (let page = 0; page < PAGES; page += 1) {
    const { versions, next } = await get("versions" + query({ limit: PAGE, cursor }), { signal });
    // one that was trained on a data set has no commits
    const known = versions.filter(({ trained_on: on }) => on && on.last_commit !== null);
    const found = known.find(({ trained_on: on }) => on.first_commit <= commit && commit <= on.last_commit);
    if (found) return found.version;
    if (next === null || known.some(({ trained_on: on }) => on.last_commit < commit)) return null;
    cursor = next;
  }
  return null;
}

/** Looks again when there are other versions, until it is found. */
function useTrained(commit) {
  const mark = useCalm(useMark("versions"), PAUSE);
  const [found, setFound] = useState({ commit: null, version: undefined });
  const version = found.commit === commit ? found.version : undefined;
  useEffect(() => {
    if (commit === null || commit === undefined || !can("read") || typeof version === "number") return undefined;
    const control = new AbortController();
    const told = (number) => control.signal.aborted || setFound({ commit, version: number });
    trainedOn(commit, control.signal).then(told, () => told(null));
    return () => control.abort();
  }, [commit, mark]);
  return version;
}

export function Delivery({ group }) {
  const version = useTrained(group.state === "delivered" ? group.commit : null);
  return html`<p class="delivery"><${Badge} kind=${KINDS[group.state]} title=${MEANING[group.state]}>${words(group.state)}<//>
    ${" "}${group.commit !== null ? html`<span>in commit ${group.commit}</span>` : html`<span class="muted">${MEANING[group.state]}</span>`}
    ${version !== null && version !== undefined && html`, trained into <a href=${link("versions", [version])}>version ${version}</a>`}
    ${version === null && html`<span class="muted">; which version was trained on it is not known</span>`}
    <span class="muted small wrap"> group ${group.group_id}</span></p>`;
}
