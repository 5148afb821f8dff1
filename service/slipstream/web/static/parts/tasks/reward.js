// A reward, and the parts that it is made of.
import { decimal } from "../../lib/format.js";
import { html } from "../../lib/html.js";
import { Bar } from "../basics.js";
import { plain } from "../said.js";

/** `breakdown` is left out for keys that may not see it. */
export function Reward({ reward, breakdown }) {
  if (reward === null || reward === undefined) return null;
  const parts = Object.entries(breakdown || {});
  const numbers = parts.map(([, value]) => Math.abs(value)).filter(Number.isFinite);
  const most = Math.max(1, ...numbers);
  return html`<div class="reward"><span class="amount" title=${`reward ${reward}`}>${decimal(reward, 2)}</span>
    ${parts.length > 0 && html`<table class="parts"><tbody>${parts.map(([name, value]) => html`<tr key=${name}>
      <th scope="row" class="wrap">${plain(name)}</th>
      <td>${typeof value === "number" && html`<${Bar} value=${Math.abs(value) / most} kind=${value < 0 ? "bad" : ""} label=${`${name}: ${decimal(value, 3)}`} />`}</td>
      <td class="number">${typeof value === "number" ? decimal(value, 2) : value === null ? html`<span class="muted">left out</span>` : plain(JSON.stringify(value))}</td>
    </tr>`)}</tbody></table>`}</div>`;
}
