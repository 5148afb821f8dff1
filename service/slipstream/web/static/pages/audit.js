// Who wrote what, the newest first.
import { get, query } from "../lib/api.js";
import { html } from "../lib/html.js";
import { useMark } from "../lib/live.js";
import { go, link } from "../lib/router.js";
import { Empty, Loaded, Time } from "../parts/basics.js";
import { usePages } from "../lib/pages.js";

export default function Audit({ route }) {
  const { key = "", action = "" } = route.query;
  const list = usePages("entries", (cursor, signal) => get("audit" + query({ key, action, cursor, limit: 100 }), { signal }),
    [key, action], useMark("audit"));
  const filter = (event) => {
    event.preventDefault();
    const form = new FormData(event.target);
    go(link("audit", [], { key: form.get("key").trim(), action: form.get("action").trim() }));
  };
  return html`<h1>Audit</h1>
    <form class="filters" onSubmit=${filter} key=${`${key} ${action}`}>
      <label>Key <input type="search" name="key" defaultValue=${key} placeholder="name of a key" /></label>
      <label>Action <input name="action" defaultValue=${action} placeholder="such as serving_kill" /></label>
      <button>Filter</button>
    </form>
    <div class="panel"><${Loaded} of=${list}>${(entries) => entries.length === 0
      ? html`<${Empty} title="Nothing was written"><p>Each feedback, mark, commit, erasure and decision will stand here, with the key that made it.</p><//>`
      : html`<div class="scroll"><table>
        <thead><tr><th>When</th><th>Key</th><th>Action</th><th>What</th><th class="number">Things</th></tr></thead>
        <tbody>${entries.map((entry) => html`<${Entry} key=${entry.id} entry=${entry} />`)}</tbody>
      </table></div>
      ${list.more && html`<p><button onClick=${list.more}>Older entries</button></p>`}`}<//></div>`;
}

function Entry({ entry }) {
  const names = entry.names || [];
  const shown = entry.kind === "task_id" ? names.map((name) => html`<a href=${link("tasks", [name])}>${name}</a> `) : names.join(", ");
  return html`<tr>
    <td class="nowrap"><${Time} at=${entry.at} /></td>
    <td>${entry.key || html`<span class="muted">no key</span>`}${entry.tenant && entry.tenant !== "default" && html` <span class="muted">${entry.tenant}</span>`}</td>
    <td>${entry.action.replaceAll("_", " ")}</td>
    <td class="wrap">${shown || html`<span class="muted">${entry.written}</span>`}</td>
    <td class="number">${entry.named ?? ""}</td>
  </tr>`;
}
