// How a task is named and linked to. A key that reaches all tenants says which one is meant, because ids may repeat.
import { link } from "../../lib/router.js";

export const idOf = (task) => `${task.tenant} ${task.task_id}`;

const crosses = (session) => session.keys_needed && session.tenant === null;

export function linkTo(task, session, more = {}) {
  return link("tasks", [task.task_id], { ...more, tenant: crosses(session) ? task.tenant : null });
}

/** The header that says which tenant is meant. */
export const ofTenant = (tenant) => (tenant ? { "x-slipstream-tenant": tenant } : {});

/** The same for a write about a task that is shown, where the key reaches all tenants. */
export const meant = (task, session) => (crosses(session) ? ofTenant(task.tenant) : {});

/** A word of the API in plain text: not_sampled, "not sampled". */
export const words = (text) => String(text ?? "").replaceAll("_", " ");
