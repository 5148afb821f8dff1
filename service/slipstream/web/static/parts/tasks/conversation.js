// A conversation of any length: the newest messages first of all, earlier ones when they are asked for.
import { html, useLayoutEffect, useRef, useState } from "../../lib/html.js";
import { count } from "../../lib/format.js";
import { Message } from "../said.js";

const NEWEST = 50;
const MORE = 200;

/** `below(index)` gives what stands under a message. */
export function Conversation({ messages, below = () => null }) {
  const [shown, setShown] = useState(NEWEST);
  const place = useRef(null);
  const left = Math.max(0, messages.length - shown);
  useLayoutEffect(() => {
    place.current.scrollTop = place.current.scrollHeight; // the newest is what the answers are about
  }, []);
  if (messages.length === 0) return html`<p class="muted" ref=${place}>No message.</p>`;
  return html`<div class="conversation" ref=${place} tabindex="0" role="region" aria-label="Conversation">
    ${left > 0 && html`<p><button onClick=${() => setShown(shown + MORE)}>Show ${count(Math.min(MORE, left))} earlier</button>
      <span class="muted"> ${count(left)} of ${count(messages.length)} messages are left out</span></p>`}
    ${messages.slice(left).map((message, index) => html`<div key=${left + index}><${Message} message=${message} />${below(left + index)}</div>`)}
  </div>`;
}
