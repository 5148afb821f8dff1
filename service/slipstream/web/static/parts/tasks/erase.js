// Erasing a task or its session, and what the API says was erased.
import { query, send } from "../../lib/api.js";
import { html } from "../../lib/html.js";
import { link } from "../../lib/router.js";
import { Confirm } from "../dialog.js";
import { plain } from "../said.js";
import { meant } from "./links.js";
import { Raw } from "./raw.js";

/** `erased` takes the answer of DELETE /data. */
export function Erase({ task, session, erased }) {
  return html`<section class="panel"><div class="row apart"><h2>Erase</h2><div class="row">
    <${One} kind="task" name="task_id" task=${task} session=${session} erased=${erased} />
    <${One} kind="session" name="session_id" task=${task} session=${session} erased=${erased} /></div></div></section>`;
}

function One({ kind, name, task, session, erased }) {
  const id = task[name];
  const erase = () => send("DELETE", "data" + query({ [name]: id }), undefined, { headers: meant(task, session) }).then(erased);
  return html`<${Confirm} label=${`Erase the ${kind}`} kind="bad" title=${`Erase everything about this ${kind}`} word=${id.trim() || "erase"} act=${erase}>
    <p>Everything that is stored about the ${kind} <strong class="wrap">${plain(id)}</strong> is deleted: calls, runs, feedback, marks and
      judgements${kind === "session" && ", of all of its tasks"}. This cannot be undone, and what the Explorer was given before cannot be taken
      back: you are told what that was.</p>
    ${task.state === "open" && html`<p>The task is still open: what its agent says after this is captured again.</p>`}<//>`;
}

/** What DELETE /data answered. */
export function Erased({ report }) {
  const { deleted, pending, explorer, datasets } = report;
  const { delivered, uncertain, recorded } = explorer;
  const rows = Object.entries(deleted).filter(([, number]) => number > 0);
  return html`<section class="panel" role="status"><h1>Erased</h1>
    ${rows.length === 0 ? html`<p>Nothing was stored under this id${datasets.length > 0 && ", outside of data sets"}.</p>`
      : html`<p>Deleted: ${rows.map(([name, number]) => `${number} ${name.replaceAll("_", " ")}`).join(", ")}.</p>`}
    ${(pending.groups > 0 || pending.exchanges > 0) && html`<p><strong>Still pending:</strong> ${pending.groups} groups that are being delivered, and
      ${" "}${pending.exchanges} captures that are not read yet. They are deleted within a minute.</p>`}
    ${pending.datasets > 0 && html`<p><strong>Still pending:</strong> ${pending.datasets} data sets that an export is writing, or that could not be read.
      ${" "}Their rows are deleted at the end of the export, or with the next deletion, or by <code>slipstream dataset erase</code>.</p>`}
    ${datasets.length > 0 && html`<${InDatasets} datasets=${datasets} />`}
    <h2>What the Explorer had before</h2>
    ${delivered.experiences === 0 && uncertain.length === 0 && recorded.length === 0 ? html`<p>Nothing.</p>` : html`<ul>
      ${delivered.experiences > 0 && html`<li><strong>${delivered.experiences} experiences</strong> in ${delivered.commits.length === 1 ? "commit" : "commits"} ${delivered.commits.join(", ")}.
        That cannot be taken back. ${delivered.versions.length > 0 ? `Versions that can have been trained on them: ${delivered.versions.join(", ")}.` : "No version was served since."}</li>`}
      ${uncertain.length > 0 && html`<li>${uncertain.length} groups that it may have trained on before it lost them: nobody can tell.</li>`}
      ${recorded.length > 0 && html`<li>${recorded.length} answers that it has recorded without a reward. Nothing is trained on them.</li>`}
    </ul>`}
    <${Raw} title="The whole answer" show value=${() => report} />
  </section>`;
}

/** Of which data sets rows were deleted; a key of a tenant is not told which they are, nor which versions were trained on them. */
function InDatasets({ datasets }) {
  return html`<h2>Data sets</h2><ul>${datasets.map(({ name, rows, versions }, place) => html`<li key=${place} class="wrap">
    ${name === undefined ? "A data set" : html`<a href=${link("data", [name])}>${plain(name)}</a>`}: ${rows > 0 ? html`<strong>${rows} rows</strong> deleted.` : "pending."}
    ${versions && versions.length > 0 && html` Versions that were trained on it, or went on from one that was: ${versions.map((version, which) => html`${which > 0 && ", "}<a key=${version} href=${link("versions", [version])}>${version}</a>`)}.`}</li>`)}</ul>`;
}
