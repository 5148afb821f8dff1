// What stands beside a version wherever it is shown: where it answers, and its names.
import { get, path, query } from "../../lib/api.js";
import { count } from "../../lib/format.js";
import { html } from "../../lib/html.js";
import { useMark } from "../../lib/live.js";
import { usePages } from "../../lib/pages.js";
import { link } from "../../lib/router.js";
import { Badge, Loaded, Time } from "../basics.js";
import { By } from "../rollouts/decisions.js";
import { plain } from "../said.js";

const PLACES = { explorer: "the Explorer", lane: "in the lane" };

export function Serves({ version }) {
  if (version.serves.length === 0) return html`<span class="muted">–</span>`;
  return html`${version.serves.map((place) => html`<${Badge} key=${place} kind="good">${PLACES[place] || place}<//> `)}`;
}

/** Experiences, the data set, or both. */
export function TrainedOn({ on }) {
  if (!on) return html`<span class="muted">–</span>`;
  const experiences = html`${count(on.experiences)} experiences`;
  if (!on.dataset) return experiences;
  return html`<a href=${link("data", [on.dataset.name])}>${plain(on.dataset.name)}</a>${on.experiences > 0 && html` and ${experiences}`}`;
}

/** What a name meant from when on. */
export function NameHistory({ name }) {
  const list = usePages("history", (cursor, signal) => get(path("aliases", name, "history") + query({ cursor, limit: 20 }), { signal }), [name], useMark("versions"));
  return html`<${Loaded} of=${list}>${(changes) => html`<ul class="bare">${changes.map((one) => html`<li key=${one.at}>
    ${one.version === null ? "removed" : html`version ${one.version}`} <span class="muted small"><${Time} at=${one.at} />, by <${By} name=${one.key} /></span></li>`)}</ul>
    ${list.more && html`<button class="plain" onClick=${list.more}>Earlier</button>`}`}<//>`;
}
