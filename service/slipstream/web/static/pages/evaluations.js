// One evaluation of a version: what it says, and the value of each case.
import { get, path, query } from "../lib/api.js";
import { count, decimal, percent, seconds } from "../lib/format.js";
import { html } from "../lib/html.js";
import { useMark } from "../lib/live.js";
import { useWatched } from "../lib/load.js";
import { usePages } from "../lib/pages.js";
import { link } from "../lib/router.js";
import { Bar, Empty, Figure, Loaded, Time } from "../parts/basics.js";
import { EvaluationTable } from "../parts/versions/comparisons.js";
import { By, State } from "../parts/rollouts/decisions.js";
import { Interval, Verdict, intervalWords, signed } from "../parts/rollouts/evidence.js";
import { plain } from "../parts/said.js";

const READ_AGAIN = 3000; // ms, while it goes on
const SHOWN = 200; // cases

export default function Evaluations({ route }) {
  const [id] = route.parts;
  return id ? html`<${One} key=${id} id=${id} />` : html`<${All} />`;
}

function All() {
  const list = usePages("evaluations", (cursor, signal) => get("evaluations" + query({ cursor, limit: 50 }), { signal }), [], useMark("evaluations"));
  return html`<h1>Evaluations</h1><section class="panel"><${Loaded} of=${list}>${(found) => found.length === 0
    ? html`<${Empty} title="No evaluation yet"><p>An evaluation asks a version the cases of a suite under <code>evaluation.suites</code>:</p><pre>slipstream evaluate</pre><//>`
    : html`<${EvaluationTable} evaluations=${found} />${list.more && html`<p><button onClick=${list.more}>Older ones</button></p>`}`}<//></section>`;
}

function One({ id }) {
  const load = useWatched((signal) => get(path("evaluations", id), { signal }), [id, useMark("evaluations")], READ_AGAIN, (found) => found.ended_at !== null);
  return html`<${Loaded} of=${load}>${(found) => html`<${Shown} one=${found} />`}<//>`;
}

function Shown({ one }) {
  const { result } = one;
  return html`<div class="row apart"><h1>Evaluation ${one.id} of version ${one.version} on ${plain(one.suite)} <${State} is=${one.state} /></h1>
      <span class="muted">asked <${Time} at=${one.opened_at} />, ${one.trigger === "hand" ? html`by <${By} name=${one.asked_by} />` : one.trigger} · <a href=${link("versions", [one.version])}>version ${one.version}</a></span></div>
    <section class="panel">
      ${one.ended_at === null && html`<p>${one.expected === null ? "It waits to begin." : html`<${Bar} value=${one.answered / one.expected} label="answers" /> ${count(one.answered)} of ${count(one.expected)} answers`}
        ${one.waits && html` <span class="muted">It waits: ${plain(one.waits)}</span>`}</p>`}
      ${one.reason && html`<p class=${one.state === "failed" ? "failure" : "muted"}>${plain(one.reason)}</p>`}
      ${result && html`<dl class="figures">
        <${Arm} name=${`Version ${one.version}`} arm=${result.version} />
        ${result.production && html`<${Arm} name="Production" arm=${result.production} />`}
        <${Figure} name="Cases" value=${count(result.cases)} below=${`${count(result.sessions)} sessions`} />
        ${result.against_production && html`<${Figure} name="Against production" value=${html`<${Verdict} is=${result.against_production.verdict} />`}
          below=${intervalWords(result.against_production.difference, result.against_production.interval)} />`}
      </dl>
      ${result.against_production && html`<${Interval} mean=${result.against_production.difference} interval=${result.against_production.interval} margin=${one.settings.margin} label="difference to production" />`}
      ${result.against_production && result.against_production.missing && html`<p class="muted">${result.against_production.missing.sessions === null ? "How many sessions are missing cannot be foreseen."
        : `About ${count(result.against_production.missing.sessions)} more sessions are missing for a verdict.`}</p>`}`}
    </section>
    <section class="panel"><h2>Cases</h2>${one.cases.length === 0 ? html`<p class="muted">They are fixed when it begins.</p>` : html`<${Cases} one=${one} />`}</section>`;
}

const Arm = ({ name, arm }) => html`<${Figure} name=${name} value=${decimal(arm.reward.mean, 3)} unit=${arm.reward.standard_error === null ? "" : `± ${decimal(arm.reward.standard_error, 3)}`}
  below=${`${percent(arm.success_rate)} succeed; ${seconds(arm.latency)} an answer`} />`;

const mean = (answers) => {
  const values = answers.map((answer) => answer.reward).filter((value) => value !== null);
  return values.length ? values.reduce((sum, value) => sum + value, 0) / values.length : null;
};

/** The cases on which the version is furthest behind first: those to look at. */
function Cases({ one }) {
  const rows = one.cases.map((each) => ({ ...each, b: mean(each.version), a: mean(each.production) }));
  rows.sort((x, y) => ((x.b ?? 2) - (x.a ?? 0)) - ((y.b ?? 2) - (y.a ?? 0)));
  const failed = (answers) => answers.filter((answer) => answer.outcome !== "scored").map((answer) => answer.outcome.replaceAll("_", " "));
  return html`<div class="scroll"><table>
    <thead><tr><th>Case</th><th class="number">Session</th><th class="number">Version</th><th class="number">Production</th><th class="number">Difference</th><th>Outcome</th></tr></thead>
    <tbody>${rows.slice(0, SHOWN).map((each) => html`<tr key=${each.case}><th scope="row" class="wrap">${plain(each.case)}</th><td class="number">${each.session}</td>
      <td class="number">${decimal(each.b, 3)}</td><td class="number">${decimal(each.a, 3)}</td>
      <td class="number">${signed(each.a === null || each.b === null ? null : each.b - each.a)}</td>
      <td>${[...new Set(failed(each.version))].join(", ") || html`<span class="muted">scored</span>`}</td></tr>`)}</tbody></table></div>
    ${rows.length > SHOWN && html`<p class="muted">The first ${SHOWN} of ${count(rows.length)}: those on which the version is furthest behind.</p>`}`;
}
