// The page by keyboard: g and a letter goes to a page, / to the search, ? shows the list. A page adds its own by useKeys.
import { html, useEffect, useRef, useState } from "../lib/html.js";
import { go, link } from "../lib/router.js";

const AFTER_G = 1500; // ms

const typing = (target) => target.closest && target.closest("input, textarea, select, [contenteditable], dialog");

const lists = new Set();

/**
 * Keys of a page: `{j: [down, "next task", true]}`; they hold while it is shown. One that is held down acts once, unless
 * it says that it goes on: a verdict must not be given for what nobody has seen yet.
 */
export function useKeys(keys) {
  const newest = useRef(keys);
  newest.current = keys;
  useEffect(() => {
    const list = { get: () => newest.current };
    lists.add(list);
    const pressed = (event) => {
      if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || typing(event.target)) return;
      const found = newest.current[event.key];
      if (!found) return;
      event.preventDefault();
      const [act, , goesOn] = found;
      if (!event.repeat || goesOn) act();
    };
    addEventListener("keydown", pressed);
    return () => {
      lists.delete(list);
      removeEventListener("keydown", pressed);
    };
  }, []);
}

export function Keys({ pages }) {
  const [open, setOpen] = useState(false);
  const dialog = useRef(null);
  const since = useRef(0);
  useEffect(() => {
    const pressed = (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey || typing(event.target)) return;
      if (Date.now() - since.current < AFTER_G) {
        since.current = 0;
        const page = pages.find((one) => one.key === event.key);
        if (page) {
          event.preventDefault(); // so that a page's own key of this letter does nothing
          go(link(page.name));
        }
      } else if (event.key === "g") {
        since.current = Date.now();
      } else if (event.key === "?") {
        setOpen(true);
      } else if (event.key === "/") {
        const search = document.querySelector("input[type=search]");
        if (search) {
          event.preventDefault();
          search.focus();
        }
      }
    };
    addEventListener("keydown", pressed, true);
    return () => removeEventListener("keydown", pressed, true);
  }, [pages]);
  useEffect(() => {
    if (open) dialog.current.showModal();
  }, [open]);
  if (!open) return null;
  const own = [...lists].flatMap((list) => Object.entries(list.get()));
  return html`<dialog ref=${dialog} onClose=${() => setOpen(false)} aria-label="Keys">
    <h2>Keys</h2>
    <dl class="keys">
      ${pages.map((page) => html`<dt><kbd>g</kbd> <kbd>${page.key}</kbd></dt><dd>${page.title}</dd>`)}
      <dt><kbd>/</kbd></dt><dd>search</dd>
      ${own.map(([key, [, text]]) => html`<dt><kbd>${key}</kbd></dt><dd>${text}</dd>`)}
    </dl>
    <form method="dialog"><button class="main">Close</button></form>
  </dialog>`;
}
