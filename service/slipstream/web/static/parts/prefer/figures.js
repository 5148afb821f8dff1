// What judgements have come to: for keys that may read figures.
import { count, decimal, percent } from "../../lib/format.js";
import { html } from "../../lib/html.js";
import { link } from "../../lib/router.js";
import { Figure } from "../basics.js";
import { plain } from "../said.js";

const interval = (of, format) => (of ? `${format(of[0])} to ${format(of[1])}` : "–");

export function Figures({ figures }) {
  const { pairs, judgements, annotators, position, agreement, ranking, reference } = figures;
  return html`<details class="panel"><summary>Figures of all judgements</summary>
    <dl class="figures">
      <${Figure} name="Pairs judged" value=${count(pairs.judged)} below=${`of ${count(pairs.made)} made; ${count(pairs.identical)} more had two equal answers`} />
      <${Figure} name="Agreement" value=${decimal(agreement.alpha, 2)} below=${agreement.alpha === null ? "not defined: it needs pairs that two annotators judged" : `Krippendorff's alpha over ${count(agreement.pairs)} pairs; 1: always, 0: by chance`} />
      <${Figure} name="First answer chosen" value=${percent(position.first_chosen)} below=${position.decided ? `${interval(position.interval, percent)}, of ${count(position.decided)}; the order is drawn, so about 50 % is as it should be` : "nothing decided yet"} />
      <${Figure} name="Ties" value=${count(judgements.tie)} below=${`${count(judgements.both_bad)} both bad, ${count(judgements.skip)} skipped`} />
    </dl>
    ${ranking.length > 0 && html`<h3>Preferred answers, the strongest first</h3><div class="scroll"><table>
      <thead><tr><th>Answered by</th><th class="number">Judgements</th><th class="number">Strength</th><th class="number">95 % interval</th><th class="number">Preferred to ${plain(reference || "the reference")}</th></tr></thead>
      <tbody>${ranking.map((row) => html`<tr key=${row.answered_by}>
        <td>${row.answered_by.startsWith("version:") ? html`<a href=${link("versions", [row.answered_by.slice(8)])}>version ${row.answered_by.slice(8)}</a>` : row.answered_by}</td>
        <td class="number">${count(row.judgements)}</td><td class="number">${decimal(row.strength)}</td>
        <td class="number">${interval(row.interval, decimal)}</td><td class="number">${percent(row.wins_against_reference)}</td></tr>`)}</tbody></table></div>`}
    ${annotators.length > 0 && html`<h3>Annotators</h3><div class="scroll"><table>
      <thead><tr><th>Name</th><th class="number">Judgements</th><th class="number">First answer chosen</th></tr></thead>
      <tbody>${annotators.map((one) => html`<tr key=${one.annotator}><td>${plain(one.annotator)}</td><td class="number">${count(one.judgements)}</td><td class="number">${percent(one.first_chosen)}</td></tr>`)}</tbody></table></div>`}
  </details>`;
}
