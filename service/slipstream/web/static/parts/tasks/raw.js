// JSON as it is, made when it is opened.
import { html, useState } from "../../lib/html.js";
import { Copy } from "../basics.js";
import { Text } from "../said.js";

/** `value` gives what is shown; it is called when the part is opened. */
export function Raw({ title, show, value, open: first = false }) {
  const [open, setOpen] = useState(first);
  if (!show) return null;
  return html`<details class="panel" open=${first} onToggle=${(event) => setOpen(event.target.open)}><summary>${title}</summary>
    ${open && html`<${Json} value=${value()} />`}</details>`;
}

export function Json({ value }) {
  const text = JSON.stringify(value, null, 2);
  return html`<p><${Copy} text=${text}>Copy<//></p><div class="json" tabindex="0" role="region" aria-label="JSON"><${Text} code>${text}<//></div>`;
}
