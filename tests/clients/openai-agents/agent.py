"""An agent of the OpenAI Agents SDK."""

import asyncio
import sys

import agents

dialect, mode, *questions = sys.argv[1:]
if dialect == "chat":
    agents.set_default_openai_api("chat_completions")
agents.set_tracing_disabled(True)


@agents.function_tool
def weather(city: str) -> str:
    """The weather in a city."""
    return f"sunny in {city}"


model = {"chat": "gpt-4o", "responses": "gpt-5"}[dialect]
agent = agents.Agent(name="forecaster", instructions="Answer briefly.", model=model, tools=[weather])


async def run(question):
    if mode != "stream":
        return (await agents.Runner.run(agent, question)).final_output
    result = agents.Runner.run_streamed(agent, question)
    async for _ in result.stream_events():
        pass
    return result.final_output


async def main():
    for question in questions:
        print(await run(question))


asyncio.run(main())
