// One task: what was said, what was answered and by whom, and what became of it.
import { get, path } from "../../lib/api.js";
import { html, useEffect, useState } from "../../lib/html.js";
import { useCalm, useMark } from "../../lib/live.js";
import { useLoad } from "../../lib/load.js";
import { go, link } from "../../lib/router.js";
import { can } from "../../lib/session.js";
import { Failure, Loading } from "../basics.js";
import { useKeys } from "../keys.js";
import { Calls } from "./answers.js";
import { Erase, Erased } from "./erase.js";
import { Feedback } from "./feedback.js";
import { Head } from "./head.js";
import { linkTo, ofTenant } from "./links.js";
import { Raw } from "./raw.js";
import { Said } from "./said_in.js";

const PAUSE = 3000; // ms between two looks at a task that is not over
const OVER = ["delivered", "dropped", "lost", "rerun"];

/** Whether nothing more will come of a task by itself. */
const over = (task) => task.state !== "open" && task.decided && task.groups.every((group) => OVER.includes(group.state));

export function Task({ id, tenant, query, session, filters, newer, older, reread }) {
  const mark = useCalm(useMark("tasks"), PAUSE);
  const [done, setDone] = useState(false);
  const [erased, setErased] = useState(null);
  const headers = ofTenant(tenant);
  const found = useLoad((signal) => get(path("tasks", id), { signal, headers }), [done ? null : mark]);
  const task = found.data;
  useEffect(() => {
    if (task) setDone(over(task)); // it may go on: groups that were lost are run again
  }, [task]);
  useEffect(() => erased && reread, [erased]); // the list, once the reader goes on: until then `newer` and `older` lead on
  const back = link("tasks", [], filters || {});
  useKeys({
    u: [() => go(back), "all tasks"],
    j: [() => older && go(older), "next task of the list", true],
    k: [() => newer && go(newer), "task before it", true],
    r: [found.again, "read again"],
  });
  const way = html`<p class="row way"><a href=${back}>All tasks</a>
    ${newer && html`<a href=${newer}>newer</a>`}${older && html`<a href=${older}>older</a>`}</p>`;
  if (erased) return html`${way}<${Erased} report=${erased} />`;
  if (!task) return html`${way}${found.error ? html`<${NotThere} error=${found.error} again=${found.again} id=${id} />` : html`<${Loading} />`}`;
  return html`${way}
    ${found.error && html`<${Failure} error=${found.error} again=${found.again} />`}
    <${Head} task=${task} headers=${headers} session=${session} again=${found.again} />
    <${Body} task=${task} query=${query} session=${session} headers=${headers} erased=${setErased} />`;
}

function Body({ task, query, session, headers, erased }) {
  const chosen = chosenCall(task, query);
  const choose = (position) => go(linkTo(task, session, { call: position }), { replace: true });
  useKeys({
    "[": [() => chosen > 0 && choose(chosen - 1), "answers to the call before", true],
    "]": [() => chosen < task.calls.length - 1 && choose(chosen + 1), "answers to the next call", true],
  });
  return html`<div class="split">
    <${Said} task=${task} chosen=${chosen} choose=${choose} content=${session.content} />
    <div class="beside">
      <${Calls} task=${task} chosen=${chosen} choose=${choose} answer=${query.answer} session=${session} headers=${headers} />
      <${Feedback} task=${task} />
      <${Raw} title="Metadata" show=${"metadata" in task && Object.keys(task.metadata || {}).length > 0} value=${() => task.metadata} open />
      <${Raw} title="Raw JSON" show value=${() => task} />
      ${can("admin") && html`<${Erase} task=${task} session=${session} erased=${erased} />`}
    </div>
  </div>`;
}

/** The call whose answers are shown: as the address says, else the last one that the policy was asked, else the last. */
function chosenCall(task, { call, answer }) {
  const last = task.calls.length - 1;
  if (answer) {
    const of = task.calls.find((each) => each.msg_id === answer);
    const group = task.groups.find((each) => each.runs.some((run) => run.msg_id === answer));
    const position = of ? of.position : group && group.position;
    if (position !== undefined && position !== null) return position;
  }
  if (call !== undefined && Number(call) >= 0 && Number(call) <= last) return Math.trunc(Number(call));
  const asked = task.groups.map((group) => group.position).filter((position) => position !== null && position !== undefined);
  return asked.length ? Math.max(...asked) : last;
}

function NotThere({ error, again, id }) {
  if (error.code === "several_tenants") return html`<${Tenants} error=${error} id=${id} />`;
  if (error.status !== 404) return html`<${Failure} error=${error} again=${again} />`;
  return html`<section class="empty"><h1>There is no such task</h1>
    <p>${error.message}.</p><p>It may have been erased, or be older than <code>capture.retention</code>; or a call of it is not stored yet.
      The id of an answer is looked for <a href=${link("calls", [id])}>here</a>.</p>
    <p><button onClick=${again}>Look again</button></p></section>`;
}

function Tenants({ error, id }) {
  const open = (event) => {
    event.preventDefault();
    go(link("tasks", [id], { tenant: new FormData(event.target).get("tenant").trim() }));
  };
  return html`<section class="panel"><h1>Whose task?</h1><p>${error.message}</p>
    <form class="filters" onSubmit=${open}><label>Tenant <input name="tenant" required /></label><button class="main">Open</button></form></section>`;
}
