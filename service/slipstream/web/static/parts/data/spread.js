// How the numbers of a data set's rows are distributed.
import { count } from "../../lib/format.js";
import { html } from "../../lib/html.js";

const WIDTH = 220;
const HEIGHT = 26;

const NAMES = ["Least", "5 %", "25 %", "50 %", "75 %", "95 %", "Most"];

/** A number of any size in four digits. */
const short = (value) => (Math.abs(value) >= 10_000 ? count(Math.round(value)) : String(Number(value.toPrecision(4))));

/** `rows`: [name, spread] of one unit each; a spread is null where nothing has a value. Those of one `axis` share it. */
export function Spreads({ rows }) {
  const known = rows.filter((row) => row.spread);
  if (known.length === 0) return html`<p class="muted">No row has a reward or a length.</p>`;
  return html`<div class="scroll" tabindex="0" role="region" aria-label="Distributions"><table>
    <thead><tr><th>Of</th><th>Distribution</th><th class="number">Values</th><th class="number">Mean</th>${NAMES.map((name) => html`<th key=${name} class="number">${name}</th>`)}</tr></thead>
    <tbody>${known.map(({ name, axis, spread }) => html`<tr key=${name}><th scope="row">${name}</th>
      <td><${Box} name=${name} spread=${spread} range=${rangeOf(known.filter((row) => row.axis === axis))} /></td>
      <td class="number">${count(spread.count)}</td><td class="number">${short(spread.mean)}</td>
      ${[spread.least, ...spread.quantiles, spread.most].map((value, place) => html`<td key=${place} class="number">${short(value)}</td>`)}</tr>`)}</tbody></table></div>`;
}

const rangeOf = (rows) => [Math.min(...rows.map((row) => row.spread.least)), Math.max(...rows.map((row) => row.spread.most))];

/** A line from least to most, a bar from 5 to 95 %, a box from 25 to 75 %, a mark at the median. */
function Box({ name, spread, range: [low, high] }) {
  const x = (value) => (high > low ? ((value - low) / (high - low)) * (WIDTH - 8) + 4 : WIDTH / 2);
  const [p5, p25, p50, p75, p95] = spread.quantiles;
  const bar = (from, to, height, kind) => html`<rect class=${kind} x=${x(from)} y=${(HEIGHT - height) / 2} width=${Math.max(1, x(to) - x(from))} height=${height} />`;
  return html`<svg class="interval" viewBox=${`0 0 ${WIDTH} ${HEIGHT}`} width=${WIDTH} height=${HEIGHT} role="img"
      aria-label=${`${name}: half of the values are from ${short(p25)} to ${short(p75)}, the median is ${short(p50)}`}>
    <line class="zero" x1=${x(spread.least)} y1=${HEIGHT / 2} x2=${x(spread.most)} y2=${HEIGHT / 2} />
    ${bar(p5, p95, 4, "outer")}${bar(p25, p75, 12, "inner")}
    <line class="median" x1=${x(p50)} y1="4" x2=${x(p50)} y2=${HEIGHT - 4} />
  </svg>`;
}
