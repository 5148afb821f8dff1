// How data comes out of the store, and into it.
import { html } from "../../lib/html.js";
import { readCommand } from "../../lib/curl.js";
import { link } from "../../lib/router.js";
import { can, useSession } from "../../lib/session.js";
import { Command } from "./command.js";

const EXAMPLE = `dataset:
  name: support
  kind: sft                # or preference, kto
  format: trl              # or openai, trinity, sharegpt
  sources:
    - production: {min_reward: 0.8}
    - policy: {best_of_group: 1, min_reward: 1.0}
`;

export function Exports() {
  const session = useSession();
  return html`<section class="panel"><h2>Export</h2>
    <p>A data set is written from what is stored, while the sidecar goes on.</p>
    <${Command} label="data.yaml" text=${EXAMPLE} />
    <${Command} text="slipstream dataset export --data data.yaml" />
    <h3>Judged pairs alone</h3><p class="muted">What people preferred, as lines for preference training.</p>
    <${Command} text=${readCommand("preferences/export", { key: session.keys_needed })} />
    ${can("admin") && html`<p><a href="preferences/export" download="preferences.jsonl">Download the judged pairs</a></p>`}</section>`;
}

// The formats, by the names that the command has for them; each task gets the label imported:FORMAT.
const FORMATS = [["openai-chat", "OpenAI, chat"], ["openai-preference", "OpenAI, preferences"], ["langfuse", "Langfuse"], ["phoenix", "Phoenix"], ["otel", "OpenTelemetry"]];

export function Imports() {
  return html`<section class="panel"><h2>Import</h2>
    <p>Conversations that never passed Slipstream come into the store as sessions, redacted by the same rules, and their scores as feedback.</p>
    <${Command} text="slipstream dataset import training.jsonl --format openai-chat --label spring" />
    <${Command} text="slipstream dataset import observations.jsonl scores.jsonl --format langfuse --score helpful" />
    <h3>What was imported</h3><p><a href=${link("tasks", [], { label: "imported" })}>All of it</a>${FORMATS.map(([format, words]) => html` · <a key=${format} href=${link("tasks", [], { label: `imported:${format}` })}>${words}</a>`)}</p>
    ${can("admin") && html`<p><a href=${link("audit", [], { action: "import" })}>Who imported</a></p>`}</section>`;
}
