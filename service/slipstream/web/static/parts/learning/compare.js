// Two versions side by side: how much better, on what, and which tasks changed most.
import { get, query } from "../../lib/api.js";
import { count, decimal, withError } from "../../lib/format.js";
import { html } from "../../lib/html.js";
import { useLoad } from "../../lib/load.js";
import { go, link } from "../../lib/router.js";
import { Badge, Loaded } from "../basics.js";
import { Interval, Verdict, intervalWords, signed } from "../rollouts/evidence.js";
import { plain } from "../said.js";

/** `versions`: those that can be chosen, the newest first. */
export function Compare({ versions, a, b, rest }) {
  const newest = versions[0];
  const chosenB = b ?? String(newest.version);
  const ofB = versions.find((one) => String(one.version) === chosenB);
  const chosenA = a ?? String(ofB && ofB.parent !== null ? ofB.parent : versions[versions.length - 1].version);
  const choose = (name) => (event) => go(link("learning", [], { ...rest, a: chosenA, b: chosenB, [name]: event.target.value }), { replace: true });
  const options = (chosen) => {
    const known = versions.map((one) => [String(one.version), `version ${one.version}${one.aliases.length ? ` (${one.aliases.join(", ")})` : ""}`]);
    return known.some(([value]) => value === chosen) ? known : [[chosen, chosen], ...known];
  };
  const select = (name, chosen, words) => html`<label>${words} <select value=${chosen} onChange=${choose(name)}>
    ${options(chosen).map(([value, text]) => html`<option key=${value} value=${value} selected=${value === chosen}>${plain(text)}</option>`)}</select></label>`;
  return html`<section class="panel"><h2 id="compare">Two versions compared</h2>
    <form class="filters" onSubmit=${(event) => event.preventDefault()}>
      ${select("a", chosenA, "From (a)")}${select("b", chosenB, "To (b)")}
      <button type="button" onClick=${() => go(link("learning", [], { ...rest, a: chosenB, b: chosenA }), { replace: true })}>Swap</button>
    </form>
    ${chosenA === chosenB ? html`<p class="muted">Choose two different versions.</p>` : html`<${Compared} key=${`${chosenA} ${chosenB}`} a=${chosenA} b=${chosenB} />`}</section>`;
}

function Compared({ a, b }) {
  const load = useLoad((signal) => get("learning/compare" + query({ a, b }), { signal }), [a, b]);
  return html`<${Loaded} of=${load}>${(found) => html`
    <${Differences} found=${found} />
    <div class="panels tables">
      <${Lowest} found=${found} />
      <${Tasks} found=${found} />
      <${Labels} found=${found} />
      ${found.held_out.map((suite) => html`<${Cases} key=${suite.suite} suite=${suite} />`)}
    </div>`}<//>`;
}

function Differences({ found }) {
  const { training } = found;
  const reach = (interval) => Math.max(0.05, ...(interval || []).map(Math.abs)) * 1.2;
  return html`<div class="scroll"><table>
    <thead><tr><th>By</th><th class="number">version ${found.a}</th><th class="number">version ${found.b}</th><th>Difference and its interval</th><th>Says</th></tr></thead>
    <tbody>
      <tr><th scope="row">training <div class="small muted">each its own tasks</div></th>
        <td class="number">${withError(training.a.mean, training.a.standard_error)}<div class="small muted">${count(training.a.tasks)} tasks, ${count(training.a.runs)} runs</div></td>
        <td class="number">${withError(training.b.mean, training.b.standard_error)}<div class="small muted">${count(training.b.tasks)} tasks, ${count(training.b.runs)} runs</div></td>
        <td>${training.difference === null ? html`<span class="muted">one of them has answered no run that is still stored</span>` : html`
          <${Interval} mean=${training.difference} interval=${training.interval} most=${reach(training.interval)} label="difference in training" />
          <div class="small muted">${intervalWords(training.difference, training.interval)}</div>`}</td>
        <td>${sure(training.interval)}</td></tr>
      ${found.held_out.map((suite) => html`<tr key=${suite.suite}><th scope="row">held-out: ${plain(suite.suite)} <div class="small muted">the same ${count(suite.cases)} cases</div></th>
        <td class="number">${decimal(suite.a, 3)}</td><td class="number">${decimal(suite.b, 3)}</td>
        <td><${Interval} mean=${suite.difference} interval=${suite.interval} label=${`difference on ${suite.suite}`} />
          <div class="small muted">${intervalWords(suite.difference, suite.interval)}, in parts of the range</div></td>
        <td><${Verdict} is=${suite.verdict} />${suite.missing && suite.missing.sessions !== null && html`<div class="small muted">about ${count(suite.missing.sessions)} more sessions</div>`}${suite.reason && html`<div class="small muted">${plain(suite.reason)}</div>`}</td></tr>`)}
    </tbody></table></div>
    ${found.held_out.length === 0 && html`<p class="muted">No suite was asked of both. Versions answer other tasks in training, so that a difference there may be one of the tasks: evaluate both on a suite (<code>slipstream evaluate ${found.b}</code>).</p>`}`;
}

/** What an interval of a difference says, in a word. */
function sure(interval) {
  if (!interval) return html`<span class="muted">not enough data</span>`;
  if (interval[0] > 0) return html`<${Badge} kind="good">higher<//>`;
  if (interval[1] < 0) return html`<${Badge} kind="bad">lower<//>`;
  return html`<${Badge}>not told apart<//>`;
}

const Task = ({ of }) => html`<a href=${link("tasks", [of.task_id], of.tenant === "default" ? {} : { tenant: of.tenant })}>${plain(of.task_id)}</a>${of.labels.map((label) => html` <${Badge} key=${label}>${plain(label)}<//>`)}`;

function Changed({ rows, first, name, empty }) {
  if (rows.length === 0) return html`<p class="muted">${empty}</p>`;
  return html`<div class="scroll"><table><thead><tr><th>${first}</th><th class="number">a</th><th class="number">b</th><th class="number">Difference</th></tr></thead>
    <tbody>${rows.map((row, place) => html`<tr key=${place}><th scope="row" class="wrap">${name(row)}</th><td class="number">${decimal(row.a, 3)}</td><td class="number">${decimal(row.b, 3)}</td>
      <td class="number">${signed(row.difference)}</td></tr>`)}</tbody></table></div>`;
}

function Tasks({ found }) {
  const { both, gained, lost } = found.tasks;
  const name = (row) => html`<${Task} of=${row} />`;
  return html`<section><h3>Tasks that both answered: ${count(both)}</h3>${both === 0
    ? html`<p class="muted">None: most tasks are answered by one version alone. Labels and suites compare what is alike.</p>`
    : html`<h4>Gained most</h4><${Changed} rows=${gained} first="Task" name=${name} empty="None gained." />
      <h4>Lost most</h4><${Changed} rows=${lost} first="Task" name=${name} empty="None lost." />`}</section>`;
}

function Labels({ found }) {
  return html`<section><h3>By label</h3>${found.labels.length === 0 ? html`<p class="muted">No label is on tasks of both. Marks give tasks labels (<code>POST /marks</code>).</p>` : html`
    <div class="scroll"><table><thead><tr><th>Label</th><th class="number">a</th><th class="number">b</th><th class="number">Difference</th><th>Says</th></tr></thead>
    <tbody>${found.labels.map((row) => html`<tr key=${row.label}><th scope="row" class="wrap"><a href=${link("tasks", [], { label: row.label })}>${plain(row.label)}</a></th>
      <td class="number">${withError(row.a.mean, row.a.standard_error)}<div class="small muted">${count(row.a.tasks)} tasks</div></td>
      <td class="number">${withError(row.b.mean, row.b.standard_error)}<div class="small muted">${count(row.b.tasks)} tasks</div></td>
      <td class="number">${signed(row.difference)}</td><td>${sure(row.interval)}</td></tr>`)}</tbody></table></div>`}</section>`;
}

function Cases({ suite }) {
  const name = (row) => plain(row.case);
  return html`<section><h3>Cases of ${plain(suite.suite)} <span class="muted small"><a href=${link("evaluations", [suite.evaluations.b])}>evaluation ${suite.evaluations.b}</a></span></h3>
    <h4>Gained most</h4><${Changed} rows=${suite.gained} first="Case" name=${name} empty="None gained." />
    <h4>Lost most</h4><${Changed} rows=${suite.lost} first="Case" name=${name} empty="None lost." /></section>`;
}

/** The next number of two digits above a mean: a filter for less than that has it. */
const above = (mean) => (Math.floor(mean * 100 + 1e-9) / 100 + 0.01).toFixed(2);

/** What the newer one still fails: where somebody who wants to know why begins. */
function Lowest({ found }) {
  return html`<section><h3>What version ${found.b} still fails: its lowest rewards</h3>${found.lowest.length === 0 ? html`<p class="muted">It has answered no run that is still stored.</p>` : html`
    <div class="scroll"><table><thead><tr><th>Task</th><th class="number">Runs</th><th class="number">Mean reward</th></tr></thead>
    <tbody>${found.lowest.map((row) => html`<tr key=${`${row.tenant} ${row.task_id}`}><th scope="row" class="wrap"><${Task} of=${row} /></th><td class="number">${count(row.runs)}</td><td class="number">${decimal(row.mean, 3)}</td></tr>`)}</tbody></table></div>
    <p><a href=${link("tasks", [], { version: found.b, reward_below: above(found.lowest[Math.min(4, found.lowest.length - 1)].mean) })}>All tasks with such rewards</a></p>`}</section>`;
}
