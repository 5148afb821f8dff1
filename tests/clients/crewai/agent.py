"""A crew of one agent of CrewAI."""

import sys

from crewai import LLM, Agent, Crew, Task
from crewai.tools import tool


@tool("weather")
def weather(city: str) -> str:
    """The weather in a city."""
    return f"sunny in {city}"


def run(question, stream):
    agent = Agent(
        role="forecaster",
        goal="Answer briefly.",
        backstory="You know the weather.",
        llm=LLM(model="openai/gpt-4o", stream=stream),
        tools=[weather],
    )
    task = Task(description=question, expected_output="one sentence", agent=agent)
    return Crew(agents=[agent], tasks=[task]).kickoff().raw


for question in sys.argv[2:]:
    print(run(question, sys.argv[1] == "stream"))
