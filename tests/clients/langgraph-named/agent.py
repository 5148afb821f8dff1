"""A ReAct agent of LangGraph, with a name."""

import sys

from langchain_openai import ChatOpenAI
from langgraph.prebuilt import create_react_agent


def weather(city: str) -> str:
    """The weather in a city."""
    return f"sunny in {city}"


agent = create_react_agent(ChatOpenAI(model="gpt-4o"), [weather], name="forecaster")


def run(question, stream):
    asked = {"messages": [{"role": "user", "content": question}]}
    if not stream:
        return agent.invoke(asked)["messages"][-1].text
    return "".join(
        part.text for part, _ in agent.stream(asked, stream_mode="messages") if part.type == "AIMessageChunk"
    )


for question in sys.argv[2:]:
    print(run(question, sys.argv[1] == "stream"))
