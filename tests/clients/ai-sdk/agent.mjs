// An agent of Vercel's AI SDK.
import { createOpenAI } from "@ai-sdk/openai";
import { generateText, stepCountIs, streamText, tool } from "ai";
import { z } from "zod";

const openai = createOpenAI({ baseURL: process.env.OPENAI_BASE_URL });
const tools = {
  weather: tool({
    description: "The weather in a city.",
    inputSchema: z.object({ city: z.string() }),
    execute: async ({ city }) => `sunny in ${city}`,
  }),
};

const [mode, ...questions] = process.argv.slice(2);
for (const prompt of questions) {
  const request = { model: openai.chat("gpt-4o"), prompt, tools, stopWhen: stepCountIs(5) };
  const result = mode === "stream" ? streamText(request) : await generateText(request);
  console.log(await result.text);
}
