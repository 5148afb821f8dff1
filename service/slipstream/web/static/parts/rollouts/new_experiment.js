// The form that starts an experiment. What is left empty has its default, which stands beside it.
import { post } from "../../lib/api.js";
import { html } from "../../lib/html.js";
import { go, link } from "../../lib/router.js";
import { can } from "../../lib/session.js";
import { notice } from "../basics.js";
import { typedNumber, typedShare, typedWhole, useForm, wrongAt } from "../fields.js";

const START = { name: "", b: "", share: "", metrics: "", primary: "", margin: "", ends: "evidence", duration: "", min_units: "", decision: "report_only", level: "", grace: "", force: false };

/** What is sent: the name and the arm, and of the plan what differs from the defaults. */
export function bodyOf(values) {
  const body = { name: values.name, b: /^[0-9]+$/.test(values.b.trim()) ? `version:${values.b.trim()}` : values.b.trim() };
  if (values.share.trim()) body.share = typedShare(values.share);
  if (values.metrics.trim()) body.metrics = values.metrics.split(/[\s,;]+/).filter(Boolean);
  for (const name of ["primary", "duration", "grace"]) if (values[name].trim()) body[name] = values[name].trim();
  for (const name of ["margin", "level"]) if (values[name].trim()) body[name] = typedNumber(values[name]);
  if (values.min_units.trim()) body.min_units = typedWhole(values.min_units);
  for (const name of ["ends", "decision"]) if (values[name] !== START[name]) body[name] = values[name];
  if (values.force) body.force = true;
  return body;
}

const AT_A_FIELD = Object.keys(START);

export function NewExperiment({ version = "" }) {
  const { values, set, error, busy, submit, text, choice } = useForm({ ...START, b: version }, (given) =>
    post("experiments", bodyOf(given)).then((started) => {
      notice(`Experiment ${started.id} has started.`);
      go(link("experiments", [started.id]));
    }));
  if (!can("operate")) return html`<h1>Start an experiment</h1><p class="muted">It takes a key with the role operator.</p>`;
  return html`<h1>Start an experiment</h1>
    <p class="muted">Production (a) and a version (b) answer users side by side, split by session. A version that may do harm is canaried by <a href=${link("rollouts", ["new"])}>a rollout</a> first.</p>
    <form class="panel form" onSubmit=${submit}>
      ${error && !AT_A_FIELD.some((name) => wrongAt(error, name)) && html`<p class="failure" role="alert">${error.message}</p>`}
      <div class="fields">
        ${text("name", "Name", "for people", "week", { required: true })}
        ${text("b", "Version (b)", "its number, or an alias", "8", { required: true })}
        ${text("share", "Share of b", "of the users, in per cent", "50")}
        ${text("metrics", "Metrics", "of failure, latency, cost, feedback, reward, reward.COMPONENT", "feedback, failure, latency")}
        ${text("primary", "Decided by", "one of the metrics", "the first")}
        ${text("margin", "A difference of at most this is none", "in parts of the metric's range", "0")}
        ${choice("ends", "Ends", undefined, [["evidence", "as soon as enough is proven"], ["duration", "after its duration"], ["by_hand", "by hand: the split stays"]])}
        ${text("duration", "Duration", "such as 7d; needed where it ends by it", "none")}
        ${text("min_units", "Sessions of each arm", "that a decision needs at least", "30")}
        ${choice("decision", "When b wins", undefined, [["report_only", "it is reported"], ["switch_traffic", "b gets the traffic"]])}
        ${text("level", "Error rate", "that you accept", "0.05")}
        ${text("grace", "A session counts after", "so long after its last call", "5m")}
      </div>
      <div class="check"><input id="force" type="checkbox" checked=${values.force} onChange=${set("force")} />
        <label for="force">b may get the traffic whatever the verdict for it is</label></div>
      <div class="row"><button class="main" disabled=${busy}>${busy ? "…" : "Start the experiment"}</button>
        <a href=${link("experiments")}>Cancel</a></div>
    </form>`;
}
