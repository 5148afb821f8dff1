// Lines for a terminal or a file, with a button that copies them.
import { html } from "../../lib/html.js";
import { Copy } from "../basics.js";
import { plain } from "../said.js";

export function Command({ text, label = "Command" }) {
  return html`<div class="command"><pre tabindex="0" role="group" aria-label=${label}>${plain(text)}</pre><${Copy} text=${text}>Copy<//></div>`;
}
