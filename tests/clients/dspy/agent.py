"""A ReAct module of DSPy. Each call is a new prompt of one message, so each request gets a task id of its own."""

import os
import sys
import uuid

import dspy


def weather(city: str) -> str:
    """The weather in a city."""
    return f"sunny in {city}"


react = dspy.ReAct("question -> answer", tools=[weather])
for question in sys.argv[2:]:
    task = {"x-slipstream-task-id": uuid.uuid4().hex}
    model = dspy.LM("openai/gpt-4o", api_base=os.environ["OPENAI_BASE_URL"], cache=False, extra_headers=task)
    with dspy.context(lm=model):
        print(react(question=question).answer)
