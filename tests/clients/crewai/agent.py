"""A crew of one agent of CrewAI."""

import os
import sys

from crewai import LLM, Agent, Crew, Task
from crewai.tools import tool

dialect, mode, *questions = sys.argv[1:]


@tool("weather")
def weather(city: str) -> str:
    """The weather in a city."""
    return f"sunny in {city}"


def model(stream):
    if dialect == "messages":
        return LLM(model="anthropic/claude-sonnet-4-5", base_url=os.environ["ANTHROPIC_BASE_URL"], stream=stream)
    if dialect == "responses":
        return LLM(model="openai/gpt-5", api="responses", stream=stream)
    return LLM(model="openai/gpt-4o", stream=stream)


def run(question):
    agent = Agent(
        role="forecaster",
        goal="Answer briefly.",
        backstory="You know the weather.",
        llm=model(mode == "stream"),
        tools=[weather],
    )
    task = Task(description=question, expected_output="one sentence", agent=agent)
    return Crew(agents=[agent], tasks=[task]).kickoff().raw


for question in questions:
    print(run(question))
