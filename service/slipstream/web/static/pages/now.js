// What is happening, at a glance: who serves users, what is wrong, and where the loop stands.
import { answering, standsIn } from "../lib/answering.js";
import { post } from "../lib/api.js";
import { count, decimal, percent, seconds } from "../lib/format.js";
import { html } from "../lib/html.js";
import { useLive } from "../lib/live.js";
import { link } from "../lib/router.js";
import { can } from "../lib/session.js";
import { Badge, Bar, Empty, Figure, Loading, Time, Until } from "../parts/basics.js";
import { Confirm } from "../parts/dialog.js";

export default function Now() {
  const { status, serving } = useLive();
  if (!status) return html`<${Loading} />`;
  return html`<h1>Now</h1>
    <${Problems} problems=${status.problems} />
    <div class="panels">
      ${serving && html`<${Serving} serving=${serving} />`}
      ${status.traffic && html`<${Traffic} traffic=${status.traffic} waiting=${status.capture.waiting} />`}
      <${Policy} status=${status} />
      <${Selection} status=${status} />
      <${Runs} status=${status} />
      <${Feedback} status=${status} />
      <${Costs} status=${status} />
    </div>`;
}

const KINDS = { error: "bad", warning: "warn", info: "note" };

function Problems({ problems }) {
  if (problems.length === 0) return html`<section class="panel"><${Badge} kind="good">nothing is wrong<//></section>`;
  return html`<section class="panel"><h2>What is wrong</h2>
    ${problems.map((problem) => html`<details key=${problem.code + problem.where} open=${problem.severity === "error"} class="problem">
      <summary><${Badge} kind=${KINDS[problem.severity] || "warn"}>${problem.severity}<//> ${problem.found}</summary>
      <p>${problem.why}</p>
      <p><strong>What to do:</strong> ${problem.fix}</p>
      <p class="muted small">${problem.where} · ${problem.code}</p>
    </details>`)}
  </section>`;
}

function Serving({ serving }) {
  const production = 1 - answering(serving);
  const asks = async (path) => post(path, {});
  return html`<section class="panel"><h2>Who answers users</h2>
    <table><tbody>
      <tr><th scope="row">production</th><td><${Bar} value=${production} kind="muted" label=${percent(production)} /></td><td class="number">${percent(production, 1)}</td></tr>
      ${serving.version !== null && html`<tr><th scope="row"><a href=${link("versions", [serving.version])}>version ${serving.version}</a></th>
        <td><${Bar} value=${1 - production} label=${percent(1 - production)} /></td><td class="number">${percent(1 - production, 1)}</td></tr>`}
    </tbody></table>
    ${standsIn(serving) && html`<p><${Badge} kind="warn">the lane is not ready<//> Production answers everybody, in the place of
      ${" "}version ${serving.version} with its share of ${percent(serving.share, 1)} too.</p>`}
    <p class="muted small">${serving.killed ? "Killed: production answers everybody, whatever share is set."
      : serving.mode === "off" ? "Serving is off: this sidecar has no lane that could answer users."
      : serving.ready ? "The lane is ready." : serving.reason}</p>
    ${can("operate") && serving.mode !== "off" && html`<div class="row">
      ${serving.killed
        ? html`<${Confirm} label="Take the kill back" title="Take the kill back" act=${() => asks("serving/revive")} done="The share of before holds again.">
            <p>Version ${serving.version} answers ${percent(serving.share, 1)} of the users again.</p><//>`
        : html`<${Confirm} label="Kill" kind="bad" title="Have production answer everybody" word="kill" act=${() => asks("serving/kill")} done="Production answers everybody.">
            <p>No request goes to a version any more, until you take this back. Nothing else changes: capture and training go on.</p><//>`}
    </div>`}
  </section>`;
}

function Traffic({ traffic, waiting }) {
  return html`<section class="panel"><h2>Traffic <span class="muted small">the last minute</span></h2><dl class="figures">
    <${Figure} name="Requests" value=${decimal(traffic.requests_per_second, 1)} unit="a second" />
    <${Figure} name="Failed at production" value=${count(traffic.failed)} kind=${traffic.failed ? "warn" : ""} />
    <${Figure} name="Latency added, p50" value=${seconds(traffic.added_seconds && traffic.added_seconds.p50)} />
    <${Figure} name="Latency added, p99" value=${seconds(traffic.added_seconds && traffic.added_seconds.p99)} />
    <${Figure} name="Captured" value=${count(traffic.captured)} below=${`${count(waiting)} wait for the store`} />
    <${Figure} name="Not captured" value=${count(traffic.not_captured)} />
  </dl></section>`;
}

function Policy({ status }) {
  const { policy, next_commit: next, training, explorer, last_commit: last } = status;
  return html`<section class="panel"><h2>Training</h2><dl class="figures">
    <${Figure} name="Version served by the Explorer" value=${policy.version ?? "–"}
      below=${explorer.up ? html`since <${Time} at=${policy.changed_at} />` : html`<${Badge} kind="bad">the Explorer is away<//>`} />
    <${Figure} name="Next commit" value=${next.at === null ? "–" : html`<${Until} at=${next.at} />`}
      below=${`${count(next.experiences_ready)} experiences ready, ${count(next.min_experiences)} needed`} />
    <${Figure} name="Towards the next step" value=${count(training.experiences_since_version)}
      below=${training.train_batch_size ? `of ${count(training.train_batch_size)} experiences` : "experiences since this version"} />
    <${Figure} name="Delivered" value=${count(status.experiences_delivered)} unit="experiences"
      below=${last && html`commit ${last.id}: ${last.state}, <${Time} at=${last.ended_at || last.started_at} />`} />
  </dl>
  ${can("commit") && html`<div class="row"><${Confirm} label="Commit now" title="Deliver what is ready" act=${() => post("commit")} done="Delivered.">
    <p>Every group that is ready is delivered to the Explorer now, without waiting for the timer.</p><//></div>`}
  </section>`;
}

function Counts({ title, of, empty }) {
  const entries = Object.entries(of).sort((a, b) => b[1] - a[1]);
  const most = Math.max(1, ...entries.map(([, number]) => number));
  return html`<h3>${title}</h3>${entries.length === 0 ? html`<p class="muted">${empty}</p>` : html`<table><tbody>
    ${entries.map(([name, number]) => html`<tr key=${name}><th scope="row" class="wrap">${name.replaceAll("_", " ")}</th>
      <td><${Bar} value=${number / most} label=${String(number)} /></td><td class="number">${count(number)}</td></tr>`)}
  </tbody></table>`}`;
}

function Selection({ status }) {
  const { selection, tasks } = status;
  if (Object.keys(tasks).length === 0) {
    return html`<section class="panel"><${Empty} title="No task yet"><p>Give an agent this sidecar as its base URL:</p>
      <pre>OPENAI_BASE_URL=${new URL("v1", document.baseURI).href}</pre><//></section>`;
  }
  return html`<section class="panel"><div class="row apart"><h2>Selection <span class="muted small">the newest 1,000 tasks</span></h2><a href=${link("tasks")}>all tasks</a></div>
    <${Counts} title="Selected" of=${selection.selected} empty="None was selected." />
    <${Counts} title="Not selected" of=${selection.not_selected} empty="None was left out." />
  </section>`;
}

function Runs({ status }) {
  return html`<section class="panel"><h2>Runs <span class="muted small">${count(status.runs_active)} on their way</span></h2>
    <${Counts} title="Runs" of=${status.runs} empty="No run yet." />
    <${Counts} title="Groups" of=${status.groups} empty="No group yet." />
    ${status.failed_runs.length > 0 && html`<h3>Failed last</h3><ul>${status.failed_runs.map((run) => html`<li key=${`${run.group_id} ${run.run_id}`} class="wrap">
      group ${run.group_id}, run ${run.run_id}: ${run.reason || html`<span class="muted">the reason is for other keys</span>`}</li>`)}</ul>`}
  </section>`;
}

function Feedback({ status }) {
  return html`<section class="panel"><h2>Rewards</h2>
    ${status.rewards.length === 0 ? html`<p class="muted">No run has a reward yet.</p>` : html`<table>
      <thead><tr><th>Version</th><th class="number">Runs</th><th class="number">Mean</th><th class="number">Least</th><th class="number">Most</th></tr></thead>
      <tbody>${status.rewards.map((row) => html`<tr key=${row.version}><td><a href=${link("versions", [row.version])}>${row.version ?? "–"}</a></td>
        <td class="number">${count(row.runs)}</td><td class="number">${decimal(row.mean, 3)}</td><td class="number">${decimal(row.min)}</td><td class="number">${decimal(row.max)}</td></tr>`)}</tbody>
    </table>`}
    <${Counts} title="Feedback" of=${status.feedback} empty="No feedback yet." />
  </section>`;
}

function Costs({ status }) {
  const { today } = status;
  return html`<section class="panel"><h2>Today</h2><dl class="figures">
    <${Figure} name="Answers" value=${count(today.answers)} />
    <${Figure} name="Tokens read" value=${count(today.input)} />
    <${Figure} name="Tokens written" value=${count(today.output)} />
    <${Figure} name="Cost" value=${today.cost === null ? "–" : decimal(today.cost)} unit=${today.currency} below=${today.currency ? undefined : "no prices are set (costs)"} />
  </dl></section>`;
}
