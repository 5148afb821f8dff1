"""An agent of Agno."""

import os
import sys

from agno.agent import Agent
from agno.models.anthropic import Claude
from agno.models.openai import OpenAIChat, OpenAIResponses

dialect, mode, *questions = sys.argv[1:]


def weather(city: str) -> str:
    """The weather in a city."""
    return f"sunny in {city}"


def model():
    if dialect == "messages":
        return Claude(id="claude-sonnet-4-5")
    kind, name = {"chat": (OpenAIChat, "gpt-4o"), "responses": (OpenAIResponses, "gpt-5")}[dialect]
    return kind(id=name, base_url=os.environ["OPENAI_BASE_URL"])


def run(question):
    agent = Agent(model=model(), tools=[weather], instructions="Answer briefly.", telemetry=False)
    if mode != "stream":
        return agent.run(question).content
    return "".join(event.content or "" for event in agent.run(question, stream=True) if event.event == "RunContent")


for question in questions:
    print(run(question))
