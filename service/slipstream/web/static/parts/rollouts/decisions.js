// What was decided, when, by whom and why; and the way from one state to the next.
import { percent } from "../../lib/format.js";
import { html } from "../../lib/html.js";
import { Badge, Time } from "../basics.js";
import { plain } from "../said.js";

export const STATES = {
  pending: "", running: "note", holding: "warn", paused: "warn", promoted: "good", rolled_back: "bad", aborted: "bad",
  settling: "note", decided: "good", inconclusive: "", stopped: "", failed: "bad", done: "good", changed: "warn",
  seen: "", kept: "", tested: "", candidate: "note", live: "good", retired: "", rejected: "bad",
};

/** The word of a state, in its colour. */
export function State({ is }) {
  return html`<${Badge} kind=${STATES[is] || ""}>${is.replaceAll("_", " ")}<//>`;
}

/** Who decided: a key, the sidecar itself, or somebody where no key is asked for. */
export function By({ name }) {
  if (name === "(decider)") return html`<span class="muted">the sidecar</span>`;
  return name ? html`<span>${plain(name)}</span>` : html`<span class="muted">no key</span>`;
}

/** `decisions`, the newest first. */
export function Timeline({ decisions }) {
  return html`<ol class="timeline">${[...decisions].reverse().map((one) => html`<li key=${`${one.at} ${one.action}`}>
    <div class="row"><strong>${one.action.replaceAll("_", " ")}</strong>
      ${one.share > 0 && html`<span class="muted">${percent(one.share, 1)} of the users</span>`}
      <span class="muted small"><${Time} at=${one.at} />, by <${By} name=${one.key} /></span></div>
    <p class="wrap">${plain(one.reason || "")}</p>
  </li>`)}</ol>`;
}

/** Steps from left to right: `{name, below}` each; `at` is the one that is now, drawn as `kind`. */
export function Stepper({ steps, at, kind = "" }) {
  return html`<ol class="stepper">${steps.map((step, place) => html`
    <li key=${place} class=${place < at ? "past" : place === at ? `now ${kind}` : ""} aria-current=${place === at ? "step" : undefined}>
      <span class="name">${step.name}</span>${step.below && html`<span class="below">${step.below}</span>`}</li>`)}</ol>`;
}
