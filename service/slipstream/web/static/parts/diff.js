// What differs between two texts, word by word. The library is loaded when the first one is shown.
import { html, useEffect, useState } from "../lib/html.js";
import { contentText, plain, toolCalls } from "./said.js";

const LONGEST = 30_000; // characters of one text
const MOST_EDITS = 4_000;
const TIME = 150; // ms; a comparison must not hold the page up
const LEAST_COMMON = 0.2; // of the longer text; with less in common, marks say nothing and are hard to read

let library = null;

/** A message as one text: what was said, then each tool that is called. */
export function answerText(message) {
  if (!message) return "";
  const calls = toolCalls(message).map(({ name, input }) => `→ ${name} ${input}`);
  return [contentText(message.content) || message.refusal || "", ...calls].filter(Boolean).join("\n");
}

/** The parts of two texts: [{value, added, removed}]; or why there are none, in words. */
function compared(diffWordsWithSpace, before, after) {
  if (before === after) return "The same words.";
  if (before.length > LONGEST || after.length > LONGEST) return "Too long to be compared word by word.";
  const parts = diffWordsWithSpace(before, after, { maxEditLength: MOST_EDITS, timeout: TIME }) || [];
  const common = parts.filter((part) => !part.added && !part.removed).reduce((sum, part) => sum + part.value.trim().length, 0);
  return common >= LEAST_COMMON * Math.max(before.length, after.length) ? parts : "Other words nearly throughout.";
}

/** The parts of `before` and `after`, or why there are none in words; undefined while the library loads. */
export function useDiff(before, after) {
  const [parts, setParts] = useState(undefined);
  useEffect(() => {
    let ended = false;
    library ||= import("../vendor/diff/diff/word.js");
    library.then(
      (module) => ended || setParts(compared(module.diffWordsWithSpace, before, after)),
      () => {
        library = null;
        if (!ended) setParts("What compares them could not be loaded.");
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
  if (typeof parts === "string") return html`<p class="muted small">${parts}</p>${children}`;
  return html`<div class="text">${parts.map((part, index) => (
    part.added ? html`<ins key=${index} class="added">${plain(part.value)}</ins>`
      : part.removed ? html`<del key=${index} class="removed">${plain(part.value)}</del>`
        : html`<span key=${index}>${plain(part.value)}</span>`))}</div>`;
}
