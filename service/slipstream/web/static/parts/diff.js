// What differs between two texts, word by word. The library is loaded when the first one is shown.
import { html, useEffect, useState } from "../lib/html.js";
import { contentText, plain, pretty } from "./said.js";

const LONGEST = 30_000; // characters of one text
const MOST_EDITS = 4_000;
const TIME = 150; // ms; a comparison must not hold the page up

let library = null;

/** A message as one text: what was said, then each tool that is called. */
export function answerText(message) {
  if (!message) return "";
  const calls = (message.tool_calls || []).map((call) => {
    const tool = call.function || call.custom || {};
    return `→ ${tool.name ?? "a tool"} ${pretty(tool.arguments ?? tool.input ?? "")}`;
  });
  return [contentText(message.content) || message.refusal || "", ...calls].filter(Boolean).join("\n");
}

/** The parts of two texts: [{value, added, removed}]; null where they are too long or too different to be compared. */
function compared(diffWordsWithSpace, before, after) {
  if (before.length > LONGEST || after.length > LONGEST) return null;
  return diffWordsWithSpace(before, after, { maxEditLength: MOST_EDITS, timeout: TIME }) || null;
}

/** The parts of `before` and `after`: undefined while the library loads, null where there is no comparison. */
export function useDiff(before, after) {
  const [parts, setParts] = useState(undefined);
  useEffect(() => {
    let ended = false;
    library ||= import("../vendor/diff/diff/word.js");
    library.then(
      (module) => ended || setParts(compared(module.diffWordsWithSpace, before, after)),
      () => {
        library = null;
        if (!ended) setParts(null);
      },
    );
    return () => {
      ended = true;
    };
  }, [before, after]);
  return parts;
}

/** `after`, with what it has beside `before` marked, and what it lacks struck through. */
export function Diff({ before, after, children }) {
  const parts = useDiff(before, after);
  if (parts === undefined) return children;
  if (parts === null) return html`<p class="muted small">Too long or too different to be compared word by word.</p>${children}`;
  if (before === after) return html`<p class="muted small">The same words.</p>${children}`;
  return html`<div class="text">${parts.map((part, index) => (
    part.added ? html`<ins key=${index} class="added">${plain(part.value)}</ins>`
      : part.removed ? html`<del key=${index} class="removed">${plain(part.value)}</del>`
        : html`<span key=${index}>${plain(part.value)}</span>`))}</div>`;
}
