// Experiments: all of them, a new one, or one with its report.
import { get, query } from "../lib/api.js";
import { html } from "../lib/html.js";
import { useMark } from "../lib/live.js";
import { usePages } from "../lib/pages.js";
import { link } from "../lib/router.js";
import { can } from "../lib/session.js";
import { Empty, Loaded } from "../parts/basics.js";
import { ExperimentTable } from "../parts/versions/comparisons.js";
import { NewExperiment } from "../parts/rollouts/new_experiment.js";
import { OneExperiment } from "../parts/rollouts/experiment.js";

export default function Experiments({ route }) {
  const [id] = route.parts;
  if (id === "new") return html`<${NewExperiment} version=${route.query.version} />`;
  if (id) return html`<${OneExperiment} key=${id} id=${id} />`;
  return html`<${All} />`;
}

function All() {
  const list = usePages("experiments", (cursor, signal) => get("experiments" + query({ cursor, limit: 50 }), { signal }), [], useMark("experiments"));
  return html`<h1>Experiments</h1>
    ${can("operate") && html`<p><a class="button main" href=${link("experiments", ["new"])}>Start an experiment</a></p>`}
    <section class="panel"><${Loaded} of=${list}>${(found) => found.length === 0
      ? html`<${Empty} title="No experiment yet"><p>An experiment measures production and a version side by side, and says what is proven:</p>
          <pre>slipstream experiment start eight version:8</pre><//>`
      : html`<${ExperimentTable} experiments=${found} />${list.more && html`<p><button onClick=${list.more}>Older ones</button></p>`}`}<//></section>`;
}
