"""An agent of Pydantic AI."""

import asyncio
import sys

from pydantic_ai import Agent

dialect, mode, *questions = sys.argv[1:]
models = {"responses": "openai:gpt-5", "chat": "openai-chat:gpt-4o", "messages": "anthropic:claude-sonnet-4-5"}
agent = Agent(models[dialect], system_prompt="Answer briefly.")


@agent.tool_plain
def weather(city: str) -> str:
    """The weather in a city."""
    return f"sunny in {city}"


async def read(context, events):
    async for _ in events:
        pass


async def run(question):
    return (await agent.run(question, event_stream_handler=read if mode == "stream" else None)).output


async def main():
    for question in questions:
        print(await run(question))


asyncio.run(main())
