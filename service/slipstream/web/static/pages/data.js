// Data sets have their place here; until they are made in the page, it says what can be had today.
import { html } from "../lib/html.js";
import { can } from "../lib/session.js";

export default function Data() {
  return html`<h1>Data</h1>
    <section class="empty"><h2>No data sets yet</h2>
      <p>Supervised, preference and distillation data sets will be made here.</p>
      <p>Judged pairs can be had today, as lines for preference training:</p>
      <pre>curl -H "x-slipstream-key: $KEY" ${new URL("preferences/export", document.baseURI).href}</pre>
      ${can("admin") && html`<p><a href="preferences/export" download="preferences.jsonl">Download the judged pairs</a></p>`}
    </section>`;
}
