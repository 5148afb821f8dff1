// What is proven about two that are compared: an interval against a margin, and evidence towards what is needed.
import { count, decimal } from "../../lib/format.js";
import { html } from "../../lib/html.js";
import { Badge, Bar } from "../basics.js";

const WIDTH = 220;
const HEIGHT = 26;

/** A number with its sign. */
export const signed = (value, digits = 3) => (value === null || value === undefined ? "–"
  : `${value > 0 ? "+" : value < 0 ? "−" : "±"}${Math.abs(value).toFixed(digits)}`);

/** "+0.120, from −0.010 to +0.250" */
export function intervalWords(mean, interval, digits = 3) {
  if (!interval || interval[0] === null) return mean === null || mean === undefined ? "nothing is known yet" : signed(mean, digits);
  return `${signed(mean, digits)}, from ${signed(interval[0], digits)} to ${signed(interval[1], digits)}`;
}

/**
 * A difference with its interval, drawn around 0. `margin`: the size of a loss that matters; `worse`: 1 if a loss is
 * above 0 (failures, latency), -1 if it is below; the side of the loss is shaded from the margin on. `most`: the
 * greatest difference that there can be.
 */
export function Interval({ mean, interval, margin = null, worse = -1, most = 1, label }) {
  if (!interval || interval[0] === null) return html`<span class="muted">–</span>`;
  const reach = Math.min(most, 1.15 * Math.max(Math.abs(interval[0]), Math.abs(interval[1]), 2 * (margin || 0), most / 50));
  const x = along(-reach, reach);
  const edge = margin === null ? null : x(worse * margin);
  return html`<${Drawn} label=${`${label}: ${intervalWords(mean, interval)}${margin === null ? "" : `; a loss of ${margin} matters`}`} mean=${mean} interval=${interval} x=${x}>
    ${edge !== null && html`<rect class="harm" x=${worse > 0 ? edge : 0} y="0" width=${worse > 0 ? WIDTH - edge : edge} height=${HEIGHT} />
      <line class="margin" x1=${edge} y1="0" x2=${edge} y2=${HEIGHT} />`}
    <line class="zero" x1=${x(0)} y1="0" x2=${x(0)} y2=${HEIGHT} /><//>`;
}

/** A mean with its interval, on an axis that others share: its ends are `low` and `high`. */
export function MeanInterval({ mean, interval, low, high, label }) {
  return html`<${Drawn} label=${`${label}: ${decimal(mean, 3)}, from ${decimal(interval[0], 3)} to ${decimal(interval[1], 3)}`} mean=${mean} interval=${interval} x=${along(low, high)} />`;
}

/** Where a value between two stands in the picture. */
const along = (low, high) => (value) => ((Math.max(low, Math.min(high, value)) - low) / (high - low || 1)) * (WIDTH - 8) + 4;

function Drawn({ label, mean, interval, x, children }) {
  return html`<svg class="interval" viewBox=${`0 0 ${WIDTH} ${HEIGHT}`} width=${WIDTH} height=${HEIGHT} role="img" aria-label=${label}>
    ${children}
    <line class="range" x1=${x(interval[0])} y1=${HEIGHT / 2} x2=${x(interval[1])} y2=${HEIGHT / 2} />
    ${interval.map((end) => html`<line class="range" x1=${x(end)} y1=${HEIGHT / 2 - 5} x2=${x(end)} y2=${HEIGHT / 2 + 5} />`)}
    ${mean !== null && mean !== undefined && html`<circle class="mean" cx=${x(mean)} cy=${HEIGHT / 2} r="4" />`}
  </svg>`;
}

/** How far the evidence for a claim has come: `proven` in words, a bar, and about how many units are missing. */
export function Claim({ claim, kind = "", name }) {
  if (!claim) return html`<span class="muted">–</span>`;
  const part = claim.needed > 0 ? claim.log_e / claim.needed : 0;
  const figures = `${decimal(Math.max(0, claim.log_e))} of ${decimal(claim.needed)}`;
  return html`<div class="claim" title="the logarithm of the evidence, and what is needed">
    ${claim.proven ? html`<${Badge} kind=${kind || "good"}>proven<//>`
      : html`<span class="nowrap"><${Bar} value=${part} kind=${kind} label=${`${name}: evidence ${figures}`} /> <span class="small muted">${figures}</span></span>`}
    ${!claim.proven && claim.missing !== null && claim.missing !== undefined && html`<div class="small muted">about ${count(claim.missing)} more sessions</div>`}
  </div>`;
}

const VERDICTS = { better: "good", equal: "note", worse: "bad", not_enough_data: "" };

/** better, equal, worse, not enough data. */
export function Verdict({ is, title }) {
  if (!is) return html`<span class="muted">–</span>`;
  return html`<${Badge} kind=${VERDICTS[is] || ""} title=${title}>${is.replaceAll("_", " ")}<//>`;
}
