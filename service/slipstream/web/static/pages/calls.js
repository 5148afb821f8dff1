// A link by the id of an answer: it leads to the answer's task.
import { get, path } from "../lib/api.js";
import { html, useEffect, useState } from "../lib/html.js";
import { go, link } from "../lib/router.js";
import { Failure, Loading } from "../parts/basics.js";
import { ofTenant } from "../parts/tasks/links.js";

export default function Calls({ route }) {
  const [error, setError] = useState(null);
  const [turn, setTurn] = useState(0);
  const [id = ""] = route.parts;
  const tenant = route.query.tenant || null;
  useEffect(() => {
    const control = new AbortController();
    setError(null);
    get(path("calls", id), { signal: control.signal, headers: ofTenant(tenant) }).then(
      (call) => go(link("tasks", [call.task_id], { answer: call.msg_id, tenant: tenant && call.tenant }), { replace: true }),
      (failure) => control.signal.aborted || setError(failure),
    );
    return () => control.abort();
  }, [id, tenant, turn]);
  if (!error) return html`<${Loading} what="Looking for the answer" />`;
  return html`<h1>Answer</h1><${Failure} error=${error} again=${() => setTurn(turn + 1)} />
    <p>The id of an answer is the <code>id</code> that the agent got with it. <a href=${link("tasks")}>All tasks</a></p>`;
}
