// Fields of a form, each with its label, what it means, and what the API says is wrong with it.
import { html, useState } from "../lib/html.js";

/** The API's errors name a field as `steps.0` or `guardrails.failure.margin`; it stands at the one that it begins with. */
export function wrongAt(error, name) {
  return Boolean(error && error.param && (error.param === name || error.param.startsWith(`${name}.`)));
}

/** `children`: the input, made of the attributes that tie it to its label and its error. */
export function Field({ name, label, help, error, children }) {
  const wrong = wrongAt(error, name);
  const id = `field-${name}`;
  const about = [help && `${id}-help`, wrong && `${id}-wrong`].filter(Boolean).join(" ") || undefined;
  return html`<div class=${`field ${wrong ? "wrong" : ""}`}><label for=${id}>${label}</label>
    ${children({ id, name, "aria-describedby": about, "aria-invalid": wrong || undefined })}
    ${help && html`<div class="small muted" id=${`${id}-help`}>${help}</div>`}
    ${wrong && html`<div class="small said-wrong" id=${`${id}-wrong`} role="alert">${error.message}</div>`}</div>`;
}

/**
 * A form over values by their names. `send` is given them, and returns a promise; where it fails, the form stays as it
 * was filled in. Returns the `values`, `set(name)` for what is not made by `text` or `choice`, the `error`, and what the
 * form needs: `busy` and `submit`.
 */
export function useForm(start, send) {
  const [values, setValues] = useState(start);
  const [error, setError] = useState(null);
  const [busy, setBusy] = useState(false);
  const set = (name) => (event) => {
    const value = event.target.type === "checkbox" ? event.target.checked : event.target.value;
    setValues((before) => ({ ...before, [name]: value }));
  };
  const submit = (event) => {
    event.preventDefault();
    setBusy(true);
    setError(null);
    send(values).catch((failure) => {
      setBusy(false);
      setError(failure);
    });
  };
  const text = (name, label, help, placeholder, more = {}) => html`<${Field} name=${name} label=${label} help=${help} error=${error}>${(ties) => html`
    <input ...${ties} ...${more} value=${values[name]} onInput=${set(name)} placeholder=${placeholder} autocomplete="off" spellcheck=${false} />`}<//>`;
  const choice = (name, label, help, options) => html`<${Field} name=${name} label=${label} help=${help} error=${error}>${(ties) => html`
    <select ...${ties} value=${values[name]} onChange=${set(name)}>${options.map(([value, words]) => html`<option key=${value} value=${value}>${words}</option>`)}</select>`}<//>`;
  return { values, set, error, busy, submit, text, choice };
}

/** A number as it was typed: null for none, and the text itself where it is no number, so that the API says so. */
export function typedNumber(text) {
  const trimmed = String(text).trim();
  if (trimmed === "") return null;
  const number = Number(trimmed.replace(",", "."));
  return Number.isNaN(number) ? trimmed : number;
}

/** A whole number as it was typed, as typedNumber does it. Any sign between digits is refused: "1,000" is not 1. */
export function typedWhole(text) {
  const trimmed = String(text).trim();
  if (trimmed === "") return null;
  return /^[0-9]+$/.test(trimmed) ? Number(trimmed) : trimmed;
}

/** "50" or "50 %" in per cent as a part of 1. */
export function typedShare(text) {
  const number = typedNumber(text.replace("%", ""));
  return typeof number === "number" ? Number((number / 100).toPrecision(12)) : number;
}

/** "5, 20, 50" in per cent as parts of 1. */
export function typedShares(text) {
  return String(text).split(/[\s,;]+/).filter(Boolean).map(typedShare);
}
