// What can be done with a data set, as commands.
import { path } from "../../lib/api.js";
import { quoted, readCommand } from "../../lib/curl.js";
import { html } from "../../lib/html.js";
import { Command } from "./command.js";

const OVERLAYS = { sft: "overlays/sft.yaml", preference: "overlays/dpo.yaml", kto: "overlays/kto.yaml" };

const TRAIN = "slipstream train --config data.yaml --estimate\nslipstream train --config data.yaml";

// Names that the sidecar gave need no quotes in a shell.
const word = (name) => (/^[\w./-]+$/.test(name) ? name : quoted(name));

export function Uses({ made, directory, session }) {
  const folder = `${directory}/${made.name}`;
  const reads = `from datasets import load_dataset\n\nrows = load_dataset(${JSON.stringify(folder)}, split="train")`;
  return html`<section class="panel"><h2>Use it</h2><div class="panels tables">
    <section><h3>Train on it</h3><${Command} text=${TRAIN} />
      <p class="muted small">with this as <code>data.yaml</code>: what it is made of, as JSON, which is YAML too.</p>
      <${Command} label="data.yaml" text=${JSON.stringify({ dataset: made.dataset, train: { overlays: [OVERLAYS[made.kind]] } }, null, 2)} /></section>
    <section>${made.counts.rows.held_out > 0 && html`<h3>Compare models on its held-out rows</h3>
      <${Command} text=${`slipstream evaluate --model production --model policy --held-out ${word(folder)} --report report`} />`}
      <h3>Read it</h3><${Command} label="Python" text=${reads} />
      <${Command} text=${readCommand(path("datasets", made.name), { key: session.keys_needed })} />
      <h3>Make it again</h3><${Command} text="slipstream dataset export --data data.yaml --replace" />
      <h3>Its card, and its end</h3><${Command} text=${`slipstream dataset card ${word(made.name)}\nslipstream dataset erase ${word(made.name)}`} /></section>
  </div></section>`;
}
