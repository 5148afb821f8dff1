// Numbers by name: sources, models, labels, and why rows were left out.
import { count, percent } from "../../lib/format.js";
import { html, useState } from "../../lib/html.js";
import { link } from "../../lib/router.js";
import { Bar } from "../basics.js";
import { plain } from "../said.js";

const SHOWN = 10;

/** "format_cannot_say:empty_answer" as words. */
export const reasonWords = (reason) => plain(reason.replaceAll("_", " ").replace(":", ": "));

export const sum = (counts) => Object.values(counts).reduce((total, number) => total + number, 0);

/** The largest first. */
export const largest = (counts) => Object.entries(counts).sort((a, b) => b[1] - a[1]);

/** Versions as links, the newest of them if there are many. */
export function Versions({ numbers }) {
  if (numbers.length === 0) return html`<span class="muted">none</span>`;
  const more = numbers.length - SHOWN;
  return html`${more > 0 && html`<span class="muted small">${more} more, </span>`}${numbers.slice(-SHOWN).map((number) => html`<a key=${number} href=${link("versions", [number])}>${number}</a> `)}`;
}

/** A table with a bar for each name. `of`: what the whole bar is; `things`: what is counted; `name` draws a name. */
export function Counts({ counts, of, first, things = "Rows", name = plain, kind = "" }) {
  const [all, setAll] = useState(false);
  const rows = largest(counts);
  const whole = of || 1;
  return html`<div class="scroll"><table>
    <thead><tr><th>${first}</th><th class="number">${things}</th><th>Share</th></tr></thead>
    <tbody>${rows.slice(0, all ? rows.length : SHOWN).map(([key, number]) => html`<tr key=${key}>
      <th scope="row" class="wrap">${name(key)}</th><td class="number">${count(number)}</td>
      <td class="nowrap"><${Bar} value=${number / whole} kind=${kind} label=${percent(number / whole)} /> <span class="small muted">${percent(number / whole)}</span></td></tr>`)}</tbody></table></div>
    ${rows.length > SHOWN && html`<button class="plain" aria-expanded=${all} onClick=${() => setAll(!all)}>${all ? "Fewer" : `All ${rows.length}`}</button>`}`;
}
