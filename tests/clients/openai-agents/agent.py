"""An agent of the OpenAI Agents SDK."""

import asyncio
import sys

import agents

agents.set_default_openai_api("chat_completions")
agents.set_tracing_disabled(True)


@agents.function_tool
def weather(city: str) -> str:
    """The weather in a city."""
    return f"sunny in {city}"


agent = agents.Agent(name="forecaster", instructions="Answer briefly.", model="gpt-4o", tools=[weather])


async def run(question, stream):
    if not stream:
        return (await agents.Runner.run(agent, question)).final_output
    result = agents.Runner.run_streamed(agent, question)
    async for _ in result.stream_events():
        pass
    return result.final_output


async def main():
    for question in sys.argv[2:]:
        print(await run(question, sys.argv[1] == "stream"))


asyncio.run(main())
