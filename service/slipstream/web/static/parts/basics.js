// Small parts that every page uses.
import { html, useEffect, useRef, useState } from "../lib/html.js";
import { ago, exactTime, seconds } from "../lib/format.js";

export function Loading({ what = "Loading" }) {
  return html`<p class="loading" role="status">${what} …</p>`;
}

/** An error in the API's own words, with a way to try again. */
export function Failure({ error, again }) {
  return html`<div class="failure" role="alert"><p>${error.message}</p>
    ${again && html`<button onClick=${again}>Try again</button>`}</div>`;
}

/** A list that has nothing to show, and what to do next. */
export function Empty({ title, children }) {
  return html`<section class="empty"><h2>${title}</h2>${children}</section>`;
}

/** What `useLoad` gave: the failure, the wait, or the children made of its data. */
export function Loaded({ of, children }) {
  if (of.data === null) return of.error ? html`<${Failure} error=${of.error} again=${of.again} />` : html`<${Loading} />`;
  return html`${of.error && html`<${Failure} error=${of.error} again=${of.again} />`}${children(of.data)}`;
}

/** A time, as long as it is ago, with the exact one in the reader's zone on hover. */
export function Time({ at }) {
  const [, again] = useState(0);
  useEffect(() => {
    const timer = setInterval(() => again((turn) => turn + 1), 20_000);
    return () => clearInterval(timer);
  }, []);
  if (at === null || at === undefined) return html`<span class="muted">–</span>`;
  return html`<time datetime=${new Date(at * 1000).toISOString()} title=${exactTime(at)}>${ago(at)}</time>`;
}

/** How long it is until a time: it counts down to 0 by itself. */
export function Until({ at }) {
  const [, again] = useState(0);
  useEffect(() => {
    const timer = setInterval(() => again((turn) => turn + 1), 1000);
    return () => clearInterval(timer);
  }, []);
  return html`<span title=${exactTime(at)}>${seconds(Math.max(0, at - Date.now() / 1000))}</span>`;
}

/** A word in a colour: "good", "bad", "warn", "note" or none. */
export function Badge({ kind = "", title, children }) {
  return html`<span class=${`badge ${kind}`} title=${title}>${children}</span>`;
}

/** A figure with its name, and a line below it. */
export function Figure({ name, value, unit, below, kind = "", title }) {
  return html`<div class=${`figure ${kind}`} title=${title}><dt>${name}</dt>
    <dd><span class="value">${value}</span>${unit && html` <span class="unit">${unit}</span>`}
      ${below && html`<div class="muted">${below}</div>`}</dd></div>`;
}

/** A part of a whole as a bar; the number stands beside it. `value` from 0 to 1. */
export function Bar({ value, kind = "", label }) {
  const fill = useRef(null);
  const part = Math.max(0, Math.min(1, value || 0));
  useEffect(() => {
    fill.current.style.width = `${part * 100}%`; // the policy allows no style in markup
  }, [part]);
  return html`<span class="bar" role="img" aria-label=${label}><span ref=${fill} class=${`fill ${kind}`}></span></span>`;
}

const notices = { list: [], listeners: new Set(), last: 0 };

/** Tells the reader what was done, or why not, for some seconds. */
export function notice(text, kind = "good") {
  const one = { id: ++notices.last, text, kind };
  notices.list = [...notices.list, one];
  const tell = () => notices.listeners.forEach((listener) => listener(notices.list));
  tell();
  setTimeout(() => {
    notices.list = notices.list.filter((each) => each !== one);
    tell();
  }, kind === "bad" ? 12_000 : 5_000);
}

export function Notices() {
  const [list, setList] = useState(notices.list);
  useEffect(() => {
    notices.listeners.add(setList);
    return () => notices.listeners.delete(setList);
  }, []);
  return html`<div class="notices" role="status" aria-live="polite">
    ${list.map((one) => html`<p key=${one.id} class=${one.kind}>${one.text}</p>`)}</div>`;
}

/** Copies a text, and tells the reader. */
export async function copyText(text, said = "Copied.") {
  try {
    if (!navigator.clipboard) copyMarked(text);
    else await navigator.clipboard.writeText(text);
    notice(said);
  } catch {
    notice("The browser does not let this page copy.", "bad");
  }
}

/** The way of before, for a page that did not come by TLS or from this machine: it gets no clipboard. */
function copyMarked(text) {
  const field = document.createElement("textarea");
  field.value = text;
  document.body.append(field);
  field.select();
  const copied = document.execCommand("copy");
  field.remove();
  if (!copied) throw new Error("not copied");
}

/** Copies a text for the reader; a function makes it when it is asked for. */
export function Copy({ text, children }) {
  return html`<button class="plain" onClick=${() => copyText(typeof text === "function" ? text() : text)}>${children}</button>`;
}
