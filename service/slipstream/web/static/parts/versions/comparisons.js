// Tables of rollouts, experiments and evaluations.
import { percent, withError } from "../../lib/format.js";
import { html } from "../../lib/html.js";
import { link } from "../../lib/router.js";
import { Badge, Time } from "../basics.js";
import { By, State } from "../rollouts/decisions.js";
import { Verdict } from "../rollouts/evidence.js";
import { plain } from "../said.js";

export function RolloutTable({ rollouts }) {
  return html`<div class="scroll"><table>
    <thead><tr><th>Rollout</th><th>Version</th><th>State</th><th class="number">Share</th><th>Why</th><th>Opened</th><th>By</th></tr></thead>
    <tbody>${rollouts.map((one) => html`<tr key=${one.id}>
      <th scope="row"><a href=${link("rollouts", [one.id])}>rollout ${one.id}</a></th>
      <td><a href=${link("versions", [one.version])}>version ${one.version}</a></td>
      <td><${State} is=${one.state} />${one.ended_at !== null && one.state === "promoted" && html` <span class="muted small">ended</span>`}</td>
      <td class="number">${percent(one.share, one.share > 0 && one.share < 0.1 ? 1 : 0)}</td>
      <td class="reason">${plain(one.reason || "")}</td>
      <td class="nowrap"><${Time} at=${one.opened_at} /></td>
      <td><${By} name=${one.opened_by} /></td>
    </tr>`)}</tbody>
  </table></div>`;
}

export function ExperimentTable({ experiments }) {
  return html`<div class="scroll"><table>
    <thead><tr><th>Experiment</th><th>Compared with production</th><th>State</th><th class="number">Share of b</th><th>Winner</th><th>Why</th><th>Started</th></tr></thead>
    <tbody>${experiments.map((one) => html`<tr key=${one.id}>
      <th scope="row"><a href=${link("experiments", [one.id])}>${plain(one.name)}</a> <span class="muted">${one.id}</span></th>
      <td><a href=${link("versions", [one.b.replace("version:", "")])}>${one.b.replace(":", " ")}</a></td>
      <td><${State} is=${one.state} /></td>
      <td class="number">${percent(one.share)}</td>
      <td>${one.winner === null ? html`<span class="muted">–</span>` : html`<${Badge} kind=${one.winner === "b" ? "good" : "note"}>${winner(one)}<//>`}</td>
      <td class="reason">${plain(one.reason || "")}</td>
      <td class="nowrap"><${Time} at=${one.started_at} /></td>
    </tr>`)}</tbody>
  </table></div>`;
}

/** Who won an experiment, in words. */
export const winner = (one) => ({ a: one.a, b: one.b.replace(":", " "), equal: "equal" })[one.winner] || "nobody yet";

export function EvaluationTable({ evaluations }) {
  return html`<div class="scroll"><table>
    <thead><tr><th>Evaluation</th><th>Suite</th><th>State</th><th class="number">Version</th><th class="number">Production</th><th>Against production</th><th>Asked</th></tr></thead>
    <tbody>${evaluations.map((one) => html`<tr key=${one.id}>
      <th scope="row"><a href=${link("evaluations", [one.id])}>evaluation ${one.id}</a></th>
      <td>${plain(one.suite)}</td>
      <td><${State} is=${one.state} />${one.state === "done" && !one.used && html` <span class="muted small">of another training</span>`}
        ${one.reason && html`<div class="reason small muted">${plain(one.reason)}</div>`}</td>
      <td class="number">${reward(one.result && one.result.version)}</td>
      <td class="number">${reward(one.result && one.result.production)}</td>
      <td><${Verdict} is=${one.result && one.result.against_production && one.result.against_production.verdict} /></td>
      <td class="nowrap"><${Time} at=${one.opened_at} /> <span class="muted">${one.trigger}</span></td>
    </tr>`)}</tbody>
  </table></div>`;
}

const reward = (arm) => (arm ? withError(arm.reward.mean, arm.reward.standard_error) : "–");
