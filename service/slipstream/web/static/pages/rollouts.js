// Rollouts: all of them, a new one, or one with what is proven and what is missing.
import { get, query } from "../lib/api.js";
import { html } from "../lib/html.js";
import { useMark } from "../lib/live.js";
import { usePages } from "../lib/pages.js";
import { link } from "../lib/router.js";
import { can } from "../lib/session.js";
import { Empty, Loaded } from "../parts/basics.js";
import { NewRollout } from "../parts/rollouts/new_rollout.js";
import { OneRollout } from "../parts/rollouts/rollout.js";
import { RolloutTable } from "../parts/versions/comparisons.js";

export default function Rollouts({ route }) {
  const [id] = route.parts;
  if (id === "new") return html`<${NewRollout} version=${route.query.version} />`;
  if (id) return html`<${OneRollout} key=${id} id=${id} />`;
  return html`<${All} />`;
}

function All() {
  const list = usePages("rollouts", (cursor, signal) => get("rollouts" + query({ cursor, limit: 50 }), { signal }), [], useMark("rollouts"));
  return html`<h1>Rollouts</h1>
    ${can("operate") && html`<p><a class="button main" href=${link("rollouts", ["new"])}>Open a rollout</a></p>`}
    <section class="panel"><${Loaded} of=${list}>${(found) => found.length === 0
      ? html`<${Empty} title="No rollout yet"><p>A rollout serves a version to a share of the users, and promotes it when it is proven better:</p>
          <pre>slipstream rollout start 8</pre><//>`
      : html`<${RolloutTable} rollouts=${found} />${list.more && html`<p><button onClick=${list.more}>Older ones</button></p>`}`}<//></section>`;
}
