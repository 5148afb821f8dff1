// Versions side by side on the cases of a suite: their newest evaluations in columns.
import { get, query as asked } from "../../lib/api.js";
import { count, decimal, percent, seconds } from "../../lib/format.js";
import { html } from "../../lib/html.js";
import { useMark } from "../../lib/live.js";
import { useLoad } from "../../lib/load.js";
import { go, link } from "../../lib/router.js";
import { Empty, Loaded, Time } from "../basics.js";
import { Interval, MeanInterval, Verdict, intervalWords } from "../rollouts/evidence.js";
import { plain } from "../said.js";
import { Command } from "./command.js";

const READ = 200; // evaluations, the newest
const AT_FIRST = 3; // versions, if the address names none
const Z = 1.96; // standard errors of a 95 % interval

export function SideBySide({ query }) {
  const load = useLoad((signal) => get("evaluations" + asked({ limit: READ }), { signal }), [useMark("evaluations")]);
  return html`<section class="panel"><div class="row apart"><h2 id="evaluations">Evaluations side by side</h2><a href=${link("evaluations")}>all evaluations</a></div>
    <${Loaded} of=${load}>${({ evaluations, next }) => {
      const done = evaluations.filter((one) => one.used && one.result);
      return done.length === 0
        ? html`<${Empty} title="Nothing was evaluated yet"><p>An evaluation asks a version the cases of a suite, held-out sessions among them:</p><${Command} text="slipstream evaluate" /><//>`
        : html`<${Chosen} done=${done} query=${query} />${next !== null && html`<p class="muted small">Of the newest ${READ} evaluations.</p>`}`;
    }}<//></section>`;
}

/** The newest evaluation of each version on a suite, the newest version first. `done` has the newest first. */
function newestOf(done, suite) {
  const found = new Map();
  for (const one of done) if (one.suite === suite && !found.has(one.version)) found.set(one.version, one);
  return [...found.values()].sort((a, b) => b.version - a.version);
}

function Chosen({ done, query }) {
  const suites = [...new Set(done.map((one) => one.suite))].sort();
  const suite = suites.includes(query.suite) ? query.suite : done[0].suite;
  const evaluated = newestOf(done, suite);
  const named = (query.versions || "").split(",").filter(Boolean).map(Number);
  const chosen = query.versions === undefined ? evaluated.slice(0, AT_FIRST) : evaluated.filter((one) => named.includes(one.version));
  const look = (values) => go(link("data", [], values), { replace: true });
  const toggle = (version) => {
    const numbers = new Set(chosen.map((one) => one.version));
    if (!numbers.delete(version)) numbers.add(version);
    look({ suite, versions: [...numbers].sort((a, b) => a - b).join(",") || "none" });
  };
  return html`<form class="filters" onSubmit=${(event) => event.preventDefault()}>
      <label>Suite <select value=${suite} onChange=${(event) => look({ suite: event.target.value })}>${suites.map((one) => html`<option key=${one} value=${one}>${plain(one)}</option>`)}</select></label>
      <fieldset class="row"><legend>Versions</legend>${evaluated.map((one) => html`<label key=${one.version} class="inline">
        <input type="checkbox" checked=${chosen.includes(one)} onChange=${() => toggle(one.version)} />${one.version}</label>`)}</fieldset>
    </form>
    ${chosen.length < 2 ? html`<p class="muted">${evaluated.length < 2 ? "Only one version was evaluated on this suite; with a second one they can be compared." : "Choose two versions or more."}</p>` : null}
    ${chosen.length > 0 && html`<${Columns} suite=${suite} columns=${[...chosen].reverse()} />`}`;
}

const intervalOf = ({ mean, standard_error: error }) => (mean === null || error === null ? null : [mean - Z * error, mean + Z * error]);

/** The ends of the axis that the intervals of a row share. */
function axisOf(values) {
  const ends = values.filter(Boolean).flatMap((value) => [value.mean, ...(intervalOf(value) || [])]).filter((end) => end !== null);
  const [low, high] = [Math.min(...ends), Math.max(...ends)];
  const air = Math.max(0.02, (high - low) * 0.05);
  return { low: low - air, high: high + air };
}

function Columns({ suite, columns }) {
  const newest = columns[columns.length - 1];
  const first = columns[0];
  const arms = [...columns.map((one) => ({ key: one.version, arm: one.result.version })), ...(newest.result.production ? [{ key: "production", arm: newest.result.production }] : [])];
  const parts = [...new Set(arms.flatMap(({ arm }) => Object.keys(arm.components)))].sort();
  const row = (name, draw) => html`<tr key=${name}><th scope="row">${name}</th>${arms.map((each) => html`<td key=${each.key}>${draw(each)}</td>`)}</tr>`;
  const ofEach = (name, draw) => html`<tr key=${name}><th scope="row">${name}</th>${columns.map((one) => html`<td key=${one.version}>${draw(one)}</td>`)}${arms.length > columns.length && html`<td></td>`}</tr>`;
  const means = (name, pick) => {
    const axis = axisOf(arms.map(({ arm }) => pick(arm)));
    return row(name, ({ key, arm }) => html`<${Mean} value=${pick(arm)} axis=${axis} label=${`${name}, ${key === "production" ? key : `version ${key}`}`} />`);
  };
  return html`<div class="scroll"><table class="side-by-side">
    <thead><tr><th>Measure</th>${columns.map((one) => html`<th key=${one.version} scope="col"><a href=${link("versions", [one.version])}>version ${one.version}</a></th>`)}
      ${newest.result.production && html`<th scope="col">production <span class="muted">beside version ${newest.version}</span></th>`}</tr></thead>
    <tbody>
      ${means("Reward", (arm) => arm.reward)}
      ${parts.map((part) => means(plain(part), (arm) => arm.components[part]))}
      ${row("Succeed", ({ arm }) => percent(arm.success_rate, 1))}
      ${row("An answer takes", ({ arm }) => seconds(arm.latency))}
      ${row("Answers", ({ arm }) => outcomes(arm.answers))}
      ${ofEach("Cases", (one) => html`${count(one.result.cases)} <span class="muted small">in ${count(one.result.sessions)} sessions</span>`)}
      ${ofEach("Against production", (one) => (one.result.against_production
        ? html`<${Difference} of=${one.result.against_production} label="difference to production" />` : html`<span class="muted">not asked</span>`))}
      ${columns.length > 1 && ofEach(`Against version ${first.version}`, (one) => (one === first ? html`<span class="muted">–</span>`
        : html`<${Against} key=${`${first.id} ${one.id}`} a=${first.version} b=${one.version} suite=${suite} />`))}
      ${ofEach("Evaluation", (one) => html`<a href=${link("evaluations", [one.id])}>evaluation ${one.id}</a> <span class="muted small"><${Time} at=${one.ended_at} /></span>`)}
    </tbody></table></div>
    <p class="small muted">The lines of means are 95 % intervals: the mean ± 1.96 standard errors, clustered by session; those of a row share an axis. Differences are taken case by case, with intervals that hold at any time.
      Tool calls, plans and other models are compared by a report: <code>slipstream evaluate --model production --model policy --held-out live --report report</code></p>`;
}

function Mean({ value, axis, label }) {
  if (!value || value.mean === null) return html`<span class="muted">–</span>`;
  const interval = intervalOf(value);
  return html`${interval && html`<${MeanInterval} mean=${value.mean} interval=${interval} ...${axis} label=${label} />`}
    <div class="nowrap">${decimal(value.mean, 3)}${interval ? html` <span class="small muted">from ${decimal(interval[0], 3)} to ${decimal(interval[1], 3)}</span>` : html` <span class="small muted">one session: no interval</span>`}</div>`;
}

function Difference({ of, label }) {
  return html`<${Interval} mean=${of.difference} interval=${of.interval} label=${label} />
    <div class="small muted nowrap">${intervalWords(of.difference, of.interval)}</div><${Verdict} is=${of.verdict} />`;
}

/** Case by case, on those that both were asked. */
function Against({ a, b, suite }) {
  const load = useLoad((signal) => get("learning/compare" + asked({ a, b }), { signal }), [a, b]);
  return html`<${Loaded} of=${load}>${({ held_out: suites }) => {
    const found = suites.find((one) => one.suite === suite);
    return found ? html`<${Difference} of=${found} label=${`version ${b} against version ${a}`} /> <a class="small" href=${link("learning", [], { a, b })}>which cases</a>` : html`<span class="muted">not known</span>`;
  }}<//>`;
}

/** How many answers came to what: "11 scored, 1 failed". */
const outcomes = (answers) => Object.entries(answers).map(([outcome, number]) => `${count(number)} ${outcome.replaceAll("_", " ")}`).join(", ") || "–";
