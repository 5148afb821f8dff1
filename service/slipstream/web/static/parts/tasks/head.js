// The head of a task: what it is, and what can be done with it.
import { path, post } from "../../lib/api.js";
import { readCommand } from "../../lib/curl.js";
import { html } from "../../lib/html.js";
import { link } from "../../lib/router.js";
import { can } from "../../lib/session.js";
import { Badge, Copy, Time } from "../basics.js";
import { Confirm } from "../dialog.js";
import { plain } from "../said.js";
import { meant } from "./links.js";
import { Selected, State } from "./list.js";

const LONGEST = 64; // characters of a label

export function Head({ task, headers, session, again }) {
  return html`<div class="row apart"><div class="row"><h1 class="wrap">${plain(task.task_id)}</h1><${Copy} text=${task.task_id}>copy<//></div>
      <div class="row">
        ${can("mark") && html`<${Mark} task=${task} session=${session} again=${again} />`}
        <${Copy} text=${() => readCommand(path("tasks", task.task_id), { key: session.keys_needed, headers })}>Copy as curl<//>
        <button class="plain" onClick=${again}>Read again</button>
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
