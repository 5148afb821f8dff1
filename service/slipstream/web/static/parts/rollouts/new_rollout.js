// The form that opens a rollout. What is left empty has its default, which stands beside it.
import { get, post } from "../../lib/api.js";
import { html } from "../../lib/html.js";
import { useLoad } from "../../lib/load.js";
import { go, link } from "../../lib/router.js";
import { can } from "../../lib/session.js";
import { notice } from "../basics.js";
import { Field, typedNumber, typedShares, typedWhole, useForm, wrongAt } from "../fields.js";

const GUARDRAILS = [
  ["failure", "Failures", "0.02", true], ["latency", "Slow answers", "0.05", true], ["feedback", "Feedback", "0.05", true],
  ["format", "Format", "0.05", false], ["reward", "Reward", "0.05", false],
];

const START = {
  steps: "", min_units: "", min_time: "", grace: "", longest_session: "", bound: "", objective: "feedback", objective_margin: "", level: "",
  advance: "no_harm", approval: "automatic", replace: false,
  ...Object.fromEntries(GUARDRAILS.flatMap(([name, , , on]) => [[`on_${name}`, on], [`margin_${name}`, ""]])),
};

/** What is sent: the version, and of the plan what differs from the defaults. */
export function bodyOf(values) {
  const body = { version: typedWhole(values.version) };
  if (values.steps.trim()) body.steps = typedShares(values.steps);
  for (const name of ["min_time", "grace", "longest_session"]) if (values[name].trim()) body[name] = values[name].trim();
  for (const name of ["objective_margin", "level"]) if (values[name].trim()) body[name] = typedNumber(values[name]);
  if (values.min_units.trim()) body.min_units = typedWhole(values.min_units);
  if (values.objective.trim() !== "feedback") body.objective = values.objective.trim();
  for (const name of ["advance", "approval"]) if (values[name] !== START[name]) body[name] = values[name];
  const guardrails = {};
  for (const [name, , , on] of GUARDRAILS) {
    const margin = values[`margin_${name}`].trim();
    const bound = name === "latency" && values.bound.trim();
    if (!values[`on_${name}`]) {
      if (on) guardrails[name] = null;
    } else if (margin || bound || !on) {
      guardrails[name] = { ...(margin ? { margin: typedNumber(margin) } : {}), ...(bound ? { bound } : {}) };
      if (!margin && name === "failure") guardrails[name].margin = 0.02;
    }
  }
  if (Object.keys(guardrails).length) body.guardrails = guardrails;
  if (values.replace) body.replace = true;
  return body;
}

const AT_A_FIELD = ["version", "steps", "min_units", "min_time", "grace", "longest_session", "objective", "objective_margin", "level", "replace", "guardrails"];

export function NewRollout({ version = "" }) {
  const names = useVersionNames();
  const { values, set, error, busy, submit, text, choice } = useForm({ ...START, version }, (given) =>
    post("rollouts", bodyOf(given)).then((opened) => {
      notice(`Rollout ${opened.id} is open.`);
      go(link("rollouts", [opened.id]));
    }));
  if (!can("operate")) return html`<h1>Open a rollout</h1><p class="muted">It takes a key with the role operator.</p>`;
  return html`<h1>Open a rollout</h1>
    <p class="muted">The version answers a share of the users, which rises in steps while no harm is proven. It is rolled back when harm is, and promoted when it is proven better.</p>
    <form class="panel form" onSubmit=${submit}>
      ${error && !AT_A_FIELD.some((name) => wrongAt(error, name)) && html`<p class="failure" role="alert">${error.message}</p>`}
      <div class="fields">
        <${Field} name="version" label="Version" help="its number" error=${error}>${(ties) => html`<${VersionInput} ties=${ties} names=${names} value=${values.version} onInput=${set("version")} />`}<//>
        ${text("steps", "Steps", "shares of the users in per cent, each greater than the one before", "5, 20, 50, 95")}
        ${text("min_units", "Sessions of each arm in a step", "at least", "30")}
        ${text("min_time", "Time of a step", "at least, such as 10m or 1h", "10m")}
        ${text("grace", "A session counts after", "so long after its last call; longer than any answer takes", "5m")}
        ${text("longest_session", "Or after, at most", "so long after its first call", "1h")}
        ${text("objective", "Objective", "what has to be better for a promotion: feedback, reward or reward.COMPONENT", "feedback")}
        ${text("objective_margin", "Better by more than", "in parts of the range", "0")}
        ${text("level", "Error rate", "that you accept", "0.05")}
        ${choice("advance", "Goes on", undefined, [["no_harm", "while no harm is proven"], ["not_worse", "once each loss is refuted"]])}
        ${choice("approval", "Decides", undefined, [["automatic", "by itself"], ["by_hand", "by hand; a roll back by itself"]])}
      </div>
      <fieldset><legend>Guardrails: what the version must not harm, by more than the margin</legend>
        ${wrongAt(error, "guardrails") && html`<p class="small said-wrong" role="alert">${error.message}</p>`}
        <div class="guardrails">${GUARDRAILS.map(([name, words, margin]) => html`<div key=${name} class="row">
          <span class="check"><input id=${`on-${name}`} type="checkbox" checked=${values[`on_${name}`]} onChange=${set(`on_${name}`)} /> <label for=${`on-${name}`}>${words}</label></span>
          <label>margin <input class="short" value=${values[`margin_${name}`]} onInput=${set(`margin_${name}`)} placeholder=${margin} disabled=${!values[`on_${name}`]} aria-label=${`margin of ${name}`} /></label>
          ${name === "latency" && html`<label>slower than <input class="short" value=${values.bound} onInput=${set("bound")} placeholder="10s" disabled=${!values.on_latency} aria-label="slower than" /></label>`}
        </div>`)}</div>
      </fieldset>
      <div class="check"><input id="replace" type="checkbox" checked=${values.replace} onChange=${set("replace")} />
        <label for="replace">A version that is live by an earlier rollout goes back to production first</label></div>
      ${wrongAt(error, "replace") && html`<p class="small said-wrong" role="alert">${error.message}</p>`}
      <div class="row"><button class="main" disabled=${busy}>${busy ? "…" : "Open the rollout"}</button>
        <a href=${link("versions")}>Cancel</a></div>
    </form>`;
}

/** The newest versions, each with what is said of it beside its number. */
function useVersionNames() {
  const load = useLoad((signal) => get("versions?limit=50", { signal }), []);
  return (load.data ? load.data.versions : []).map((one) => [String(one.version), [...one.aliases, one.state].join(", ")]);
}

/** A field for a version, which knows the newest ones and the aliases. */
function VersionInput({ ties, names, value, onInput }) {
  const list = `${ties.id}-known`;
  return html`<input ...${ties} list=${list} value=${value} onInput=${onInput} inputmode="numeric" autocomplete="off" required />
    <datalist id=${list}>${names.map(([number, words]) => html`<option key=${number} value=${number}>${words}</option>`)}</datalist>`;
}
