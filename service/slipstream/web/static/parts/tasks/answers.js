// Production's answer to a call and the policy's runs of it, side by side.
import { seconds } from "../../lib/format.js";
import { html, useState } from "../../lib/html.js";
import { link } from "../../lib/router.js";
import { Badge } from "../basics.js";
import { answerText } from "../diff.js";
import { useKeys } from "../keys.js";
import { Answer, Run, Steps } from "./answer.js";
import { Delivery } from "./delivery.js";
import { words } from "./links.js";

export function Calls({ task, chosen, choose, answer, session, headers }) {
  const [diff, setDiff] = useState(true);
  useKeys({ d: [() => setDiff((now) => !now), "show or hide what differs from production's answer"] });
  const call = task.calls[chosen];
  const groups = call ? task.groups.filter((group) => group.position === call.position) : [];
  const replays = task.groups.filter((group) => group.kind === "agent_replay");
  const last = task.calls[task.calls.length - 1];
  const shared = { diff: diff && session.content, chosen: answer, session, headers };
  return html`
    <div class="row apart">${call ? html`<${Choice} calls=${task.calls} groups=${task.groups} chosen=${chosen} choose=${choose} />` : html`<span></span>`}
      ${session.content && html`<label class="check"><input type="checkbox" checked=${diff} onChange=${() => setDiff(!diff)} /> differences</label>`}</div>
    ${call && html`<${Shadow} task=${task} call=${call} groups=${groups} replayed=${replays.length > 0} ...${shared} />`}
    ${replays.toReversed().map((group, index) => html`<section key=${group.group_id} class="panel"><h2>${group.runs.length === 1 ? "Replay" : "Replays"} of the agent</h2>
      <${Delivery} group=${group} />
      <div class="answers">${index === 0 && last && html`<${Production} call=${last} ...${shared} />`}
        ${group.runs.map((run) => html`<${Replayed} key=${run.run_id} run=${run} production=${last && last.answer} ...${shared} />`)}</div>
    </section>`)}
    ${!call && replays.length === 0 && html`<section class="panel"><p class="muted">No call is stored.</p></section>`}`;
}

/** Which call's answers are shown. */
function Choice({ calls, groups, chosen, choose }) {
  if (calls.length < 2) return html`<span></span>`;
  const asked = new Set(groups.map((group) => group.position));
  return html`<label class="inline">Answers to call
    <select value=${String(chosen)} onChange=${(event) => choose(Number(event.target.value))}>
      ${calls.map((call) => html`<option key=${call.position} value=${String(call.position)}>${call.position + 1} of ${calls.length}${asked.has(call.position) ? "" : " (no runs)"}</option>`)}
    </select></label>`;
}

function Shadow({ task, call, groups, replayed, ...shared }) {
  const [newest, ...before] = groups.toReversed();
  return html`<section class="panel"><h2>Answers${task.calls.length > 1 && ` to call ${call.position + 1}`}</h2>
    ${newest ? html`<${Delivery} group=${newest} />` : !replayed && html`<p class="muted">${whyNoRun(task, call)}</p>`}
    <div class="answers"><${Production} call=${call} ...${shared} />
      ${newest && newest.runs.map((run) => html`<${Shown} key=${run.run_id} run=${run} production=${call.answer} ...${shared} />`)}</div>
    ${before.map((group) => html`<details key=${group.group_id}><summary>An earlier group: ${words(group.state)}</summary>
      <${Delivery} group=${group} /><div class="answers">${group.runs.map((run) => html`<${Shown} key=${run.run_id} run=${run} production=${call.answer} ...${shared} />`)}</div></details>`)}
  </section>`;
}

function whyNoRun(task, call) {
  if (!task.decided) return "The task is not complete yet: whether the policy is asked too is decided then.";
  if (!task.selected) return `The task was not selected (${words(task.reason)}), so the policy was not asked.`;
  if (call.problem) return `The policy cannot be asked this: ${words(call.problem)}.`;
  return "The task is selected. Its runs have not begun, or did not fit into runs.queue.";
}

function Production({ call, ...shared }) {
  const by = call.answered_by === "production" ? "Production" : html`Answered by <a href=${link("versions", [call.answered_by.split(":")[1]])}>${call.answered_by.replace(":", " ")}</a>`;
  return html`<${Answer} title=${by} msgId=${call.msg_id} message=${call.answer} usage=${call.usage} latency=${seconds(call.latency)} production
    badge=${call.problem && html`<${Badge} kind="warn" title="The policy cannot be asked this.">${words(call.problem)}<//>`} ...${shared} diff=${false} />`;
}

function Shown({ run, production, ...shared }) {
  return html`<${Run} run=${run} ...${shared} chosen=${shared.chosen}>
    <${Answer} msgId=${run.msg_id} message=${run.answer} before=${production && answerText(production)} usage=${run.usage} latency=${run.latency && seconds(run.latency)} inner ...${shared} /><//>`;
}

function Replayed({ run, production, ...shared }) {
  return html`<${Run} run=${run} ...${shared}><${Steps} run=${run} before=${production && answerText(production)} ...${shared} /><//>`;
}
