// An agent of the OpenAI Agents SDK for JavaScript.
import { Agent, run, setOpenAIAPI, setTracingDisabled, tool } from "@openai/agents";
import { z } from "zod";

const [dialect, mode, ...questions] = process.argv.slice(2);
if (dialect === "chat") setOpenAIAPI("chat_completions");
setTracingDisabled(true);

const weather = tool({
  name: "weather",
  description: "The weather in a city.",
  parameters: z.object({ city: z.string() }),
  execute: async ({ city }) => `sunny in ${city}`,
});
const model = { chat: "gpt-4o", responses: "gpt-5" }[dialect];
const agent = new Agent({ name: "forecaster", instructions: "Answer briefly.", model, tools: [weather] });

for (const question of questions) {
  const result = await run(agent, question, { stream: mode === "stream" });
  if (mode === "stream") await result.completed;
  console.log(result.finalOutput);
}
