"""An agent of Agno."""

import os
import sys

from agno.agent import Agent
from agno.models.openai import OpenAIChat


def weather(city: str) -> str:
    """The weather in a city."""
    return f"sunny in {city}"


def run(question, stream):
    model = OpenAIChat(id="gpt-4o", base_url=os.environ["OPENAI_BASE_URL"])
    agent = Agent(model=model, tools=[weather], instructions="Answer briefly.", telemetry=False)
    if not stream:
        return agent.run(question).content
    return "".join(event.content or "" for event in agent.run(question, stream=True) if event.event == "RunContent")


for question in sys.argv[2:]:
    print(run(question, sys.argv[1] == "stream"))
