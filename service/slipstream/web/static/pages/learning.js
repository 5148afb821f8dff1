// Does it learn? Rewards by version, what training says of itself, and two versions side by side.
import { get, query } from "../lib/api.js";
import { decimal, percent, seconds } from "../lib/format.js";
import { html } from "../lib/html.js";
import { useMark } from "../lib/live.js";
import { useLoad } from "../lib/load.js";
import { go, link } from "../lib/router.js";
import { Empty, Loaded } from "../parts/basics.js";
import { Chart } from "../parts/chart.js";
import { Compare } from "../parts/learning/compare.js";
import { LearningTable } from "../parts/learning/table.js";
import { METRICS } from "../parts/versions/metrics.js";

const SPANS = [20, 50, 200];
const Z = 1.96; // standard errors of a 95% interval

export default function Learning({ route }) {
  const span = SPANS.includes(Number(route.query.last)) ? Number(route.query.last) : 50;
  const marks = useMark("versions") + useMark("evaluations") + useMark("rollouts");
  const load = useLoad((signal) => get("learning" + query({ limit: span }), { signal }), [span, marks]);
  const look = (event) => go(link("learning", [], { ...route.query, last: event.target.value }), { replace: true });
  return html`<div class="row apart"><h1>Learning</h1>
      <label>Show <select value=${span} onChange=${look}>${SPANS.map((number) => html`<option key=${number} value=${number}>the newest ${number} versions</option>`)}</select></label></div>
    <${Loaded} of=${load}>${(found) => found.versions.length === 0
      ? html`<section class="panel"><${Empty} title="No version yet"><p>The curve begins with the first version that the Explorer serves. Whether all is ready for it:</p><pre>slipstream doctor</pre><//></section>`
      : html`<${Curves} found=${found} />
        <${Compare} versions=${found.versions} a=${route.query.a} b=${route.query.b} rest=${route.query} />`}<//>`;
}

/** Lists for a chart, the oldest version first. */
function lists(versions, pick) {
  return versions.map(pick).map((value) => (value === undefined || Number.isNaN(value) ? null : value));
}

function withBand(versions, pick, label, colour, more = {}) {
  const each = versions.map(pick);
  const part = (sign) => each.map((one) => (one && one.mean !== null && one.standard_error !== null ? one.mean + sign * Z * one.standard_error : null));
  const lines = [each.map((one) => (one ? one.mean : null)), part(-1), part(1)];
  return {
    label,
    there: each.some((one) => one && one.mean !== null),
    lines,
    series: (first) => [
      { label, colour, gaps: true, ...more },
      { label: "", colour, hidden: true, gaps: true },
      { label: "", colour, hidden: true, gaps: true, band: [first + 2, first + 1] },
    ],
  };
}

const suites = (versions) => [...new Set(versions.flatMap((one) => one.held_out.map((each) => each.suite)))];

function Curves({ found }) {
  const versions = [...found.versions].reverse();
  const suite = suites(versions)[0];
  const heldOut = (one) => one.held_out.find((each) => each.suite === suite) || null;
  const curves = [
    withBand(versions, (one) => (one.training.count ? one.training : null), "training", "series-1"),
    ...(suite ? [
      withBand(versions, heldOut, `held-out (${suite})`, "series-2", { points: true, line: true }),
      { ...withBand(versions, (one) => (heldOut(one) || {}).production || null, `production on ${suite}`, "series-3", { dash: [6, 4], points: true, line: true }), plain: true },
    ] : []),
    withBand(versions, (one) => one.live, "live users", "series-4", { points: true, line: true }),
  ].filter((curve) => curve.there);
  const data = [versions.map((one) => one.version)];
  const series = [];
  for (const curve of curves) {
    if (curve.plain) {
      data.push(curve.lines[0]);
      series.push(curve.series(0)[0]);
    } else {
      series.push(...curve.series(data.length));
      data.push(...curve.lines);
    }
  }
  return html`<section class="panel"><h2>Reward by version</h2>
      ${curves.length === 0 ? html`<p class="muted">No run, no case and no user's answer has a reward yet.</p>`
        : html`<${Chart} label=${`Mean reward by version: ${curves.map((curve) => curve.label).join(", ")}. The table below has the numbers.`}
            data=${data} series=${series} height=${280} x=${{ label: "version", whole: true }} y=${{ label: "reward", range: padded(found.range, data) }} />`}
      <${Words} versions=${versions} suite=${suite} />
      <details><summary>The same in numbers</summary><${LearningTable} versions=${found.versions} /></details></section>
    <${Training} versions=${versions} />`;
}

/** The part of the range of rewards that is used, with a margin: so that a change shows. */
function padded(range, data) {
  const all = data.slice(1).flat().filter((value) => value !== null);
  if (all.length === 0) return range;
  const low = Math.min(...all);
  const high = Math.max(...all);
  const air = Math.max(0.05 * (range[1] - range[0]), 0.1 * (high - low));
  return [Math.max(range[0], low - air), Math.min(range[1], high + air)];
}

/** What is missing in the chart, and what makes it. */
function Words({ versions, suite }) {
  const training = versions.some((one) => one.training.count > 0);
  const live = versions.some((one) => one.live !== null);
  const production = versions.some((one) => one.held_out.some((each) => each.production));
  return html`<p class="small muted">The bands are 95 % intervals: the mean ± 1.96 standard errors. Runs of one prompt are alike, so that the band of training is narrower than it should be.</p>
    ${!training && html`<p><strong>Training</strong> is missing: no run has a reward. See <a href=${link("now")}>what is selected and run</a>.</p>`}
    ${!suite && html`<p><strong>Held-out</strong> is missing: no version was evaluated. List a suite under <code>evaluation.suites</code>, with <code>every: 2</code> for each second version, or run <code>slipstream evaluate</code>.</p>`}
    ${suite && !production && html`<p class="muted">Production was not asked on a suite: with <code>production</code> of the suite its reward is a line here.</p>`}
    ${!live && html`<p><strong>Live</strong> is missing: no user's answer was scored. <a href=${link("rollouts", ["new"])}>A rollout</a> whose objective is reward, or that has the guardrail reward, scores answers of users.</p>`}`;
}

const between = (versions) => {
  const made = new Map(versions.map((one) => [one.version, one.made_at ?? one.served_at]));
  return (one) => {
    const from = made.get(one.parent);
    const to = made.get(one.version);
    return from && to && to > from ? to - from : null;
  };
};

function Training({ versions }) {
  const metric = (name) => lists(versions, (one) => (one.metrics ? one.metrics[name] : null));
  const group = (name) => lists(versions, (one) => (one.groups ? one.groups[name] : null));
  const of = (name) => METRICS.find((one) => one.name === name);
  const length = lists(versions, (one) => (one.groups && one.groups.tokens !== null ? one.groups.tokens
    : one.metrics && one.metrics.tokens && one.trained_on && one.trained_on.experiences ? one.metrics.tokens / one.trained_on.experiences : null));
  const step = metric("seconds");
  const known = step.some((value) => value !== null);
  const charts = [
    ["Spread within groups", "the standard deviation of the rewards of one prompt's runs; 0 teaches nothing", group("spread"), (value) => decimal(value, 2), "groups whose runs have rewards"],
    ["Groups without a difference", "all runs of the group have one reward: training learns nothing from it", group("alike"), (value) => percent(value), "groups whose runs have rewards"],
    ["Length of answers", "tokens, the mean", length, (value) => decimal(value, 0), "answers that say their tokens (usage)"],
    ["Time of an answer", "the mean, from request to end", group("seconds"), seconds, "runs with a reward"],
    ...["kl_to_sampling", "entropy", "clip_fraction", "grad_norm"].map((name) => [of(name).chart, of(name).help, metric(name), of(name).format, "the embedded Trainer, which writes it with each version; Trinity writes it for its monitor alone"]),
    known ? ["Time a step", "of its gradient", step, seconds, ""]
      : ["Time from version to version", "with waiting for experiences", lists(versions, between(versions)), seconds, "two versions, one made from the other"],
  ];
  const numbers = versions.map((one) => one.version);
  const missing = charts.filter(([, , values]) => values.every((value) => value === null));
  return html`<h2 class="apart">How training goes</h2><div class="panels small-charts">
      ${charts.filter((chart) => !missing.includes(chart)).map(([title, help, values, format]) => html`<section key=${title} class="panel">
        <h3 title=${help}>${title} <span class="muted small">${newest(values, format)}</span></h3>
        <${Chart} label=${`${title} by version: ${help}. Newest: ${newest(values, format)}`} data=${[numbers, values]} series=${[{ label: title, gaps: true, format }]} height=${140}
          x=${{ whole: true }} y=${{ format }} legend=${false} />
        <p class="muted small">${help}</p></section>`)}
    </div>
    ${missing.length > 0 && html`<section class="panel"><h3>Not known</h3><ul>${missing.map(([title, , , , needs]) => html`<li key=${title}>${title}: it takes ${needs}.</li>`)}</ul></section>`}`;
}

function newest(values, format) {
  const last = [...values].reverse().find((value) => value !== null);
  return last === undefined ? "" : format(last);
}
