// One data set: what is in it, where that came from, what was left out and why, and what can be done with it.
import { get, path } from "../../lib/api.js";
import { count, decimal, exactTime, percent } from "../../lib/format.js";
import { html } from "../../lib/html.js";
import { useMark } from "../../lib/live.js";
import { useLoad } from "../../lib/load.js";
import { link } from "../../lib/router.js";
import { useSession } from "../../lib/session.js";
import { Badge, Copy, Figure, Loaded, Time } from "../basics.js";
import { Text, plain } from "../said.js";
import { Counts, Versions, reasonWords, sum } from "./counts.js";
import { moment } from "./list.js";
import { Spreads } from "./spread.js";
import { Uses } from "./uses.js";
import { Command } from "./command.js";

export function OneDataset({ name }) {
  const load = useLoad((signal) => get(path("datasets", name), { signal }), [name, useMark("datasets") + useMark("versions")]);
  if (load.data === null && load.error) return html`<h1>${plain(name)}</h1><${Loaded} of=${load} /><p><a href=${link("data")}>All data sets</a></p>`;
  return html`<${Loaded} of=${load}>${(found) => html`<${Shown} found=${found} />`}<//>`;
}

function Shown({ found }) {
  const { manifest: made, versions, directory, card } = found;
  const session = useSession();
  const rows = sum(made.counts.rows);
  const left = sum(made.dropped);
  const { rewards } = made.counts;
  return html`
    <div class="row apart"><h1>${plain(made.name)} <${Badge} kind="note">${made.kind}<//> <${Badge}>${made.format}<//> <${Badge}>${made.files}<//></h1>
      <span class="muted">made <${Time} at=${moment(made.made_at)} /> · <a href=${link("data")}>all data sets</a></span></div>
    <section class="panel"><dl class="figures">
      <${Figure} name="To train on" value=${count(made.counts.rows.train ?? 0)} unit="rows" />
      <${Figure} name="Held out" value=${count(made.counts.rows.held_out ?? 0)} unit="rows" below=${rows ? percent((made.counts.rows.held_out ?? 0) / rows, 1) : ""} />
      <${Figure} name="Reward" value=${rewards ? decimal(rewards.mean, 3) : "–"} below=${rewards ? `the mean of ${count(rewards.count)}` : "no row has one"} />
      <${Figure} name="Left out" value=${count(left)} unit="rows" below=${left ? `${percent(left / (left + rows))} of what was looked at` : ""} />
      <${Figure} name="Versions trained on it" value=${html`<${Versions} numbers=${versions} />`} below=${versions.length ? "or on a version that was" : ""} />
    </dl></section>
    <${HeldOut} made=${made} />
    <section class="panel"><h2>Rewards and lengths</h2>
      <${Spreads} rows=${[
        { name: made.kind === "preference" ? "Reward of the chosen answer" : "Reward", axis: "reward", spread: rewards },
        { name: "Reward of the rejected answer", axis: "reward", spread: made.counts.rejected_rewards },
        { name: "Characters of a row", axis: "characters", spread: made.counts.characters },
        { name: "Messages of a row", axis: "messages", spread: made.counts.messages },
        { name: "Tools of a row", axis: "tools", spread: made.counts.tools },
      ]} />
      <p class="small muted">The box holds the middle half of the values, the bar 90 % of them, the line all; the mark is the median.</p></section>
    <div class="panels">
      <section class="panel"><h2>Where it came from</h2>
        <${Counts} counts=${made.counts.sources} of=${rows} first="Source" name=${(source) => plain(source.replaceAll("_", " "))} />
        <${Counts} counts=${made.counts.models} of=${sum(made.counts.models)} first="Answered by" things="Answers" name=${answerer} />
        ${Object.keys(made.counts.labels).length > 0 && html`<${Counts} counts=${made.counts.labels} of=${rows} first="Label" name=${label} />`}</section>
      <section class="panel"><h2>What was left out</h2>${left === 0 ? html`<p class="muted">Nothing was left out.</p>`
        : html`<${Counts} counts=${made.dropped} of=${rows + left} first="Reason" name=${reasonWords} kind="muted" />`}</section>
      <${Kept} made=${made} />
    </div>
    <${Uses} made=${made} directory=${directory} session=${session} />
    <${Files} made=${made} />
    <details class="panel"><summary>The card, as README.md has it</summary><p><${Copy} text=${card}>Copy<//></p>
      <div class="json" tabindex="0" role="region" aria-label="README.md"><${Text} code>${card}<//></div></details>`;
}

/** A model as it was named, or a version of the policy as a link. */
function answerer(name) {
  const version = /^version:(\d+)$/.exec(name);
  return version ? html`<a href=${link("versions", [version[1]])}>version ${version[1]}</a>` : plain(name);
}

const OTHERS = "(others)"; // names that are counted together, because there were too many

const label = (name) => (name === OTHERS ? name : html`<a href=${link("tasks", [], { label: name })}>${plain(name)}</a>`);

/** Which sessions are held out, and whether anything was trained on them by another way. */
function HeldOut({ made }) {
  const { share, kept_from_reinforcement_learning: kept } = made.about.held_out || {};
  return html`<section class="panel"><h2>Held out</h2>${share === 0
    ? html`<p class="muted">No session is held out. <code>datasets.held_out</code> in sidecar.yaml holds some out of data sets and of reinforcement learning alike.</p>`
    : html`<p>${typeof share === "number" ? `${percent(share, 1)} of the sessions, each whole,` : "Whole sessions"} are drawn by a hash of their names: a session that is held out here is held out
        of each data set with this share or a larger one.</p>
      ${kept === true ? html`<p><${Badge} kind="good">clean<//> Reinforcement learning was kept off them too when this was made: an evaluation on them says what a version has learned to do, not what it has seen.</p>`
        : kept === false ? html`<p><${Badge} kind="warn">not clean<//> Reinforcement learning may have been trained on them: <code>datasets.held_out</code> was below this share when it was made.</p>`
          : html`<p class="muted">Whether reinforcement learning was kept off them is not known.</p>`}`}</section>`;
}

/** What was taken out of it for the sake of users. */
function Kept({ made }) {
  const rules = Array.isArray(made.about.redacted) ? made.about.redacted : null;
  return html`<section class="panel"><h2>Privacy</h2>
    <h3>Redacted</h3>${rules === null ? html`<p class="muted">Not known.</p>` : rules.length === 0
      ? html`<p class="muted">By no rule: <code>capture.redact</code> was empty, and messages are as agents sent them.</p>`
      : html`<p>${rules.map((rule) => html`<${Badge} key=${rule}>${plain(String(rule))}<//> `)}</p>`}
    <h3>Erased since</h3>${made.erased.length === 0
      ? html`<p class="muted">Nothing. <code>DELETE /data</code> of a session or a task deletes its rows here.</p>`
      : html`<ul class="bare">${made.erased.map((one, place) => html`<li key=${place}><${Time} at=${moment(one.at)} />: ${some(sum(one.rows), "row")} of ${some(one.task_hashes.length, "task")}</li>`)}</ul>`}</section>`;
}

const some = (number, thing) => `${count(number)} ${thing}${number === 1 ? "" : "s"}`;

function Files({ made }) {
  return html`<section class="panel"><h2>Files</h2><p class="muted small">Made ${exactTime(moment(made.made_at))}. Two data sets with the same digest have the same rows in the same order.</p>
    <p class="wrap">Digest <code>${made.digest}</code> <${Copy} text=${made.digest}>copy<//></p>
    <table class="facts"><tbody>${Object.entries(made.sha256).map(([file, digest]) => html`<tr key=${file}><th scope="row" class="wrap">${plain(file)}</th>
      <td><code title=${digest}>${digest.slice(0, 16)}…</code></td></tr>`)}</tbody></table>
    ${Object.keys(made.about).length > 0 && html`<details><summary>How it was made</summary><${Command} label="How it was made" text=${JSON.stringify(made.about, null, 2)} /></details>`}</section>`;
}
