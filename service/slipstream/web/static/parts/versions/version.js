// One version: all that is known of it, what compared it, and what can be done with it.
import { get, path, post, query, send } from "../../lib/api.js";
import { count, decimal, exactTime } from "../../lib/format.js";
import { html } from "../../lib/html.js";
import { useMark } from "../../lib/live.js";
import { useLoad } from "../../lib/load.js";
import { go, link } from "../../lib/router.js";
import { can } from "../../lib/session.js";
import { Badge, Copy, Figure, Loaded, Time, notice } from "../basics.js";
import { EvaluationTable, ExperimentTable, RolloutTable } from "./comparisons.js";
import { State } from "../rollouts/decisions.js";
import { Confirm } from "../dialog.js";
import { Interval, Verdict, intervalWords } from "../rollouts/evidence.js";
import { METRICS } from "./metrics.js";
import { plain } from "../said.js";
import { NameHistory, Serves, TrainedOn } from "./facts.js";

export function OneVersion({ name }) {
  const marks = useMark("versions") + useMark("evaluations") + useMark("rollouts");
  const load = useLoad((signal) => get(path("versions", name), { signal }), [name, marks]);
  return html`<${Loaded} of=${load}>${(version) => html`<${Shown} one=${version} again=${load.again} />`}<//>`;
}

function Shown({ one, again }) {
  const data = one.trained_on && one.trained_on.dataset;
  const alone = data && !one.trained_on.experiences;
  return html`
    <div class="row apart"><h1>Version ${one.version} <${State} is=${one.state} /> ${one.aliases.map((alias) => html`<${Badge} key=${alias} kind="note">${plain(alias)}<//> `)}</h1>
      <span class="muted">${one.parent !== null && html`<a href=${link("learning", [], { a: one.parent, b: one.version })}>compare with version ${one.parent}</a> · `}
        <a href=${link("tasks", [], { version: one.version })}>its runs</a> · <a href=${link("versions")}>all versions</a></span></div>
    <section class="panel"><dl class="figures">
      <${Figure} name="Training reward" value=${decimal(one.rewards.mean, 3)} unit=${one.rewards.standard_error === null ? "" : `± ${decimal(one.rewards.standard_error, 3)}`} below=${`${count(one.rewards.count)} runs`} />
      <${Figure} name="Verdict" value=${html`<${Verdict} is=${one.verdict.verdict} />`} below=${one.verdict.champion ? `against the champion: ${one.verdict.champion.replaceAll("_", " ")}` : "against production"} />
      <${Figure} name="Answers" value=${html`<${Serves} version=${one} />`} below=${one.served_at ? html`the Explorer's since <${Time} at=${one.served_at} />` : "the Explorer never loaded it"} />
      <${Figure} name="Trained on" value=${one.trained_on ? count(alone ? data.rows : one.trained_on.experiences) : "–"} unit=${alone ? "rows" : one.trained_on ? "experiences" : ""}
        below=${alone ? html`of <${TrainedOn} on=${one.trained_on} />` : data ? html`and ${count(data.rows)} rows of <${TrainedOn} on=${{ dataset: data }} />` : one.trained_on && one.trained_on.commits !== null ? `${count(one.trained_on.groups)} groups in ${count(one.trained_on.commits)} commits` : one.parent === null ? "its parent is not known" : ""} />
    </dl>
    ${can("operate") && html`<${Actions} one=${one} again=${again} />`}</section>
    <${Sources} one=${one} />
    <${Evaluations} one=${one} />
    <${OnUsers} version=${one.version} />
    <div class="panels"><${Facts} one=${one} /><${Metrics} one=${one} /></div>
    ${one.aliases.length > 0 && html`<section class="panel"><h2>Its names</h2>${one.aliases.map((alias) => html`<h3 key=${alias}>${plain(alias)}</h3><${NameHistory} name=${alias} />`)}</section>`}`;
}

function Actions({ one, again }) {
  const number = String(one.version);
  const name = async (values) => {
    const done = await send("PUT", path("aliases", values.name.trim()), { version: one.version });
    again();
    notice(done.kept ? `It is called ${done.name}, and its weights are kept.` : `It is called ${done.name}; its weights are not kept, because serving.checkpoints is not set.`);
  };
  const evaluate = async (values) => {
    const opened = await post("evaluations", { version: one.version, suite: values.suite.trim() || null });
    notice(`Evaluation ${opened.id} is on its way.`);
    go(link("evaluations", [opened.id]));
  };
  return html`<div class="row">
    <a class="button main" href=${link("rollouts", ["new"], { version: number })}>Roll it out</a>
    <a class="button" href=${link("experiments", ["new"], { version: number })}>Experiment</a>
    <${Confirm} label="Evaluate" title=${`Evaluate version ${number}`} initial=${{ suite: "" }} act=${evaluate}>
      ${(values, set) => html`<p>It is asked the cases of a suite, and its answers are scored. It has to be served, by the Explorer or by the lane.</p>
        <label>Suite <input value=${values.suite} onInput=${set("suite")} placeholder="the only one" autocomplete="off" /></label>`}<//>
    ${one.kept && one.kept.by !== "sight"
      ? html`<${Confirm} label="Release" kind="bad" title=${`Delete the kept weights of version ${number}`} word=${number} act=${() => send("DELETE", path("versions", number, "keep")).then(again)} done="Released.">
          <p>What is kept of it is deleted. Where the Trainer has deleted its checkpoint too, its weights are gone.</p><//>`
      : html`<${Confirm} label="Keep" title=${`Keep the weights of version ${number}`} act=${() => post(path("versions", number, "keep")).then(again)} done="Kept.">
          <p>The Trainer's pruning does not reach them any more. They take room until they are released.</p><//>`}
    <${Confirm} label="Name it" title=${`Give version ${number} a name`} initial=${{ name: "" }} act=${name}>
      ${(values, set) => html`<p>A name means one version at a time, and keeps its weights. <code>champion</code> is the one that others are compared with.</p>
        <label>Name <input value=${values.name} onInput=${set("name")} placeholder="champion" required autocomplete="off" spellcheck=${false} /></label>`}<//>
  </div>`;
}

/** What each source of the verdict found. */
function Sources({ one }) {
  const { sources } = one.verdict;
  return html`<section class="panel"><h2>Verdict: <${Verdict} is=${one.verdict.verdict} /></h2>
    ${sources.length === 0 ? html`<p class="muted">Nothing has compared it with production yet. An evaluation on a suite does (<code>slipstream evaluate ${one.version}</code>), or a rollout.</p>`
      : html`<div class="scroll"><table>
      <thead><tr><th>Source</th><th>Against</th><th>Verdict</th><th>Difference and its interval</th><th class="number">Sessions</th><th>Missing</th></tr></thead>
      <tbody>${sources.map((source) => html`<tr key=${`${source.source} ${source.evaluation ?? source.rollout} ${source.against}`}>
        <th scope="row">${source.source === "rollout" ? html`<a href=${link("rollouts", [source.rollout])}>rollout ${source.rollout}</a> <span class="muted">${plain(source.objective)}</span>`
          : html`<a href=${link("evaluations", [source.evaluation])}>evaluation ${source.evaluation}</a> <span class="muted">${plain(source.suite)}</span>`}</th>
        <td>${source.against === "champion" ? html`champion, <a href=${link("versions", [source.champion])}>version ${source.champion}</a>` : "production"}</td>
        <td><${Verdict} is=${source.verdict} />${source.harmed && source.harmed.length > 0 && html`<div class="small">harm: ${source.harmed.join(", ")}</div>`}</td>
        <td><${Interval} mean=${source.difference} interval=${source.interval} label="difference" /><div class="small muted">${intervalWords(source.difference, source.interval)}</div></td>
        <td class="number">${count(source.sessions)}</td>
        <td>${source.reason ? plain(source.reason) : source.missing && source.missing.sessions !== null ? `about ${count(source.missing.sessions)} sessions` : source.missing ? html`<span class="muted">cannot be foreseen</span>` : html`<span class="muted">nothing</span>`}</td>
      </tr>`)}</tbody></table></div>
      <p class="muted small">Differences are of this version less the other, in parts of the range of rewards.</p>`}
  </section>`;
}

function Evaluations({ one }) {
  const load = useLoad((signal) => get("evaluations" + query({ version: one.version, limit: 20 }), { signal }), [one.version, useMark("evaluations")]);
  return html`<section class="panel"><h2>Evaluations</h2><${Loaded} of=${load}>${({ evaluations }) => evaluations.length === 0
    ? html`<p class="muted">It was not evaluated yet. Suites are listed under <code>evaluation.suites</code> in sidecar.yaml; then <code>slipstream evaluate ${one.version}</code>, or the button above.</p>`
    : html`<${EvaluationTable} evaluations=${evaluations} />`}<//></section>`;
}

/** The rollouts and experiments of it, among the newest ones. */
function OnUsers({ version }) {
  const load = useLoad(async (signal) => {
    const [{ rollouts }, { experiments }] = await Promise.all([get("rollouts?limit=200", { signal }), get("experiments?limit=200", { signal })]);
    return { rollouts: rollouts.filter((one) => one.version === version), experiments: experiments.filter((one) => one.b === `version:${version}`) };
  }, [version, useMark("rollouts"), useMark("experiments")]);
  return html`<section class="panel"><h2>On users</h2><${Loaded} of=${load}>${({ rollouts, experiments }) => html`
    ${rollouts.length + experiments.length === 0 && html`<p class="muted">No rollout and no experiment has it, among the newest 200.</p>`}
    ${rollouts.length > 0 && html`<h3>Rollouts</h3><${RolloutTable} rollouts=${rollouts} />`}
    ${experiments.length > 0 && html`<h3>Experiments</h3><${ExperimentTable} experiments=${experiments} />`}`}<//></section>`;
}

function Facts({ one }) {
  const on = one.trained_on;
  const rows = [
    ["Parent", one.parent === null ? "not known" : html`<a href=${link("versions", [one.parent])}>version ${one.parent}</a>`],
    ...(on && on.dataset ? [["Data set", html`<${TrainedOn} on=${on} />`]] : []),
    ["Commits", on && on.first_commit !== null ? `${on.first_commit} to ${on.last_commit}` : "–"],
    ["Mean reward of what it was trained on", on ? decimal(on.reward_mean, 3) : "–"],
    ["Made", exactTime(one.made_at)], ["Found", exactTime(one.found_at)], ["State since", exactTime(one.state_at)],
    ["Checkpoint", one.checkpoint ? html`<code>${plain(one.checkpoint)}</code>` : "–"],
    ["Kept", one.kept ? html`by ${one.kept.by}, <${Time} at=${one.kept.at} />: <code>${plain(one.kept.path)}</code>` : "no"],
    ["Weights (SHA-256)", one.weights ? html`<code>${one.weights.slice(0, 16)}…</code> <${Copy} text=${one.weights}>copy<//>` : "–"],
    ...(one.replaced_at ? [["Number came twice", html`since <${Time} at=${one.replaced_at} /> the Trainer's step of this number is another one; this one stays what it was`]] : []),
  ];
  return html`<section class="panel"><h2>Origin</h2><table class="facts"><tbody>
    ${rows.map(([name, value]) => html`<tr key=${name}><th scope="row">${name}</th><td class="wrap">${value}</td></tr>`)}</tbody></table></section>`;
}

function Metrics({ one }) {
  const names = one.metrics ? Object.keys(one.metrics) : [];
  const known = METRICS.filter((metric) => names.includes(metric.name));
  const others = names.filter((name) => !METRICS.some((metric) => metric.name === name));
  return html`<section class="panel"><h2>Its training step</h2>${names.length === 0
    ? html`<p class="muted">${one.version === 0 ? "It is the model that was given: nothing was trained." : "No figures of its step are known. The embedded Trainer writes them with each version; Trinity writes them for its monitor alone."}</p>`
    : html`<table class="facts"><tbody>
      ${known.map((metric) => html`<tr key=${metric.name}><th scope="row" title=${metric.help}>${metric.title}</th><td>${metric.format(one.metrics[metric.name])}</td></tr>`)}
      ${others.map((name) => html`<tr key=${name}><th scope="row">${plain(name)}</th><td>${decimal(one.metrics[name], 4)}</td></tr>`)}</tbody></table>`}</section>`;
}
