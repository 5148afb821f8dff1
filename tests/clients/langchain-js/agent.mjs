// An agent of LangChain for JavaScript.
import { createAgent, tool } from "langchain";
import { ChatAnthropic } from "@langchain/anthropic";
import { ChatOpenAI } from "@langchain/openai";
import { z } from "zod";

const weather = tool(({ city }) => `sunny in ${city}`, {
  name: "weather",
  description: "The weather in a city.",
  schema: z.object({ city: z.string() }),
});
const [dialect, mode, ...questions] = process.argv.slice(2);
const configuration = { baseURL: process.env.OPENAI_BASE_URL };
const models = {
  chat: () => new ChatOpenAI({ model: "gpt-4o", configuration }),
  responses: () => new ChatOpenAI({ model: "gpt-5", configuration, useResponsesApi: true }),
  messages: () => new ChatAnthropic({ model: "claude-sonnet-4-5", anthropicApiUrl: process.env.ANTHROPIC_BASE_URL }),
};
const agent = createAgent({ model: models[dialect](), tools: [weather], systemPrompt: "Answer briefly." });

for (const content of questions) {
  const asked = { messages: [{ role: "user", content }] };
  if (mode === "stream") {
    let said = "";
    for await (const [part] of await agent.stream(asked, { streamMode: "messages" })) said += part.text;
    console.log(said);
  } else {
    console.log((await agent.invoke(asked)).messages.at(-1).text);
  }
}
