// An agent of the anthropic SDK for Node, run by its tool runner.
import Anthropic from "@anthropic-ai/sdk";

const client = new Anthropic();

const tools = [
  {
    type: "custom",
    name: "weather",
    description: "The weather in a city.",
    input_schema: { type: "object", properties: { city: { type: "string" } }, required: ["city"] },
    parse: (input) => input,
    run: ({ city }) => `sunny in ${city}`,
  },
];

const [mode, ...questions] = process.argv.slice(2);
for (const content of questions) {
  const messages = [{ role: "user", content }];
  const asked = { model: "claude-sonnet-4-5", max_tokens: 1024, messages, tools };
  const runner = client.beta.messages.toolRunner({ ...asked, stream: mode === "stream" });
  if (mode === "stream") for await (const events of runner) await events.finalMessage();
  console.log((await runner).content.at(-1).text);
}
