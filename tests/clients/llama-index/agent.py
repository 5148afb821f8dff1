"""A function agent of LlamaIndex."""

import asyncio
import os
import sys

from llama_index.core.agent.workflow import FunctionAgent
from llama_index.llms.openai import OpenAI


def weather(city: str) -> str:
    """The weather in a city."""
    return f"sunny in {city}"


async def run(question, stream):
    llm = OpenAI(model="gpt-4o", api_base=os.environ["OPENAI_BASE_URL"])
    agent = FunctionAgent(tools=[weather], llm=llm, system_prompt="Answer briefly.", streaming=stream)
    return str(await agent.run(question))


async def main():
    for question in sys.argv[2:]:
        print(await run(question, sys.argv[1] == "stream"))


asyncio.run(main())
