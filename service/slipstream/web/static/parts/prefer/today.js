// How many verdicts of an annotator were sent today from this browser, and who that was last.

const NAME = "slipstream-annotator";
const COUNT = "slipstream-judged";

const day = () => new Date().toDateString();

function kept(name) {
  try {
    return localStorage.getItem(name);
  } catch {
    return null; // a browser that keeps nothing
  }
}

function keep(name, value) {
  try {
    localStorage.setItem(name, value);
  } catch {
    // it holds until the tab is closed
  }
}

function counts() {
  try {
    const found = JSON.parse(kept(COUNT) || "{}");
    return found.day === day() ? found.of || {} : {};
  } catch {
    return {};
  }
}

export const today = (annotator) => counts()[annotator] || 0;

/** One more. Tells those who show it. */
export function add(annotator) {
  const of = counts();
  keep(COUNT, JSON.stringify({ day: day(), of: { ...of, [annotator]: (of[annotator] || 0) + 1 } }));
  dispatchEvent(new Event(COUNT));
}

/** Calls `listener` when there is one more. Returns what ends that. */
export function onMore(listener) {
  addEventListener(COUNT, listener);
  return () => removeEventListener(COUNT, listener);
}

export const lastAnnotator = () => kept(NAME) || "";
export const rememberAnnotator = (name) => keep(NAME, name);
