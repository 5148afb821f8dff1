// The register of versions, with what compares them on users; or one version.
import { get, path, query, send } from "../lib/api.js";
import { count, withError } from "../lib/format.js";
import { html, useState } from "../lib/html.js";
import { useMark } from "../lib/live.js";
import { useLoad } from "../lib/load.js";
import { usePages } from "../lib/pages.js";
import { link } from "../lib/router.js";
import { can } from "../lib/session.js";
import { Badge, Empty, Loaded, Time } from "../parts/basics.js";
import { ExperimentTable, RolloutTable } from "../parts/versions/comparisons.js";
import { State } from "../parts/rollouts/decisions.js";
import { Confirm } from "../parts/dialog.js";
import { Verdict } from "../parts/rollouts/evidence.js";
import { OneVersion } from "../parts/versions/version.js";
import { plain } from "../parts/said.js";
import { NameHistory, Serves, TrainedOn } from "../parts/versions/facts.js";

export default function Versions({ route }) {
  const [name] = route.parts;
  return name === undefined ? html`<${Register} />` : html`<${OneVersion} key=${name} name=${name} />`;
}

function Register() {
  const list = usePages("versions", (cursor, signal) => get("versions" + query({ cursor, limit: 50 }), { signal }), [],
    useMark("versions") + useMark("evaluations") + useMark("rollouts"));
  return html`<h1>Versions</h1>
    <section class="panel"><div class="row apart"><h2>Register</h2><a href=${link("learning")}>compare two</a></div>
      <${Loaded} of=${list}>${(found) => found.length === 0
        ? html`<${Empty} title="No version yet"><p>The first one is known when the Explorer answers. See what the sidecar finds of it:</p><pre>slipstream doctor</pre><//>`
        : html`<${Table} versions=${found} />${list.more && html`<p><button onClick=${list.more}>Older versions</button></p>`}`}<//></section>
    <${Aliases} />
    <${Rollouts} />
    <${Experiments} />`;
}

function Table({ versions }) {
  return html`<div class="scroll"><table>
    <thead><tr><th>Version</th><th>State</th><th>Answers</th><th class="number">Training reward</th><th class="number">Runs</th><th>Verdict</th>
      <th>Trained on</th><th>Made</th><th>Kept</th></tr></thead>
    <tbody>${versions.map((one) => html`<tr key=${one.version}>
      <th scope="row"><a href=${link("versions", [one.version])}>version ${one.version}</a>
        ${one.aliases.map((alias) => html` <${Badge} key=${alias} kind="note">${plain(alias)}<//>`)}</th>
      <td><${State} is=${one.state} /></td>
      <td><${Serves} version=${one} /></td>
      <td class="number">${withError(one.rewards.mean, one.rewards.standard_error)}</td>
      <td class="number">${count(one.rewards.count)}</td>
      <td><${Verdict} is=${one.verdict.verdict} title="against production, and the champion" /></td>
      <td class="nowrap"><${TrainedOn} on=${one.trained_on} />
        ${one.parent !== null && html` <span class="muted">from <a href=${link("versions", [one.parent])}>${one.parent}</a></span>`}</td>
      <td class="nowrap"><${Time} at=${one.made_at ?? one.found_at} /></td>
      <td>${one.kept ? html`by ${one.kept.by}` : html`<span class="muted">no</span>`}
        ${one.replaced_at && html` <${Badge} kind="warn" title="the Trainer's step of this number is another one by now">number came twice<//>`}</td>
    </tr>`)}</tbody>
  </table></div>`;
}

function Aliases() {
  const load = useLoad((signal) => get("aliases", { signal }), [useMark("versions")]);
  const [shown, setShown] = useState(null);
  const remove = (name) => () => send("DELETE", path("aliases", name)).then(load.again);
  return html`<section class="panel"><h2>Names</h2><${Loaded} of=${load}>${({ aliases }) => aliases.length === 0
    ? html`<p class="muted">No version has a name. Others are compared with the one that is called <code>champion</code>; a version's page gives it one.</p>`
    : html`<div class="scroll"><table>
      <thead><tr><th>Name</th><th>Version</th><th>Since</th><th>History</th></tr></thead>
      <tbody>${aliases.map((one) => html`<tr key=${one.name}>
        <th scope="row">${plain(one.name)}</th>
        <td><a href=${link("versions", [one.version])}>version ${one.version}</a></td>
        <td class="nowrap"><${Time} at=${one.changed_at} /></td>
        <td><div class="row"><button class="plain" aria-expanded=${shown === one.name} onClick=${() => setShown(shown === one.name ? null : one.name)}>
            ${shown === one.name ? "hide" : "show"}</button>
          ${can("operate") && html`<${Confirm} label="Remove" title=${`Take the name ${plain(one.name)} away`} act=${remove(one.name)} done="The name is gone; its history stays.">
            <p>Version ${one.version} stays as it is, and so do its weights.</p><//>`}</div>
          ${shown === one.name && html`<${NameHistory} name=${one.name} />`}</td>
      </tr>`)}</tbody></table></div>`}<//></section>`;
}

function Rollouts() {
  const load = useLoad((signal) => get("rollouts?limit=10", { signal }), [useMark("rollouts")]);
  return html`<section class="panel"><div class="row apart"><h2>Rollouts</h2>
      <span class="row">${can("operate") && html`<a class="button" href=${link("rollouts", ["new"])}>Open a rollout</a>`}<a href=${link("rollouts")}>all rollouts</a></span></div>
    <${Loaded} of=${load}>${({ rollouts }) => rollouts.length === 0
      ? html`<p class="muted">No version was rolled out yet: a rollout serves one to a share of the users, and promotes it when it is proven better.</p>`
      : html`<${RolloutTable} rollouts=${rollouts} />`}<//></section>`;
}

function Experiments() {
  const load = useLoad((signal) => get("experiments?limit=10", { signal }), [useMark("experiments")]);
  return html`<section class="panel"><div class="row apart"><h2>Experiments</h2>
      <span class="row">${can("operate") && html`<a class="button" href=${link("experiments", ["new"])}>Start an experiment</a>`}<a href=${link("experiments")}>all experiments</a></span></div>
    <${Loaded} of=${load}>${({ experiments }) => experiments.length === 0
      ? html`<p class="muted">No experiment yet: one measures production and a version side by side, and says what is proven.</p>`
      : html`<${ExperimentTable} experiments=${experiments} />`}<//></section>`;
}
