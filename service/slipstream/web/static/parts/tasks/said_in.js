// What was said in a task, with a way from each answer of production to the runs beside it.
import { html } from "../../lib/html.js";
import { Conversation } from "./conversation.js";
import { answerText } from "../diff.js";

/** The conversation with its last answer, and which call each answer belongs to. */
function whole(task) {
  const last = task.calls[task.calls.length - 1];
  const said = Array.isArray(task.conversation) ? task.conversation : [];
  const messages = last && last.answer ? [...said, last.answer] : said;
  const calls = new Map();
  let at = messages.length - 1;
  for (let position = task.calls.length - 1; position >= 0; position -= 1) {
    const { answer } = task.calls[position];
    if (!answer) break;
    const text = answerText(answer);
    while (at >= 0 && !(messages[at] && messages[at].role === "assistant" && answerText(messages[at]) === text)) at -= 1;
    if (at < 0) break; // an agent that sends its own form of what it was answered
    calls.set(at, position);
    at -= 1;
  }
  return { messages, calls };
}

export function Said({ task, chosen, choose, content }) {
  if (!content || !("conversation" in task)) {
    return html`<section class="panel"><h2>Conversation</h2><p>What was said is for keys with the role admin. This key sees ids, states,
      times and rewards.</p></section>`;
  }
  const { messages, calls } = whole(task);
  const runs = (position) => task.groups.filter((group) => group.position === position).reduce((sum, group) => sum + group.runs.length, 0);
  const below = (index) => {
    const position = calls.get(index);
    if (position === undefined || task.calls.length < 2) return null;
    return html`<p class="of-call"><button class="plain small" aria-pressed=${position === chosen} onClick=${() => choose(position)}>
      call ${position + 1}: ${runs(position) === 0 ? "no run" : runs(position) === 1 ? "1 run" : `${runs(position)} runs`}</button></p>`;
  };
  return html`<section class="panel said"><h2>Conversation</h2>
    ${messages.length === 0 && task.calls.length > 0 ? html`<p class="muted">It is too large to be shown here. Each answer has its own request: see its details.</p>`
      : messages.length === 0 ? html`<p class="muted">No call of production: the task was begun by a client that runs its agent.</p>`
        : html`<${Conversation} messages=${messages} below=${below} />`}
  </section>`;
}
