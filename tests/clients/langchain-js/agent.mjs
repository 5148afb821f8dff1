// An agent of LangChain for JavaScript.
import { createAgent, tool } from "langchain";
import { ChatOpenAI } from "@langchain/openai";
import { z } from "zod";

const weather = tool(({ city }) => `sunny in ${city}`, {
  name: "weather",
  description: "The weather in a city.",
  schema: z.object({ city: z.string() }),
});
const model = new ChatOpenAI({ model: "gpt-4o", configuration: { baseURL: process.env.OPENAI_BASE_URL } });
const agent = createAgent({ model, tools: [weather], systemPrompt: "Answer briefly." });

const [mode, ...questions] = process.argv.slice(2);
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
