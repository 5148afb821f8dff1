// One experiment: who is compared, what is proven, and how it ends.
import { get, path, post } from "../../lib/api.js";
import { count, decimal, percent, seconds } from "../../lib/format.js";
import { html } from "../../lib/html.js";
import { useMark } from "../../lib/live.js";
import { useWatched } from "../../lib/load.js";
import { link } from "../../lib/router.js";
import { can } from "../../lib/session.js";
import { Badge, Bar, Loaded, Time, notice } from "../basics.js";
import { winner } from "../versions/comparisons.js";
import { By, State, Timeline } from "./decisions.js";
import { Confirm } from "../dialog.js";
import { Claim, Interval, intervalWords } from "./evidence.js";
import { plain } from "../said.js";

const READ_AGAIN = 5000; // ms

export function OneExperiment({ id }) {
  const load = useWatched((signal) => get(path("experiments", id), { signal }), [id, useMark("experiments")], READ_AGAIN, (found) => found.ended_at !== null);
  return html`<${Loaded} of=${load}>${(found) => html`<${Shown} experiment=${found} again=${load.again} />`}<//>`;
}

const versionOf = (experiment) => experiment.b.replace("version:", "");

function Shown({ experiment, again }) {
  const { plan, report } = experiment;
  const version = versionOf(experiment);
  const names = { a: "production", b: `version ${version}` };
  return html`
    <div class="row apart"><h1>Experiment ${experiment.id}: ${plain(experiment.name)} <${State} is=${experiment.state} /></h1>
      <span class="muted">started <${Time} at=${experiment.started_at} /> by <${By} name=${experiment.started_by} /> · <a href=${link("experiments")}>all experiments</a></span></div>
    <section class="panel"><h2>Arms</h2>
      <div class="scroll"><table><tbody>${["a", "b"].map((arm) => html`<tr key=${arm}>
        <th scope="row">${arm}: ${arm === "b" ? html`<a href=${link("versions", [version])}>${names.b}</a>` : names.a}</th>
        <td><${Bar} value=${arm === "b" ? experiment.share : 1 - experiment.share} kind=${arm === "a" ? "muted" : ""} label=${names[arm]} /></td>
        <td class="number">${percent(arm === "b" ? experiment.share : 1 - experiment.share)} of the users now</td>
        <td class="number">${count(report.arms && report.arms[arm].units)} sessions counted</td></tr>`)}</tbody></table></div>
      ${experiment.winner !== null && html`<p><${Badge} kind=${experiment.winner === "b" ? "good" : "note"}>${experiment.winner === "equal" ? "equal" : `${winner(experiment)} wins`}<//></p>`}
      ${experiment.rollout !== null && html`<p>Version ${version} has the traffic by <a href=${link("rollouts", [experiment.rollout])}>rollout ${experiment.rollout}</a>: decide about that one.</p>`}
      ${can("operate") && html`<${Stop} experiment=${experiment} again=${again} />`}
    </section>
    <${Missing} experiment=${experiment} />
    <section class="panel"><h2>What was measured</h2>
      <div class="scroll"><table>
        <thead><tr><th>Metric</th><th class="number">production (a)</th><th class="number">version ${version} (b)</th><th>Difference and its interval</th>
          <th>b is better</th><th>a is better</th>${plan.margin > 0 && html`<th>equal</th>`}</tr></thead>
        <tbody>${Object.entries(report.metrics || {}).map(([name, one]) => html`<${Metric} key=${name} name=${name} one=${one} plan=${plan} />`)}</tbody>
      </table></div>
      <p class="muted small">Intervals are right each by itself, at all times at once; the error rate of ${plan.level} is that of the primary metric.</p></section>
    <section class="panel"><h2>Decisions</h2><${Timeline} decisions=${experiment.decisions} /></section>`;
}

const DIGITS = { s: 2, tokens: 0 };
const UNITS = { s: "seconds" };
const value = (number, unit) => (unit === "s" ? seconds(number) : decimal(number, DIGITS[unit] ?? 3));

function Metric({ name, one, plan }) {
  const most = Math.max(...one.interval.map(Math.abs), 1e-9);
  return html`<tr>
    <th scope="row">${plain(name)} ${one.primary && html`<${Badge} kind="note">primary<//>`}<div class="small muted">${UNITS[one.unit] || plain(one.unit)}, ${one.better} is better</div></th>
    ${["a", "b"].map((arm) => html`<td key=${arm} class="number">${value(one[arm].mean, one.unit)}<div class="small muted">of ${count(one[arm].count)}${one[arm].without ? `; ${count(one[arm].without)} without` : ""}</div></td>`)}
    <td>${one.comparable === false ? html`<span class="muted">not compared: too many have no value</span>` : html`
      <${Interval} mean=${one.difference} interval=${one.interval} worse=${one.better === "less" ? 1 : -1} most=${most * 1.2} label=${name} />
      <div class="small muted">${intervalWords(one.difference, one.interval, DIGITS[one.unit] ?? 3)}</div>`}</td>
    <td><${Claim} claim=${one.claims.b_better} name=${`b is better by ${name}`} /></td>
    <td><${Claim} claim=${one.claims.a_better} kind="bad" name=${`a is better by ${name}`} /></td>
    ${plan.margin > 0 && html`<td><${Claim} claim=${one.claims.equal} kind="note" name=${`equal by ${name}`} /></td>`}
  </tr>`;
}

const ENDS = { evidence: "as soon as enough is proven", duration: "when its time is over", by_hand: "when it is stopped by hand" };

function Missing({ experiment }) {
  const { missing, plan, state } = experiment;
  const over = experiment.ended_at !== null;
  return html`<section class="panel"><h2>${over ? "How it ended" : "Why it is not decided yet"}</h2>
    ${over ? html`<p>${plain(experiment.reason || state)}.</p>` : html`
      <p>${state === "pending" ? `No user is answered by it yet. ${plain(missing.lane || experiment.reason || "")}`
        : state === "settling" ? "Its time is over: production answers everybody, and the values of the last sessions become final."
        : `It ends ${ENDS[plan.ends]}${missing.seconds !== null ? `, in ${seconds(missing.seconds)} at the latest` : ""}.`}</p>
      ${missing.reasons.length > 0 && html`<ul>${missing.reasons.map((reason) => html`<li key=${reason}>${plain(reason)}</li>`)}</ul>`}`}
    <p class="muted small">When b wins ${plan.decision === "switch_traffic" ? "it gets the traffic" : "it is reported, and production answers everybody"}.</p>
  </section>`;
}

/** Ends it, and says who answers users then. It can be said after the end too, until b has the traffic. */
function Stop({ experiment, again }) {
  const version = versionOf(experiment);
  const open = ["pending", "running", "settling"].includes(experiment.state);
  const failed = ["pending", "failed"].includes(experiment.state);
  const stop = (decision) => async (values) => {
    await post(path("experiments", experiment.id, "stop"), { decision, force: Boolean(values && values.force) });
    again();
    notice(decision === "b" ? `Version ${version} gets the traffic.` : "Production answers everybody.");
  };
  if (experiment.rollout !== null || (!open && failed)) return null;
  return html`<div class="row">
    ${open && html`<${Confirm} label="Stop: production answers" kind="bad" title="End it; production answers everybody" word=${version} act=${stop("a")}>
      <p>No session is assigned to version ${version} any more. What was measured stays.</p><//>`}
    ${!failed && html`<${Confirm} label=${open ? "Stop: b answers" : "Give b the traffic"} title=${`Version ${version} answers the users from now on`} word=${version} initial=${{ force: "" }} act=${stop("b")}>
      ${(values, set) => html`<p>Version ${version} is promoted: it answers 95 % of the users, and the others stay with production as control. Its verdict has to be better or equal.</p>
        <span class="check"><input id="force" type="checkbox" onChange=${(event) => set("force")({ target: { value: event.target.checked ? "yes" : "" } })} />
          <label for="force">by force, whatever its verdict is</label></span>`}<//>`}
  </div>`;
}
