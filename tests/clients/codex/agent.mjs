// Codex, run once for each question. The command that it is to run shows the weather.
import { spawnSync } from "node:child_process";
import { mkdirSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";

const codex = fileURLToPath(import.meta.resolve("@openai/codex/bin/codex.js"));
const home = `${process.env.HOME}/.codex`;
mkdirSync(home, { recursive: true });
writeFileSync(
  `${home}/config.toml`,
  `
model = "gpt-5"
model_provider = "sidecar"
web_search = "disabled"

[features]
multi_agent = false

[model_providers.sidecar]
name = "Sidecar"
base_url = "${process.env.OPENAI_BASE_URL}"
env_key = "OPENAI_API_KEY"
wire_api = "responses"
`,
);

const [, ...questions] = process.argv.slice(2);
for (const question of questions) {
  const how = ["exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", question];
  const { status, stdout, stderr } = spawnSync(process.execPath, [codex, ...how], { encoding: "utf8", input: "" });
  if (status !== 0) throw new Error(stderr);
  console.log(stdout);
}
