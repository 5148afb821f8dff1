// Fields of a form, each with its label, what it means, and what the API says is wrong with it.
import { html } from "../lib/html.js";

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

/** A number as it was typed: null for none, and the text itself where it is no number, so that the API says so. */
export function typedNumber(text) {
  const trimmed = String(text).trim();
  if (trimmed === "") return null;
  const number = Number(trimmed.replace(",", "."));
  return Number.isNaN(number) ? trimmed : number;
}

/** "5, 20, 50" in per cent as parts of 1. */
export function typedShares(text) {
  return String(text).split(/[\s,;]+/).filter(Boolean).map((part) => {
    const number = typedNumber(part.replace("%", ""));
    return typeof number === "number" ? Number((number / 100).toPrecision(12)) : number;
  });
}
