// The configuration in force, without its secrets, and the keys that may use this sidecar.
import { get } from "../lib/api.js";
import { count } from "../lib/format.js";
import { html, useState } from "../lib/html.js";
import { useLoad } from "../lib/load.js";
import { link } from "../lib/router.js";
import { Badge, Empty, Loaded, Time } from "../parts/basics.js";
import { plain } from "../parts/said.js";

export default function Settings() {
  const keys = useLoad((signal) => get("keys", { signal }), []);
  const settings = useLoad((signal) => get("settings", { signal }), []);
  return html`<h1>Settings</h1>
    <section class="panel"><h2>Keys</h2><${Loaded} of=${keys}>${(found) => html`<${Keys} found=${found} />`}<//></section>
    <section class="panel"><h2>Configuration in force <span class="muted small">durations in seconds, sizes in bytes, secrets as ***</span></h2><${Loaded} of=${settings}>${(found) => html`<${Configuration} settings=${found.settings} />`}<//></section>`;
}

const STATES = { valid: "good", expiring: "warn", expired: "bad" };

function Keys({ found }) {
  if (!found.asked_for) {
    return html`<${Empty} title="No key is asked for"><p>Whoever reaches this sidecar may do everything. This makes a key, and says what to write under <code>access.keys</code>:</p>
      <pre>slipstream key new --role admin</pre><//>`;
  }
  return html`<div class="scroll"><table>
    <thead><tr><th>Key</th><th>Roles</th><th>Tenant</th><th>From</th><th>State</th><th>Expires</th><th>Captured</th>
      <th class="number">Admitted</th><th class="number">Refused</th><th>Last use</th></tr></thead>
    <tbody>${found.keys.map((key) => html`<tr key=${key.name}>
      <th scope="row"><a href=${link("audit", [], { key: key.name })}>${key.name}</a></th>
      <td>${key.roles.join(", ")}</td>
      <td>${key.tenant || html`<span class="muted">all</span>`}</td>
      <td>${key.from.replaceAll("_", " ")}</td>
      <td><${Badge} kind=${STATES[key.state]}>${key.state}<//></td>
      <td class="nowrap"><${Time} at=${key.expires_at} /></td>
      <td>${key.capture ? "yes" : "no"}</td>
      <td class="number">${count(key.requests.admitted)}</td>
      <td class="number">${count((key.requests.forbidden || 0) + (key.requests.limited || 0) + (key.requests.expired || 0))}</td>
      <td class="nowrap"><${Time} at=${key.last_used_at} /></td>
    </tr>`)}</tbody>
  </table></div>
  ${found.without_key && html`<p class="muted small">Without a valid key: ${Object.entries(found.without_key).map(([outcome, number]) => `${count(number)} ${outcome}`).join(", ")}.</p>`}`;
}

function Configuration({ settings }) {
  const [text, setText] = useState("");
  const [all, setAll] = useState(false);
  const wanted = text.trim().toLowerCase();
  const shown = settings.filter((one) => (all || wanted || one.set) && one.key.toLowerCase().includes(wanted));
  return html`
    <form class="filters" onSubmit=${(event) => event.preventDefault()}>
      <label>Find a key <input type="search" value=${text} onInput=${(event) => setText(event.target.value)} placeholder="such as commit.interval" /></label>
      <span class="check"><input id="all" type="checkbox" checked=${all} onChange=${(event) => setAll(event.target.checked)} /> <label for="all">defaults too</label></span>
    </form>
    ${shown.length === 0 ? html`<p class="muted">${wanted ? `No key has ${text} in its name.` : "Everything is at its default."}</p>` : html`
    <div class="scroll"><table>
      <thead><tr><th>Key</th><th>Value</th><th>Default</th></tr></thead>
      <tbody>${shown.map((one) => html`<tr key=${one.key}><th scope="row"><code>${one.key}</code></th>
        <td class="wrap"><${Value} of=${one.value} strong=${one.set} /></td><td class="wrap muted"><${Value} of=${one.default} /></td></tr>`)}</tbody>
    </table></div>`}`;
}

function Value({ of, strong }) {
  const text = typeof of === "string" ? of : JSON.stringify(of);
  return html`<code class=${strong ? "set" : ""}>${plain(text ?? "none")}</code>`;
}
