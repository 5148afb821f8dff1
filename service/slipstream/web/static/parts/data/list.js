// The table of data sets.
import { count } from "../../lib/format.js";
import { html } from "../../lib/html.js";
import { link } from "../../lib/router.js";
import { Badge, Bar, Time } from "../basics.js";
import { plain } from "../said.js";
import { Versions, largest, reasonWords, sum } from "./counts.js";

const REASONS = 3; // those that a row of the table has room for

/** Unix seconds of the time of a manifest. */
export const moment = (text) => Date.parse(text) / 1000;

export function DatasetTable({ datasets }) {
  return html`<div class="scroll"><table>
    <thead><tr><th>Data set</th><th>Kind</th><th>Format</th><th class="number">To train on</th><th class="number">Held out</th><th>Sources</th><th>Left out</th>
      <th>Versions trained on it</th><th>Made</th></tr></thead>
    <tbody>${datasets.map((one) => html`<tr key=${one.name}>
      <th scope="row"><a href=${link("data", [one.name])}>${plain(one.name)}</a></th>
      <td><${Badge} kind="note">${one.kind}<//></td><td>${one.format}</td>
      <td class="number">${count(one.counts.rows.train ?? 0)}</td><td class="number">${count(one.counts.rows.held_out ?? 0)}</td>
      <td>${largest(one.counts.sources).map(([source, rows]) => html`<div key=${source} class="nowrap">${plain(source.replaceAll("_", " "))} <span class="muted">${count(rows)}</span></div>`)}</td>
      <td><${LeftOut} dropped=${one.dropped} rows=${sum(one.counts.rows)} /></td>
      <td><${Versions} numbers=${one.versions} /></td>
      <td class="nowrap"><${Time} at=${moment(one.made_at)} /></td>
    </tr>`)}</tbody></table></div>`;
}

/** The reasons for which most rows were left out, each as a part of all that were looked at. */
function LeftOut({ dropped, rows }) {
  const reasons = largest(dropped);
  if (reasons.length === 0) return html`<span class="muted">nothing</span>`;
  const all = rows + sum(dropped);
  return html`${reasons.slice(0, REASONS).map(([reason, number]) => html`<div key=${reason} class="nowrap left-out">
      <${Bar} value=${number / all} kind="muted" label=${`${count(number)} of ${count(all)}`} /> ${count(number)} <span class="small muted">${reasonWords(reason)}</span></div>`)}
    ${reasons.length > REASONS && html`<div class="small muted">and ${reasons.length - REASONS} more</div>`}`;
}
