// A question before something that is not taken back lightly. The browser's own dialog keeps the focus inside.
import { html, useEffect, useRef, useState } from "../lib/html.js";
import { notice } from "./basics.js";

/**
 * A button that asks first.
 *
 * `word`: what is to be typed before it can be done; none for a question alone. `act`: does it, and returns a promise,
 * whose failure is shown in the dialog. `done`: what is told then. `children`: what will happen, in words; a function
 * of `(values, set)` makes fields of them.
 */
export function Confirm({ label, title, word, act, done, kind = "", disabled, why, initial = {}, children }) {
  const [open, setOpen] = useState(false);
  return html`
    <button class=${kind} disabled=${disabled} title=${why} onClick=${() => setOpen(true)}>${label}</button>
    ${open && html`<${Asked} label=${label} title=${title} word=${word} act=${act} done=${done} kind=${kind}
      initial=${initial} close=${() => setOpen(false)}>${children}<//>`}`;
}

function Asked({ label, title, word, act, done, kind, initial, close, children }) {
  const dialog = useRef(null);
  const [typed, setTyped] = useState("");
  const [values, setValues] = useState(initial);
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState(null);
  useEffect(() => {
    dialog.current.showModal();
  }, []);
  const set = (name) => (event) => setValues((before) => ({ ...before, [name]: event.target.value }));
  const submit = (event) => {
    event.preventDefault();
    setBusy(true);
    setError(null);
    Promise.resolve(act(values)).then(
      () => {
        if (done) notice(done);
        close();
      },
      (failure) => {
        setBusy(false);
        setError(failure);
      },
    );
  };
  return html`<dialog ref=${dialog} onClose=${close} aria-label=${title}>
    <form onSubmit=${submit}>
      <h2>${title}</h2>
      ${typeof children === "function" ? children(values, set) : children}
      ${word && html`<label>Type <strong>${word}</strong> to go on
        <input value=${typed} onInput=${(event) => setTyped(event.target.value)} autocomplete="off" spellcheck=${false} /></label>`}
      ${error && html`<p class="failure" role="alert">${error.message}</p>`}
      <div class="buttons">
        <button type="button" onClick=${() => dialog.current.close()}>Cancel</button>
        <button class=${kind || "main"} disabled=${busy || (word && typed.trim() !== String(word))}>${busy ? "…" : label}</button>
      </div>
    </form>
  </dialog>`;
}
