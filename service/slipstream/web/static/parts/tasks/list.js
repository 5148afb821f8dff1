// The list of tasks: dense, by keyboard, and still while it is read.
import { query } from "../../lib/api.js";
import { count, decimal, seconds } from "../../lib/format.js";
import { readCommand } from "../../lib/curl.js";
import { html, useEffect, useRef } from "../../lib/html.js";
import { link } from "../../lib/router.js";
import { Badge, Bar, Copy, Empty, Loaded, Time } from "../basics.js";
import { useKeys } from "../keys.js";
import { plain } from "../said.js";
import { Filters } from "./filters.js";
import { idOf, linkTo, words } from "./links.js";

export function TaskList({ list, filters, session, last }) {
  const body = useRef(null);
  const move = (step) => {
    // the focus itself moves, so that Enter opens and a reader of the screen is told
    const links = [...(body.current ? body.current.querySelectorAll("a.task") : [])];
    const at = links.indexOf(document.activeElement);
    const next = links[at < 0 ? (step > 0 ? 0 : links.length - 1) : Math.max(0, Math.min(links.length - 1, at + step))];
    if (next) next.focus();
  };
  const show = () => {
    list.show();
    scrollTo(0, 0);
  };
  useKeys({
    j: [() => move(1), "next task; Enter opens it", true],
    k: [() => move(-1), "task before", true],
    n: [() => list.waiting > 0 && show(), "show new tasks"],
  });
  useEffect(() => {
    // back from a task: where the reader was, once the frame has moved the focus to the page
    const timer = last && setTimeout(() => {
      const row = body.current && body.current.querySelector(`[data-id="${CSS.escape(last)}"] a.task`);
      if (row) row.focus();
    });
    return () => clearTimeout(timer);
  }, []);
  return html`<div class="row apart"><h1>Tasks</h1>
      <${Copy} text=${() => readCommand("tasks" + query(filters), { key: session.keys_needed })}>Copy as curl<//></div>
    <${Filters} filters=${filters} content=${session.content} />
    <div class="panel"><div role="status">${list.waiting > 0 && html`<button class="news" onClick=${show}>${newTasks(list)}: show</button>`}</div>
      <${Loaded} of=${list}>${(tasks) => (tasks.length === 0 ? html`<${Nothing} filters=${filters} list=${list} />`
        : html`<${Table} tasks=${tasks} session=${session} body=${body} />`)}<//>
      ${list.data !== null && list.data.length > 0 && html`<p class="row"><span class="muted small">${count(list.data.length)} tasks shown</span>
        ${list.more ? html`<button onClick=${list.more}>Older tasks</button>` : list.loading ? html`<span class="muted">Loading …</span>`
          : html`<span class="muted small">these are all</span>`}</p>`}
    </div>`;
}

function newTasks({ waiting, beyond }) {
  return `${count(waiting)}${beyond ? " or more" : ""} new ${waiting === 1 ? "task" : "tasks"}`;
}

function Nothing({ filters, list }) {
  if (list.more) {
    return html`<${Empty} title="None among the newest ones"><p>They were looked through, and none is as you ask.</p>
      <p><button onClick=${list.more}>Look at older ones</button></p><//>`;
  }
  if (Object.keys(filters).length > 0) {
    return html`<${Empty} title="No task is as you ask"><p>Take a filter away, or <a href=${link("tasks")}>look at all of them</a>.</p>
      ${filters.text && html`<p>Is it the beginning of an id? <a href=${link("tasks", [], { id_prefix: filters.text })}>Look for tasks whose id begins so</a>.</p>`}<//>`;
  }
  return html`<${Empty} title="No task yet"><p>Give an agent this sidecar as its base URL. Each conversation will stand here.</p>
    <pre>OPENAI_BASE_URL=${new URL("v1", document.baseURI).href}</pre><//>`;
}

function Table({ tasks, session, body }) {
  const figures = tasks.some((task) => task.figures);
  const labels = tasks.some((task) => task.labels.length > 0);
  const tenants = session.tenant === null && tasks.some((task) => task.tenant !== "default");
  return html`<div class="scroll"><table class="tasks">
    <thead><tr><th>Last call</th><th>Task</th>${tenants && html`<th>Tenant</th>`}<th>Session</th><th>State</th><th>Selected</th>
      ${figures && html`<th class="number">Reward</th><th class="number">Runs</th><th class="number">Version</th><th class="number">Calls</th><th class="number">Latency</th>`}
      ${labels && html`<th>Labels</th>`}</tr></thead>
    <tbody ref=${body}>${tasks.map((task) => html`<${Row} key=${idOf(task)} task=${task} session=${session} tenants=${tenants} figures=${figures} labels=${labels} />`)}</tbody>
  </table></div>`;
}

function Row({ task, session, tenants, figures, labels }) {
  return html`<tr data-id=${idOf(task)}>
    <td class="nowrap"><${Time} at=${task.updated_at} /></td>
    <td class="name"><a class="task" href=${linkTo(task, session)} title=${task.task_id}>${plain(task.task_id)}</a></td>
    ${tenants && html`<td>${plain(task.tenant)}</td>`}
    <td class="name"><a class="quiet" href=${link("tasks", [], { session_id: task.session_id })} title=${`all tasks of the session ${task.session_id}`}>${plain(task.session_id)}</a></td>
    <td><${State} state=${task.state} /></td>
    <td class="nowrap"><${Selected} task=${task} /></td>
    ${figures && html`<${Figures} figures=${task.figures || {}} />`}
    ${labels && html`<td>${task.labels.map((label) => html`<a key=${label} class="badge" href=${link("tasks", [], { label })}>${plain(label)}</a> `)}</td>`}
  </tr>`;
}

const STATES = { open: "note", quarantined: "bad" };

export function State({ state }) {
  return html`<${Badge} kind=${STATES[state]}>${words(state)}<//>`;
}

export function Selected({ task }) {
  if (!task.decided) return html`<span class="muted">not decided yet</span>`;
  return task.selected ? html`<${Badge} kind="good">yes<//> <span class="muted">${plain(words(task.reason))}</span>`
    : html`<span class="muted">no${task.reason ? `: ${plain(words(task.reason))}` : ""}</span>`;
}

/** What the API tells of a task's calls and runs. */
function Figures({ figures }) {
  const { reward, runs, failed_runs: failed, scored_runs: scored } = figures;
  return html`<td class="number">${reward ? html`<span title=${`${scored} scored: from ${decimal(reward.least, 3)} to ${decimal(reward.most, 3)}`}><${Bar} value=${reward.mean} label="mean reward" /> ${decimal(reward.mean, 2)}</span>` : html`<span class="muted">–</span>`}</td>
    <td class="number">${runs ? html`${count(runs)}${failed > 0 && html` <${Badge} kind="bad">${count(failed)} failed<//>`}` : html`<span class="muted">–</span>`}</td>
    <td class="number">${figures.policy_version ?? html`<span class="muted">–</span>`}</td>
    <td class="number">${count(figures.calls)}${figures.problem && html` <${Badge} kind="warn" title="The policy cannot be asked this.">${words(figures.problem)}<//>`}
      ${figures.answered_by && figures.answered_by !== "production" && html` <${Badge} kind="note" title="A version answered the user.">${figures.answered_by.replace(":", " ")}<//>`}</td>
    <td class="number">${seconds(figures.latency)}</td>`;
}
