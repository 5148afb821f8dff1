// One rollout: where it stands, what is missing, each guardrail, what was decided, and what can be done by hand.
import { get, path, post } from "../../lib/api.js";
import { count, decimal, exactTime, percent, seconds } from "../../lib/format.js";
import { html } from "../../lib/html.js";
import { useLive, useMark } from "../../lib/live.js";
import { useWatched } from "../../lib/load.js";
import { link } from "../../lib/router.js";
import { can } from "../../lib/session.js";
import { Badge, Loaded, Time, notice } from "../basics.js";
import { By, State, Stepper, Timeline } from "./decisions.js";
import { Confirm } from "../dialog.js";
import { Claim, Interval, intervalWords } from "./evidence.js";
import { plain } from "../said.js";

const READ_AGAIN = 5000; // ms; users are counted without a decision that would tell of it

export function OneRollout({ id }) {
  const load = useWatched((signal) => get(path("rollouts", id), { signal }), [id, useMark("rollouts")], READ_AGAIN, (found) => found.ended_at !== null);
  return html`<${Loaded} of=${load}>${(rollout) => html`<${Shown} rollout=${rollout} again=${load.again} />`}<//>`;
}

function Shown({ rollout, again }) {
  return html`
    <div class="row apart"><h1>Rollout ${rollout.id} of version ${rollout.version} <${State} is=${rollout.state} /></h1>
      <span class="muted">opened <${Time} at=${rollout.opened_at} /> by <${By} name=${rollout.opened_by} /> · ${" "}
        <a href=${link("versions", [rollout.version])}>version ${rollout.version}</a> · <a href=${link("rollouts")}>all rollouts</a></span></div>
    <section class="panel"><h2 class="hidden">Steps</h2><${Steps} rollout=${rollout} />
      ${rollout.asked && html`<${Asked} rollout=${rollout} again=${again} />`}
      ${can("operate") && html`<${Actions} rollout=${rollout} again=${again} />`}</section>
    <${Missing} rollout=${rollout} />
    <${Guardrails} rollout=${rollout} />
    <div class="panels">
      <section class="panel"><h2>Decisions</h2><${Timeline} decisions=${rollout.decisions} /></section>
      <${Plan} rollout=${rollout} />
    </div>`;
}

const ENDS = { rolled_back: "rolled back", aborted: "aborted" };

function Steps({ rollout }) {
  const { plan, state } = rollout;
  const over = rollout.ended_at !== null;
  const steps = [
    { name: "pending", below: "into the lane" },
    ...plan.steps.map((share, place) => ({ name: percent(share, share < 0.1 && (share * 100) % 1 ? 1 : 0), below: `step ${place + 1}` })),
    { name: "promoted", below: rollout.promoted_at ? exactTime(rollout.promoted_at).split(",")[0] : "95 %, watched" },
  ];
  let at = state === "pending" ? 0 : rollout.step + 1;
  if (state === "promoted") at = steps.length - 1;
  let kind = state === "holding" || state === "paused" ? "warn" : "";
  if (ENDS[state]) {
    at = rollout.promoted_at !== null ? steps.length - 1 : rollout.begun_at === null ? 0 : rollout.step + 1;
    kind = "bad";
    steps[at].below = ENDS[state];
  } else if (over) {
    kind = "past";
    steps[at].below = "until another took its place";
  } else if (kind) {
    steps[at].below = state;
  }
  return html`<${Stepper} steps=${steps} at=${at} kind=${kind} />`;
}

/** Why it is not promoted yet, and how many sessions are missing, in words. */
function Missing({ rollout }) {
  const { missing, state, evidence, plan } = rollout;
  const { serving } = useLive();
  const lines = [];
  if (rollout.ended_at === null && serving && serving.killed) lines.push("The kill switch is on: production answers everybody, and it holds, until the kill is taken back on the page Now.");
  if (rollout.ended_at !== null) lines.push(`It has ended: ${rollout.reason || state}.`);
  else if (state === "pending") lines.push(`No user is answered by it yet. ${missing.lane || rollout.reason || ""}`);
  else if (state === "paused") lines.push("It is paused. Its share stays, and nothing but a roll back is decided, until it is resumed.");
  else if (state === "promoted") lines.push("It is promoted. 5 % of the users stay with production, and detectors watch for a loss that begins later.");
  const goes = state === "running" || state === "holding";
  if (goes) lines.push(...going(missing, rollout, plan));
  return html`<section class="panel"><h2>${rollout.ended_at === null && state !== "promoted" ? "Why it is not promoted yet" : "How it stands"}</h2>
    ${lines.map((line) => html`<p key=${line}>${plain(line)}</p>`)}
    ${missing.reasons.length > 0 && html`<ul>${missing.reasons.map((reason) => html`<li key=${reason}>${plain(reason)}</li>`)}</ul>`}
    ${goes && afterwards(rollout).map((line) => html`<p key=${line}>${plain(line)}</p>`)}
    <p class="muted small">So far ${count(evidence.units.treatment)} sessions were answered by the version and ${count(evidence.units.control)} by production;
      ${" "}a session counts ${seconds(plan.grace)} after its last call. Version ${rollout.version} is number ${rollout.test.position} in the stream of tested versions,
      ${" "}${count(rollout.test.promotions)} before it were promoted: better has to be proven at the level ${Number(rollout.test.level).toPrecision(2)}.</p>
  </section>`;
}

function going(missing, rollout, plan) {
  const lines = [];
  const waits = [];
  if (missing.seconds > 0) waits.push(`${seconds(missing.seconds)} of its least time`);
  if (missing.units > 0) waits.push(`about ${count(missing.units)} more sessions`);
  const where = `Step ${rollout.step + 1} of ${plan.steps.length}`;
  lines.push(waits.length ? `${where} still needs ${waits.join(" and ")}.` : `${where} has its time and its sessions.`);
  if (missing.reasons.length) lines.push("To go on it lacks:");
  else if (rollout.state === "holding") lines.push(`It holds: ${rollout.reason}.`);
  return lines;
}

function afterwards(rollout) {
  const { evidence, plan } = rollout;
  const { better } = evidence.objective;
  const lines = [];
  if (better.proven) lines.push(`By ${evidence.objective.value} it is proven better.`);
  else if (better.missing === null) lines.push(`By ${evidence.objective.value} it is not proven better, and from what is known no number of sessions can be foreseen.`);
  else lines.push(`By ${evidence.objective.value} it is not proven better: about ${count(better.missing)} more sessions are missing, if it goes on as until now.`);
  if (plan.approval === "by_hand") lines.push("It goes on by hand alone (approval: by_hand).");
  else if (rollout.step < plan.steps.length - 1) lines.push(`After this step it goes on to ${percent(plan.steps[rollout.step + 1])} by itself; better has to be proven at the last one only.`);
  return lines;
}

const LESS_IS_BETTER = new Set(["failure", "latency"]);

function Guardrails({ rollout }) {
  const { evidence } = rollout;
  const objective = evidence.objective;
  return html`<section class="panel"><h2>Guardrails and objective</h2>
    <div class="scroll"><table>
      <thead><tr><th>Value</th><th class="number">Production</th><th class="number">Version</th><th>Difference and its interval</th>
        <th>Harm</th><th>Not worse</th><th>Better</th></tr></thead>
      <tbody>
        ${Object.entries(evidence.guardrails).map(([name, one]) => html`<${Measure} key=${name} name=${name} one=${one} alarm=${one.alarm} />`)}
        <${Measure} name=${objective.value} one=${objective} objective />
      </tbody>
    </table></div>
    <p class="muted small">Differences are of the version less production, in parts of the range. Failures and slow answers are better where they are fewer, all else where it is more.
      ${" "}The shaded side is a loss of more than the margin. An interval may be looked at at any time.</p>
  </section>`;
}

function Measure({ name, one, objective }) {
  const worse = LESS_IS_BETTER.has(name) ? 1 : -1;
  return html`<tr>
    <th scope="row">${plain(name)} ${objective ? html`<${Badge} kind="note">objective<//>` : html`<div class="small muted">margin ${one.margin}</div>`}
      ${one.alarm && html` <${Badge} kind="bad">alarm<//>`}</th>
    <td class="number">${decimal(one.means.control, 3)}</td><td class="number">${decimal(one.means.treatment, 3)}</td>
    <td><${Interval} mean=${one.difference} interval=${one.interval} margin=${objective && !one.margin ? null : one.margin} worse=${objective ? -1 : worse} label=${name} />
      <div class="small muted">${intervalWords(one.difference, one.interval)}; ${count(one.differences)} differences</div></td>
    <td>${objective ? html`<span class="muted">–</span>` : html`<${Claim} claim=${one.harm} kind="bad" name=${`harm by ${name}`} />`}</td>
    <td>${objective ? html`<span class="muted">–</span>` : html`<${Claim} claim=${one.not_worse} name=${`not worse by ${name}`} />`}</td>
    <td>${objective ? html`<${Claim} claim=${one.better} name=${`better by ${name}`} />` : html`<span class="muted">–</span>`}</td>
  </tr>`;
}

function Actions({ rollout, again }) {
  const { state, id, version } = rollout;
  if (rollout.ended_at !== null) return null;
  const act = (action, words) => async (values) => {
    const body = action === "promote" ? { force: Boolean(values && values.force) } : undefined;
    const after = await post(path("rollouts", id, action), body);
    again();
    notice(after.asked && after.asked.action === action ? "Asked for: a second person has to approve it." : words);
  };
  const going = state === "running" || state === "holding";
  const last = rollout.step >= rollout.plan.steps.length - 1;
  return html`<div class="row">
    ${going && html`<${Confirm} label="Pause" title="Stay at the share of now" act=${act("pause", "Paused.")}>
      <p>Version ${version} goes on answering ${percent(rollout.share, 1)} of the users. Harm that is proven still rolls it back.</p><//>`}
    ${state === "paused" && html`<${Confirm} label="Resume" title="Go on after the pause" act=${act("resume", "It goes on.")}>
      <p>The sidecar decides again, by what is proven.</p><//>`}
    ${going && !last && html`<${Confirm} label="Advance" title="Go on to the next step, whatever is missing" word=${String(version)} act=${act("advance", "It is at its next step.")}>
      <p>${percent(rollout.plan.steps[rollout.step + 1])} of the users will be answered by version ${version}, instead of ${percent(rollout.share, 1)}.</p><//>`}
    ${(going || state === "paused") && html`<${Confirm} label="Promote" kind="main" title=${`Promote version ${version}`} word=${String(version)} initial=${{ force: "" }} act=${act("promote", "Promoted.")}>
      ${(values, set) => html`<p>95 % of the users will be answered by version ${version}; the others stay with production, and are compared with them.</p>
        <p>Its verdict has to be better or equal. A promotion without proof does not count for the levels of later versions.</p>
        <span class="check"><input id="force" type="checkbox" onChange=${(event) => set("force")({ target: { value: event.target.checked ? "yes" : "" } })} />
          <label for="force">by force, whatever its verdict is</label></span>`}<//>`}
    <${Confirm} label=${state === "promoted" ? "Roll back" : "Abort"} kind="bad" title="Send all users back to production" word=${String(version)} act=${act("abort", "Production answers everybody.")}>
      <p>Production answers everybody from now on, and the rollout has ended. A new one can be opened.</p><//>
    <${Confirm} label="Kill" kind="bad" title="Have production answer everybody, at once" word=${String(version)} act=${() => post("serving/kill").then(again)} done="Killed: production answers everybody.">
      <p>The kill switch: no request goes to version ${version} any more, on all sidecars, until it is taken back on the page Now. The rollout stays as it is, and holds.</p><//>
  </div>`;
}

/** What waits for a second person. */
function Asked({ rollout, again }) {
  const { asked, id, version } = rollout;
  // what was read here is approved, and nothing that was asked for meanwhile
  const approve = () => post(path("rollouts", id, "approve"), { action: asked.action, force: asked.force, at: asked.at }).then(again);
  const forced = asked.force ? " by force" : "";
  return html`<div class="asked"><p><strong>${plain(asked.by || "somebody")}</strong> has asked to ${asked.action} it${forced}, <${Time} at=${asked.at} />. A second person approves it.</p>
    ${can("operate") && html`<${Confirm} key=${asked.at} label=${`Approve: ${asked.action}${forced}`} kind="main" title=${`Approve: ${asked.action} version ${version}${forced}`} word=${String(version)} act=${approve} done="Approved.">
      ${asked.force && html`<p><strong>By force</strong>: whatever the version's verdict is.</p>`}
      <p>Both names will stand in the decision's reason. It needs a key of another name than the one that asked.</p><//>`}</div>`;
}

function Plan({ rollout }) {
  const { plan } = rollout;
  const rows = [
    ["Steps", plan.steps.map((share) => percent(share, share < 0.1 ? 1 : 0)).join(", ")],
    ["Each step needs", `${count(plan.min_units)} sessions of each arm, ${seconds(plan.min_time)}`],
    ["A session counts", `${seconds(plan.grace)} after its last call, ${seconds(plan.longest_session)} after its first at most`],
    ["Objective", `${plan.objective}${plan.objective_margin ? `, by more than ${plan.objective_margin}` : ""}`],
    ["Goes on", plan.advance === "not_worse" ? "once each guardrail's loss is refuted" : "while no harm is proven"],
    ["Decides", plan.approval === "by_hand" ? "by hand; a roll back by itself" : "by itself"],
    ["Error rate (level)", String(plan.level)],
    ...(plan.guardrails.latency ? [["Slow is", `more than ${seconds(plan.guardrails.latency.bound)} until the first byte`]] : []),
    ["Live answers scored", `${percent(plan.scoring.share)} of the sessions, ${plan.scoring.calls_per_hour === null ? "without a limit" : `${count(plan.scoring.calls_per_hour)} an hour at most`}`],
  ];
  return html`<section class="panel"><h2>Plan</h2><table class="facts"><tbody>
    ${rows.map(([name, value]) => html`<tr key=${name}><th scope="row">${name}</th><td class="wrap">${plain(value)}</td></tr>`)}</tbody></table></section>`;
}
