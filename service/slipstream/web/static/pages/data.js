// Data sets, versions side by side on held-out cases, and the ways in and out of the store; or one data set.
import { get } from "../lib/api.js";
import { html } from "../lib/html.js";
import { useMark } from "../lib/live.js";
import { useLoad } from "../lib/load.js";
import { Empty, Loaded } from "../parts/basics.js";
import { Command } from "../parts/data/command.js";
import { OneDataset } from "../parts/data/dataset.js";
import { DatasetTable } from "../parts/data/list.js";
import { SideBySide } from "../parts/data/side_by_side.js";
import { Exports, Imports } from "../parts/data/ways.js";
import { plain } from "../parts/said.js";

export default function Data({ route }) {
  const [name] = route.parts;
  if (name !== undefined) return html`<${OneDataset} key=${name} name=${name} />`;
  return html`<h1>Data</h1>
    <${Datasets} />
    <${SideBySide} query=${route.query} />
    <div class="panels"><${Exports} /><${Imports} /></div>`;
}

function Datasets() {
  const load = useLoad((signal) => get("datasets", { signal }), [useMark("datasets") + useMark("versions")]);
  return html`<section class="panel"><div class="row apart"><h2>Data sets</h2>
      ${load.data && load.data.directory !== null && html`<span class="muted small wrap">in <code>${plain(load.data.directory)}</code></span>`}</div>
    ${load.error && load.error.status === 403
      ? html`<${Empty} title="Not with this key"><p>${load.error.message}</p><//>`
      : html`<${Loaded} of=${load}>${(found) => html`<${Found} found=${found} />`}<//>`}</section>`;
}

function Found({ found }) {
  const { datasets, directory, unreadable } = found;
  const broken = unreadable.map((one) => html`<p key=${one.name} class="failure"><strong>${plain(one.name)}</strong> cannot be read: ${plain(one.problem)}</p>`);
  if (datasets.length > 0) return html`${broken}<${DatasetTable} datasets=${datasets} />`;
  if (directory === null) return html`<${Empty} title="No folder for data sets"><p>Set <code>datasets.directory</code> in sidecar.yaml: a folder that data sets are made in.</p><//>`;
  return html`${broken}<${Empty} title="No data set yet"><p>A data set is made from what is stored: production's answers, the policy's runs, feedback, judged pairs.
      Write in <code>data.yaml</code> what is to be in it, and run:</p>
    <${Command} text="slipstream dataset export --data data.yaml" /><//>`;
}
