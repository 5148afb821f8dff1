// An agent of the openai SDK for Node, run by its tool runner.
import OpenAI from "openai";

const client = new OpenAI();

const tools = [
  {
    type: "function",
    function: {
      name: "weather",
      description: "The weather in a city.",
      parameters: { type: "object", properties: { city: { type: "string" } }, required: ["city"] },
      parse: JSON.parse,
      function: ({ city }) => `sunny in ${city}`,
    },
  },
];

const [mode, ...questions] = process.argv.slice(2);
for (const question of questions) {
  const messages = [{ role: "user", content: question }];
  const runner = client.chat.completions.runTools({ model: "gpt-4o", messages, tools, stream: mode === "stream" });
  console.log(await runner.finalContent());
}
