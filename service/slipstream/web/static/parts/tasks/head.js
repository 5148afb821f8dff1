// The head of a task: what it is, and what can be done with it.
import { path, post, query, send } from "../../lib/api.js";
import { readCommand } from "../../lib/curl.js";
import { html } from "../../lib/html.js";
import { link } from "../../lib/router.js";
import { can } from "../../lib/session.js";
import { Badge, Copy, Time } from "../basics.js";
import { Confirm } from "../dialog.js";
import { plain } from "../said.js";
import { ofTenant, words } from "./links.js";
import { Selected, State } from "./list.js";

const LONGEST = 64; // characters of a label

export function Head({ task, headers, session, again, erased }) {
  return html`<div class="row apart"><h1 class="wrap">${plain(task.task_id)} <${Copy} text=${task.task_id}>copy<//></h1>
      <div class="row">
        ${can("mark") && html`<${Mark} task=${task} session=${session} again=${again} />`}
        <${Copy} text=${() => readCommand(path("tasks", task.task_id), { key: session.keys_needed, headers })}>Copy as curl<//>
        ${can("admin") && html`
          <${Erase} kind="task" task=${task} name="task_id" session=${session} erased=${erased} />
          <${Erase} kind="session" task=${task} name="session_id" session=${session} erased=${erased} />`}
      </div></div>
    <dl class="facts">
      <dt>State</dt><dd><${State} state=${task.state} /></dd>
      <dt>Selected</dt><dd><${Selected} task=${task} /></dd>
      <dt>Session</dt><dd class="wrap"><a href=${link("tasks", [], { session_id: task.session_id })}>${plain(task.session_id)}</a> <${Copy} text=${task.session_id}>copy<//></dd>
      ${task.tenant !== "default" && html`<dt>Tenant</dt><dd>${plain(task.tenant)}</dd>`}
      <dt>First call</dt><dd><${Time} at=${task.created_at} /></dd>
      <dt>Last call</dt><dd><${Time} at=${task.updated_at} /></dd>
      ${task.labels.length > 0 && html`<dt>Labels</dt><dd>${task.labels.map((label) => html`<${Badge} key=${label}>${plain(label)}<//> `)}</dd>`}
    </dl>`;
}

function Mark({ task, session, again }) {
  const mark = async ({ labels }) => {
    const given = labels.split(",").map((label) => label.trim()).filter(Boolean);
    const long = given.find((label) => label.length > LONGEST);
    if (long) throw new Error(`labels: expected at most ${LONGEST} characters each, found ${long.length}`);
    await post("marks", { task_id: task.task_id, labels: given }, { headers: meant(task, session) });
    again();
  };
  return html`<${Confirm} label="Mark" title="Mark this task" act=${mark} done="The task is marked." initial=${{ labels: "" }}>${(values, set) => html`
    <p>A mark says that this task is worth training on. If it was not selected, it is decided again: it is run where
      <code>explicit_mark</code>, or a strategy that looks at labels, is part of <code>selection</code>.</p>
    <label>Labels, with commas between; none is needed <input value=${values.labels} onInput=${set("labels")} autocomplete="off" /></label>`}<//>`;
}

/** The tenant in a header, where the key reaches all of them. */
const meant = (task, session) => (session.keys_needed && session.tenant === null ? ofTenant(task.tenant) : {});

function Erase({ kind, name, task, session, erased }) {
  const id = task[name];
  const erase = () => send("DELETE", "data" + query({ [name]: id }), undefined, { headers: meant(task, session) }).then(erased);
  return html`<${Confirm} label=${`Erase the ${kind}`} kind="bad" title=${`Erase everything about this ${kind}`} word=${id.trim()} act=${erase}>
    <p>Everything that is stored about the ${kind} <strong class="wrap">${plain(id)}</strong> is deleted: calls, runs, feedback, marks and
      judgements${kind === "session" && ", of all of its tasks"}. This cannot be undone, and what the Explorer was given before cannot be taken back.
      It is told afterwards what that was.</p>
    ${words(task.state) === "open" && html`<p>The task is still open: what its agent says after this is captured again.</p>`}<//>`;
}
