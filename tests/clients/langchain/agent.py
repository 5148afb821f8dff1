"""An agent of LangChain, asynchronous."""

import asyncio
import sys

from langchain.agents import create_agent
from langchain_anthropic import ChatAnthropic
from langchain_openai import ChatOpenAI

dialect, mode, *questions = sys.argv[1:]


def weather(city: str) -> str:
    """The weather in a city."""
    return f"sunny in {city}"


models = {
    "chat": lambda: ChatOpenAI(model="gpt-4o"),
    "responses": lambda: ChatOpenAI(model="gpt-5", use_responses_api=True),
    "messages": lambda: ChatAnthropic(model="claude-sonnet-4-5"),
}
agent = create_agent(models[dialect](), [weather], system_prompt="Answer briefly.")


async def run(question):
    asked = {"messages": [{"role": "user", "content": question}]}
    if mode != "stream":
        return (await agent.ainvoke(asked))["messages"][-1].text
    said = [
        part.text async for part, _ in agent.astream(asked, stream_mode="messages") if part.type == "AIMessageChunk"
    ]
    return "".join(said)


async def main():
    for question in questions:
        print(await run(question))


asyncio.run(main())
