// Two answers to one request. Nothing here says, or may say, who gave which: both sides are drawn alike, in the API's order.
import { html, useState } from "../../lib/html.js";
import { count } from "../../lib/format.js";
import { Conversation } from "../tasks/conversation.js";
import { answerText, useDiff } from "../diff.js";
import { Message, plain, pretty, Text } from "../said.js";

export function Pair({ pair, diff }) {
  return html`<section class="panel request"><h2>Request</h2>
      <${Conversation} messages=${pair.messages} />
      <${Tools} tools=${pair.tools} />
    </section>
    ${diff ? html`<${Compared} pair=${pair} />` : html`<${Sides} a=${html`<${Message} message=${pair.a} />`} b=${html`<${Message} message=${pair.b} />`} />`}`;
}

function Sides({ a, b, note }) {
  return html`${note && html`<p class="muted small">${note}</p>`}<div class="answers pair">
    <article class="answer" aria-label="Answer 1"><h2><kbd>1</kbd> Answer 1</h2>${a}</article>
    <article class="answer" aria-label="Answer 2"><h2><kbd>2</kbd> Answer 2</h2>${b}</article>
  </div>`;
}

/** Each side with what the other lacks marked, in one colour: neither of them is the old one. */
function Compared({ pair }) {
  const [first, second] = [answerText(pair.a), answerText(pair.b)];
  const parts = useDiff(first, second);
  if (!Array.isArray(parts)) {
    return html`<${Sides} a=${html`<${Message} message=${pair.a} />`} b=${html`<${Message} message=${pair.b} />`}
      note=${parts} />`;
  }
  const side = (other) => html`<div class="text">${parts.filter((part) => !part[other]).map((part, index) => (
    part.added || part.removed ? html`<mark key=${index}>${plain(part.value)}</mark>` : html`<span key=${index}>${plain(part.value)}</span>`))}</div>`;
  return html`<${Sides} a=${side("added")} b=${side("removed")} />`;
}

function Tools({ tools }) {
  const [open, setOpen] = useState(false);
  if (!tools || tools.length === 0) return null;
  return html`<details onToggle=${(event) => setOpen(event.target.open)}><summary>${count(tools.length)} ${tools.length === 1 ? "tool" : "tools"} that could be called</summary>
    ${open && html`<dl class="tools">${tools.map((tool, index) => {
      const of = tool.function || tool;
      return html`<dt key=${index}>${plain(String(of.name ?? tool.type ?? "a tool"))}</dt>
        <dd>${of.description && html`<${Text}>${String(of.description)}<//>`}${of.parameters && html`<details><summary class="muted small">parameters</summary><${Text} code>${pretty(of.parameters)}<//></details>`}</dd>`;
    })}</dl>`}</details>`;
}
