// A field for a version, which knows the newest ones and the aliases.
import { get } from "../../lib/api.js";
import { html } from "../../lib/html.js";
import { useLoad } from "../../lib/load.js";

/** The newest versions, each with what is said of it beside its number. */
export function useVersionNames() {
  const load = useLoad((signal) => get("versions?limit=50", { signal }), []);
  return (load.data ? load.data.versions : []).map((one) => [String(one.version), [...one.aliases, one.state].join(", ")]);
}

export function VersionInput({ ties, names, value, onInput }) {
  const list = `${ties.id}-known`;
  return html`<input ...${ties} list=${list} value=${value} onInput=${onInput} inputmode="numeric" autocomplete="off" required />
    <datalist id=${list}>${names.map(([number, words]) => html`<option key=${number} value=${number}>${words}</option>`)}</datalist>`;
}
