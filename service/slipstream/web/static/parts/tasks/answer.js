// One answer, and one run of the policy.
import { get, path } from "../../lib/api.js";
import { productionCommand } from "../../lib/curl.js";
import { count, exactTime, seconds } from "../../lib/format.js";
import { html, useEffect, useRef, useState } from "../../lib/html.js";
import { link } from "../../lib/router.js";
import { Badge, Copy, copyText, Failure, Loading, notice } from "../basics.js";
import { answerText, Diff } from "../diff.js";
import { Message, Text } from "../said.js";
import { words } from "./links.js";
import { Json } from "./raw.js";
import { Reward } from "./reward.js";

const STATES = { scored: "good", failed: "bad", quarantined: "bad", pending: "note", running: "note", open: "note", answered: "note" };
const MEANING = {
  pending: "it waits to be sent", running: "it was sent to the Explorer", open: "its agent makes calls",
  answered: "it waits for its reward", failed: "refused, out of attempts, or not to be scored",
  quarantined: "set apart, because the sidecar died several times while it had it",
};

/** A run with its reward, or why it has none. The children are what was answered. */
export function Run({ run, chosen, children }) {
  const card = useRef(null);
  const marked = chosen && (run.msg_id === chosen || (run.msg_ids || []).includes(chosen));
  useEffect(() => {
    if (marked) card.current.scrollIntoView({ block: "nearest" });
  }, [marked]);
  return html`<article ref=${card} class=${`answer ${marked ? "marked" : ""}`} aria-label=${`run ${run.run_id}`}>
    <div class="row apart"><h3>Run ${run.run_id}${run.policy_version !== null && html` <a class="muted" href=${link("versions", [run.policy_version])}>version ${run.policy_version}</a>`}</h3>
      <${Badge} kind=${STATES[run.state]} title=${MEANING[run.state]}>${words(run.state)}<//></div>
    <${Reward} reward=${run.reward} breakdown=${run.breakdown} />
    ${run.reason && html`<div class="failure"><${Text}>${run.reason}<//></div>`}
    ${run.reward === null && !run.reason && MEANING[run.state] && html`<p class="muted small">${MEANING[run.state]}</p>`}
    ${children}
  </article>`;
}

/** `before`: production's answer as a text, with which this one is compared. `inner`: within the card of a run. */
export function Answer({ title, badge, msgId, message, before, diff, usage, latency, production, inner, chosen, session, headers }) {
  const said = message ? answerText(message) : "";
  const body = message ? html`<${Message} message=${message} />`
    : session.content && msgId && html`<p class="muted small">The answer is not shown: it is too large, or not stored. Its details have more.</p>`;
  const shown = diff && message && before ? html`<${Diff} before=${before} after=${said}>${body}<//>` : body;
  const foot = html`<p class="foot muted small">${[latency, tokens(usage)].filter(Boolean).join(" · ")}
    ${msgId && html` <${Copy} text=${msgId}>copy the id<//>`}
    ${msgId && production && session.content && html`<button class="plain" onClick=${() => copyRequest(msgId, headers)}>copy the request as curl</button>`}</p>
    ${msgId && html`<${Details} msgId=${msgId} headers=${headers} />`}`;
  if (inner) return html`${shown}${foot}`;
  return html`<article class=${`answer ${chosen && chosen === msgId ? "marked" : ""}`} aria-label="production"><div class="row apart"><h3>${title}</h3>${badge}</div>${shown}${foot}</article>`;
}

/**
 * The answers of an agent that was run again: the last one is compared, those before it lead there. Its latency and
 * tokens are those of all its calls.
 */
export function Steps({ run, before, ...shared }) {
  const ids = run.msg_ids || [];
  const answers = run.answers || [];
  const last = ids.length - 1;
  const whole = [run.latency && seconds(run.latency), tokens(run.usage)].filter(Boolean).join(" · ");
  return html`${whole && html`<p class="muted small">The whole run: ${whole}</p>`}
    ${last > 0 && html`<details><summary>${last === 1 ? "An answer before the last" : `${count(last)} answers before the last`}</summary>
      ${ids.slice(0, last).map((id, index) => html`<${Answer} key=${id} msgId=${id} message=${answers[index]} inner ...${shared} diff=${false} />`)}</details>`}
    ${last >= 0 && html`<${Answer} msgId=${ids[last]} message=${answers[last]} before=${before} inner ...${shared} />`}
    ${last < 0 && html`<p class="muted small">The agent made no call.</p>`}`;
}

const tokens = (usage) => usage && `${count(usage.prompt_tokens)} + ${count(usage.completion_tokens)} tokens`;

async function copyRequest(msgId, headers) {
  try {
    const call = await get(path("calls", msgId), { headers });
    // of another dialect than chat completions: as the agent sent it
    const command = call.original ? productionCommand(call.dialect, call.original.request) : productionCommand("chat", call.request);
    await copyText(command, "Copied. With its key in the environment it goes through this sidecar to production.");
  } catch (failure) {
    notice(failure.message, "bad");
  }
}

/** What GET /calls/{msg_id} has beside: read when it is opened. */
function Details({ msgId, headers }) {
  const [call, setCall] = useState(null);
  const [error, setError] = useState(null);
  const read = () => {
    setError(null);
    get(path("calls", msgId), { headers }).then(setCall, setError);
  };
  return html`<details onToggle=${(event) => event.target.open && !call && read()}><summary class="small">Details</summary>
    ${error ? html`<${Failure} error=${error} again=${read} />` : call ? html`<${Whole} call=${call} />` : html`<${Loading} />`}</details>`;
}

function Whole({ call }) {
  const answer = call.answer || {};
  const choice = (answer.choices || [])[0] || {};
  const facts = [
    ["Id", call.msg_id], ["Began", call.started_at && exactTime(call.started_at)], ["Latency", call.latency && seconds(call.latency)],
    ["Dialect", call.dialect], ["Model", answer.model], ["Ended by", choice.finish_reason],
    ["Tokens", answer.usage && tokens(answer.usage)],
  ].filter(([, value]) => value);
  return html`<dl class="facts">${facts.map(([name, value]) => html`<dt>${name}</dt><dd class="wrap">${String(value)}</dd>`)}</dl><${Json} value=${call} />`;
}
