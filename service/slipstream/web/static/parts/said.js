// What users, agents, tools and models said. All of it may be hostile: it is text, never markup, and never too long.
import { html, useState } from "../lib/html.js";
import { count } from "../lib/format.js";

const SHOWN = 20_000; // characters of one text; a reader asks for more
const MORE = 200_000;

// Characters that change how the text around them is read, and those that no screen shows: they are named.
const HIDDEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200b\u200e\u200f\u202a-\u202e\u2060-\u2064\u2066-\u206f\ufeff\ufff9-\ufffb]|[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]/gu;

/** The text with its invisible characters written out, such as ⟨U+202E⟩. */
export function plain(text) {
  return text.replace(HIDDEN, (one) => `⟨U+${one.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}⟩`);
}

/** A text of any size. */
export function Text({ children, code = false }) {
  const [shown, setShown] = useState(SHOWN);
  const text = typeof children === "string" ? children : JSON.stringify(children, null, 2) ?? "";
  const left = text.length - shown;
  return html`<div class=${code ? "text code" : "text"}>${plain(text.slice(0, shown))}${left > 0 && html`
    <p><button class="plain" onClick=${() => setShown(shown + MORE)}>Show more: ${count(left)} of ${count(text.length)} characters are left out</button></p>`}</div>`;
}

/** The text of a message's content, with what is no text named: [image_url]. */
export function contentText(content) {
  if (content === null || content === undefined) return "";
  if (typeof content === "string") return content;
  if (!Array.isArray(content)) return JSON.stringify(content, null, 2);
  return content.map((part) => {
    if (typeof part === "string") return part;
    const { text, refusal, type } = part || {};
    return typeof text === "string" ? text : typeof refusal === "string" ? refusal : `[${type || "part"}]`;
  }).join("\n");
}

/** The tools that a message calls, as {name, input}. Agents and models can put anything there. */
export function toolCalls(message) {
  const calls = message && Array.isArray(message.tool_calls) ? message.tool_calls : [];
  return calls.filter((call) => call && typeof call === "object").map((call) => {
    const tool = call.function || call.custom || {};
    return { name: String(tool.name ?? "a tool"), input: pretty(tool.arguments ?? tool.input ?? "") };
  });
}

/** A message in the form of chat completions. */
export function Message({ message: given }) {
  const message = given && typeof given === "object" ? given : { content: given };
  const calls = toolCalls(message);
  const text = contentText(message.content) || message.refusal || "";
  const thought = message.reasoning_content || message.reasoning;
  const role = typeof message.role === "string" ? message.role : "";
  return html`<div class=${`message ${role}`}>
    <span class="who-said">${plain(role)}${message.name && ` ${plain(String(message.name))}`}${message.tool_call_id && ` for ${plain(String(message.tool_call_id))}`}</span>
    ${typeof thought === "string" && thought && html`<details><summary class="muted">Thoughts</summary><${Text}>${thought}<//></details>`}
    ${text && html`<${Text}>${text}<//>`}
    ${calls.map(({ name, input }, index) => html`<div key=${index} class="tool-call"><span class="badge note">calls ${plain(name)}</span>
      <${Text} code>${input}<//></div>`)}
    ${!text && calls.length === 0 && html`<span class="muted">nothing was said</span>`}
  </div>`;
}

/** JSON with its lines apart; another text as it is. */
export function pretty(text) {
  if (typeof text !== "string") return JSON.stringify(text, null, 2);
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}
