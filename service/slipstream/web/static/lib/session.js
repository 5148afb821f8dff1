// Who is signed in, and what that may do. The API decides; the page only leaves out what would be refused.
import { get, onSignedOut, send } from "./api.js";
import { useEffect, useState } from "./html.js";
import * as live from "./live.js";

let session = null;
const listeners = new Set();

function become(next) {
  session = next;
  if (next && next.signed_in && can("read", next)) live.start(ask);
  else live.stop();
  for (const listener of listeners) listener(next);
}

/** Asks who is signed in. */
export async function refresh() {
  become(await get("session"));
}

/** Exchanges a key for a session. Throws the ApiError of a key that is not taken. */
export async function signIn(key) {
  become(await send("POST", "session", undefined, { headers: { "x-slipstream-key": key } }));
}

const leaving = new Set();

/** Calls `act` before somebody signs out, and waits for its promise. Returns what ends that. */
export function beforeSignOut(act) {
  leaving.add(act);
  return () => leaving.delete(act);
}

export async function signOut() {
  await Promise.allSettled([...leaving].map((act) => act()));
  await send("DELETE", "session");
  become({ ...session, signed_in: false });
}

function end() {
  if (session && session.signed_in) become({ ...session, signed_in: false, ended: true });
}

onSignedOut(end);

/** Asks whether the session still holds, where something else than an answer of the API's may say that it has ended. */
function ask() {
  const asked = session;
  get("session").then(
    (now) => asked === session && !now.signed_in && end(),
    () => {}, // the sidecar is away, and is asked again
  );
}

const ROLES = {
  read: ["metrics", "viewer", "operator", "admin"],
  task: ["feedback", "metrics", "viewer", "operator", "admin"],
  operate: ["operator", "admin"],
  commit: ["runs", "admin"],
  annotate: ["annotator", "admin"],
  mark: ["feedback", "admin"],
  admin: ["admin"],
};

/** Whether whoever is signed in may "read", "operate", "commit", "annotate", "mark", or do what is for "admin". */
export function can(what, who = session) {
  return Boolean(who && who.signed_in && who.roles.some((role) => ROLES[what].includes(role)));
}

export function useSession() {
  const [value, setValue] = useState(session);
  useEffect(() => {
    listeners.add(setValue);
    setValue(session);
    return () => listeners.delete(setValue);
  }, []);
  return value;
}
