"""An agent of Pydantic AI."""

import asyncio
import sys

from pydantic_ai import Agent

agent = Agent("openai-chat:gpt-4o", system_prompt="Answer briefly.")


@agent.tool_plain
def weather(city: str) -> str:
    """The weather in a city."""
    return f"sunny in {city}"


async def read(context, events):
    async for _ in events:
        pass


async def run(question, stream):
    return (await agent.run(question, event_stream_handler=read if stream else None)).output


async def main():
    for question in sys.argv[2:]:
        print(await run(question, sys.argv[1] == "stream"))


asyncio.run(main())
