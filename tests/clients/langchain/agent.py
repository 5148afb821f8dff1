"""An agent of LangChain, asynchronous."""

import asyncio
import sys

from langchain.agents import create_agent
from langchain_openai import ChatOpenAI


def weather(city: str) -> str:
    """The weather in a city."""
    return f"sunny in {city}"


agent = create_agent(ChatOpenAI(model="gpt-4o"), [weather], system_prompt="Answer briefly.")


async def run(question, stream):
    asked = {"messages": [{"role": "user", "content": question}]}
    if not stream:
        return (await agent.ainvoke(asked))["messages"][-1].text
    said = [
        part.text async for part, _ in agent.astream(asked, stream_mode="messages") if part.type == "AIMessageChunk"
    ]
    return "".join(said)


async def main():
    for question in sys.argv[2:]:
        print(await run(question, sys.argv[1] == "stream"))


asyncio.run(main())
