// Filters of the list of tasks. They stand in the address by the names that the API has for them.
import { get, path } from "../../lib/api.js";
import { html, useEffect, useState } from "../../lib/html.js";
import { go, link } from "../../lib/router.js";

const NAMES = ["text", "state", "selected", "label", "version", "reward_below", "reward_above", "session_id", "id_prefix",
  "dialect", "since", "until"];
const FEWER = ["text", "state", "selected", "label", "version", "reward_below"]; // those that are always in sight

/** The filters of an address, in a fixed order; what the API does not know is left out. */
export function filtersOf(query) {
  return Object.fromEntries(NAMES.filter((name) => query[name]).map((name) => [name, query[name]]));
}

const apply = (filters) => go(link("tasks", [], filtersOf(filters)));

/** A field that follows the address, and changes it when the reader has typed. */
function Field({ label, name, filters, type = "text", ...more }) {
  const [typed, setTyped] = useState(filters[name] || "");
  useEffect(() => setTyped(filters[name] || ""), [filters[name]]);
  return html`<label>${label}
    <input name=${name} type=${type} value=${typed} onInput=${(event) => setTyped(event.target.value)}
      onChange=${(event) => apply({ ...filters, [name]: event.target.value.trim() })} autocomplete="off" spellcheck=${false} ...${more} /></label>`;
}

function Choice({ label, name, filters, choices }) {
  return html`<label>${label}
    <select name=${name} value=${filters[name] || ""} onChange=${(event) => apply({ ...filters, [name]: event.target.value })}>
      <option value="">any</option>
      ${choices.map(([value, text]) => html`<option key=${value} value=${value}>${text}</option>`)}
    </select></label>`;
}

/** A time in the reader's zone, as a field of the browser has it. */
function local(at) {
  if (!at || Number.isNaN(Number(at))) return "";
  const date = new Date(Number(at) * 1000);
  return Number.isNaN(date.getTime()) ? "" : new Date(date.getTime() - date.getTimezoneOffset() * 60_000).toISOString().slice(0, 16);
}

function Moment({ label, name, filters }) {
  const change = (event) => {
    const at = new Date(event.target.value).getTime() / 1000;
    apply({ ...filters, [name]: Number.isNaN(at) ? "" : String(at) });
  };
  return html`<label>${label} <input name=${name} type="datetime-local" value=${local(filters[name])} onChange=${change} /></label>`;
}

const longEnough = (text) => text.length <= 256 && !/\s/.test(text);

/** Where a text leads: to the task or to the answer of that id, else to the tasks in which it was said. */
async function found(text, filters, content) {
  if (longEnough(text)) {
    const is = (address) => get(address).then(() => true, (error) => error.code === "several_tenants");
    const [task, answer] = await Promise.all([is(path("tasks", text)), is(path("calls", text))]);
    if (task) return link("tasks", [text]);
    if (answer) return link("calls", [text]);
  }
  return link("tasks", [], filtersOf({ ...filters, text: content ? text : "", id_prefix: content ? "" : text }));
}

function Search({ filters, content }) {
  const name = content ? "text" : "id_prefix";
  const [typed, setTyped] = useState(filters[name] || "");
  const [busy, setBusy] = useState(false);
  useEffect(() => setTyped(filters[name] || ""), [filters[name]]);
  const search = (event) => {
    event.preventDefault();
    const text = typed.trim();
    if (!text) {
      apply({ ...filters, [name]: "" });
      return;
    }
    setBusy(true);
    const from = location.hash;
    found(text, filters, content).then((address) => {
      setBusy(false);
      if (location.hash === from) go(address); // else the reader has gone elsewhere meanwhile
    });
  };
  return html`<form class="filters search" role="search" onSubmit=${search}>
    <label>Search <input type="search" value=${typed} onInput=${(event) => setTyped(event.target.value)} autocomplete="off" spellcheck=${false}
      onKeyDown=${(event) => event.key === "Escape" && event.target.blur()}
      placeholder=${content ? "words, or the id of a task or an answer" : "the id of a task or an answer"} aria-keyshortcuts="/" /></label>
    <button disabled=${busy}>${busy ? "…" : "Search"}</button>
  </form>`;
}

export function Filters({ filters, content }) {
  const [all, setAll] = useState(false);
  const set = Object.keys(filters).length;
  const more = all || Object.keys(filters).some((name) => !FEWER.includes(name));
  return html`<${Search} filters=${filters} content=${content} />
    <form class="filters" aria-label="Filters" onSubmit=${(event) => event.preventDefault()}>
      <${Choice} label="State" name="state" filters=${filters} choices=${[["open", "open"], ["complete", "complete"]]} />
      <${Choice} label="Selected" name="selected" filters=${filters} choices=${[["true", "yes"], ["false", "no"]]} />
      <${Field} label="Label" name="label" filters=${filters} size="12" />
      <${Field} label="Version" name="version" filters=${filters} type="number" min="0" class="short" />
      <${Field} label="Reward below" name="reward_below" filters=${filters} type="number" step="any" class="short" />
      ${more && html`
        <${Field} label="Reward above" name="reward_above" filters=${filters} type="number" step="any" class="short" />
        <${Field} label="Session" name="session_id" filters=${filters} />
        ${content && html`<${Field} label="Id begins with" name="id_prefix" filters=${filters} />`}
        <${Choice} label="Dialect" name="dialect" filters=${filters} choices=${["chat", "responses", "messages"].map((each) => [each, each])} />
        <${Moment} label="Last call since" name="since" filters=${filters} />
        <${Moment} label="Last call before" name="until" filters=${filters} />`}
      ${!more && html`<button type="button" class="plain" onClick=${() => setAll(true)}>More filters</button>`}
      ${set > 0 && html`<button type="button" class="plain" onClick=${() => { setAll(false); apply({}); }}>Clear ${set === 1 ? "the filter" : `${set} filters`}</button>`}
    </form>`;
}
