"""An assistant of AutoGen."""

import asyncio
import sys

from autogen_agentchat.agents import AssistantAgent
from autogen_ext.models.openai import OpenAIChatCompletionClient


async def weather(city: str) -> str:
    """The weather in a city."""
    return f"sunny in {city}"


async def run(question, stream):
    agent = AssistantAgent(
        "forecaster",
        OpenAIChatCompletionClient(model="gpt-4o"),
        tools=[weather],
        system_message="Answer briefly.",
        model_client_stream=stream,
        max_tool_iterations=5,
    )
    return (await agent.run(task=question)).messages[-1].content


async def main():
    for question in sys.argv[2:]:
        print(await run(question, sys.argv[1] == "stream"))


asyncio.run(main())
