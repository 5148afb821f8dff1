// Captured tasks: the list, and one of them. The list stays as it was while one is read.
import { get, query } from "../lib/api.js";
import { html, useRef } from "../lib/html.js";
import { useMark } from "../lib/live.js";
import { useLiveList } from "../lib/live_list.js";
import { useSession } from "../lib/session.js";
import { filtersOf } from "../parts/tasks/filters.js";
import { idOf, linkTo } from "../parts/tasks/links.js";
import { TaskList } from "../parts/tasks/list.js";
import { Task } from "../parts/tasks/task.js";

const PAGE = 50;

export default function Tasks({ route }) {
  const session = useSession();
  const listed = route.parts.length === 0;
  const mark = useMark("tasks");
  const held = useRef({ filters: null, mark, last: null }); // of the list, while a task is read
  if (listed) Object.assign(held.current, { filters: filtersOf(route.query), mark });
  const { filters } = held.current;
  const list = useLiveList({
    name: "tasks",
    id: idOf,
    at: (task) => task.updated_at,
    read: (cursor, signal) => get("tasks" + query({ ...filters, cursor, limit: PAGE }), { signal }),
    place: filters && JSON.stringify(filters),
    mark: filters && filters.text ? null : held.current.mark, // a search costs too much to be repeated with each change
  });
  if (listed) return html`<${TaskList} list=${list} filters=${filters} session=${session} last=${held.current.last} />`;
  const tenant = route.query.tenant || null;
  const [id] = route.parts;
  const at = (list.data || []).findIndex((task) => task.task_id === id && (!tenant || task.tenant === tenant));
  if (at >= 0) held.current.last = idOf(list.data[at]);
  const near = (step) => {
    const task = at < 0 ? undefined : list.data[at + step];
    return task && linkTo(task, session);
  };
  return html`<${Task} key=${`${tenant} ${id}`} id=${id} tenant=${tenant} query=${route.query} session=${session}
    filters=${filters} newer=${near(-1)} older=${near(1)} reread=${list.again} />`;
}
