// An agent of Vercel's AI SDK.
import { createAnthropic } from "@ai-sdk/anthropic";
import { createOpenAI } from "@ai-sdk/openai";
import { generateText, stepCountIs, streamText, tool } from "ai";
import { z } from "zod";

const openai = createOpenAI({ baseURL: process.env.OPENAI_BASE_URL });
const anthropic = createAnthropic({ baseURL: `${process.env.ANTHROPIC_BASE_URL}/v1` });
const tools = {
  weather: tool({
    description: "The weather in a city.",
    inputSchema: z.object({ city: z.string() }),
    execute: async ({ city }) => `sunny in ${city}`,
  }),
};

const [dialect, mode, ...questions] = process.argv.slice(2);
const models = {
  responses: () => openai("gpt-5"),
  chat: () => openai.chat("gpt-4o"),
  messages: () => anthropic("claude-sonnet-4-5"),
};
for (const prompt of questions) {
  const request = { model: models[dialect](), prompt, tools, stopWhen: stepCountIs(5) };
  const result = mode === "stream" ? streamText(request) : await generateText(request);
  console.log(await result.text);
}
