"""A function agent of LlamaIndex."""

import asyncio
import os
import sys

from llama_index.core.agent.workflow import FunctionAgent
from llama_index.llms.openai import OpenAI, OpenAIResponses

dialect, mode, *questions = sys.argv[1:]
api_base = os.environ["OPENAI_BASE_URL"]
models = {
    "chat": lambda: OpenAI(model="gpt-4o", api_base=api_base),
    "responses": lambda: OpenAIResponses(model="gpt-5", api_base=api_base),
}


def weather(city: str) -> str:
    """The weather in a city."""
    return f"sunny in {city}"


async def run(question):
    streaming = mode == "stream"
    agent = FunctionAgent(tools=[weather], llm=models[dialect](), system_prompt="Answer briefly.", streaming=streaming)
    return str(await agent.run(question))


async def main():
    for question in questions:
        print(await run(question))


asyncio.run(main())
