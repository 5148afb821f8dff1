// Agents of the openai SDK for Node: a loop over responses, and its tool runner of chats.
import OpenAI from "openai";

const client = new OpenAI();
const weather = {
  name: "weather",
  description: "The weather in a city.",
  parameters: { type: "object", properties: { city: { type: "string" } }, required: ["city"] },
};
const sunny = ({ city }) => `sunny in ${city}`;

const agents = {
  async chat(content, stream) {
    const tools = [{ type: "function", function: { ...weather, parse: JSON.parse, function: sunny } }];
    const messages = [{ role: "user", content }];
    return client.chat.completions.runTools({ model: "gpt-4o", messages, tools, stream }).finalContent();
  },

  async responses(content, stream) {
    const input = [{ role: "user", content }];
    for (;;) {
      const request = { model: "gpt-5", input, tools: [{ type: "function", ...weather }] };
      const response = stream
        ? await client.responses.stream(request).finalResponse()
        : await client.responses.create(request);
      input.push(...response.output);
      const calls = response.output.filter((item) => item.type === "function_call");
      if (!calls.length) return response.output_text;
      for (const { call_id, arguments: passed } of calls)
        input.push({ type: "function_call_output", call_id, output: sunny(JSON.parse(passed)) });
    }
  },
};

const [dialect, mode, ...questions] = process.argv.slice(2);
for (const question of questions) console.log(await agents[dialect](question, mode === "stream"));
