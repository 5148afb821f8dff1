"""A tool-calling agent of smolagents. It writes its history anew, so each request gets a task id of its own."""

import os
import sys
import uuid

from smolagents import OpenAIServerModel, ToolCallingAgent, tool


@tool
def weather(city: str) -> str:
    """The weather in a city.

    Args:
        city: the city
    """
    return f"sunny in {city}"


def run(question, stream):
    model = OpenAIServerModel(
        "gpt-4o",
        api_base=os.environ["OPENAI_BASE_URL"],
        api_key=os.environ["OPENAI_API_KEY"],
        extra_headers={"x-slipstream-task-id": uuid.uuid4().hex},
    )
    return ToolCallingAgent([weather], model, stream_outputs=stream, verbosity_level=0).run(question)


for question in sys.argv[2:]:
    print(run(question, sys.argv[1] == "stream"))
