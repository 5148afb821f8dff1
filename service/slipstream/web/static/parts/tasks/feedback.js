// What users and graders said about the answers of a task.
import { decimal } from "../../lib/format.js";
import { html } from "../../lib/html.js";
import { Badge, Time } from "../basics.js";
import { plain, Text } from "../said.js";
import { words } from "./links.js";

const MEANING = {
  policy: "on the policy's answer: it is its reward",
  production: "on production's answer: kept with it, and no run's reward",
  lane: "on a version's answer to a user: kept with it, and no run's reward",
  ignored: "kept, and without effect: its key has the weight 0",
};

export function Feedback({ task }) {
  if (!task.feedback || task.feedback.length === 0) return null;
  return html`<section class="panel"><h2>Feedback</h2><div class="scroll"><table>
    <thead><tr><th>When</th><th class="number">Reward</th><th>Said</th><th>From</th><th>State</th></tr></thead>
    <tbody>${task.feedback.map((each) => html`<tr key=${`${each.id} ${each.msg_id}`}>
      <td class="nowrap"><${Time} at=${each.created_at} /></td>
      <td class="number">${decimal(each.reward, 2)}</td>
      <td class="wrap">${each.thumbs && html`<${Badge}>thumbs ${each.thumbs}<//> `}${each.rating !== null && each.rating !== undefined && html`<${Badge}>rating ${each.rating}<//> `}
        ${each.comment && html`<${Text}>${each.comment}<//>`}</td>
      <td>${each.source && plain(each.source)}</td>
      <td>${words(each.state)}${each.matched_to && html` <span class="muted">${MEANING[each.state] || MEANING[each.matched_to]}</span>`}</td>
    </tr>`)}</tbody></table></div></section>`;
}
