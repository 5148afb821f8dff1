// The curve of learning in numbers: for those who want them exactly, and for readers of screens.
import { count, decimal, percent, seconds, withError } from "../../lib/format.js";
import { html } from "../../lib/html.js";
import { link } from "../../lib/router.js";
import { plain } from "../said.js";

export function LearningTable({ versions }) {
  return html`<div class="scroll"><table>
    <thead><tr><th>Version</th><th class="number">Training</th><th class="number">Runs</th><th>Held-out</th><th>Live</th>
      <th class="number">Spread</th><th class="number">No difference</th><th class="number">Tokens</th><th class="number">Answer</th></tr></thead>
    <tbody>${versions.map((one) => html`<tr key=${one.version}>
      <th scope="row"><a href=${link("versions", [one.version])}>version ${one.version}</a></th>
      <td class="number">${withError(one.training.mean, one.training.standard_error)}</td>
      <td class="number">${count(one.training.count)}</td>
      <td class="nowrap">${one.held_out.length === 0 ? html`<span class="muted">–</span>` : one.held_out.map((each) => html`<div key=${each.suite}>
        <a href=${link("evaluations", [each.evaluation])}>${plain(each.suite)}</a> ${withError(each.mean, each.standard_error)}
        ${each.production && html` <span class="muted">production ${withError(each.production.mean, each.production.standard_error)}</span>`}</div>`)}</td>
      <td class="nowrap">${one.live ? html`<a href=${link("rollouts", [one.live.rollout])}>${withError(one.live.mean, one.live.standard_error)}</a>
        <span class="muted"> of ${count(one.live.count)}${one.live.production ? `; production ${withError(one.live.production.mean, one.live.production.standard_error)}` : ""}</span>` : html`<span class="muted">–</span>`}</td>
      <td class="number">${one.groups ? decimal(one.groups.spread, 3) : "–"}</td>
      <td class="number">${one.groups ? percent(one.groups.alike) : "–"}</td>
      <td class="number">${one.groups ? decimal(one.groups.tokens, 0) : "–"}</td>
      <td class="number">${one.groups ? seconds(one.groups.seconds) : "–"}</td>
    </tr>`)}</tbody></table></div>`;
}
