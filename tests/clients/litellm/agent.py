"""An agent of LiteLLM's SDK: its own loop over tools."""

import json
import sys

import litellm

WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "The weather in a city.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}


def answer_of(messages, stream):
    answer = litellm.completion("openai/gpt-4o", messages, tools=[WEATHER], stream=stream)
    if stream:
        answer = litellm.stream_chunk_builder(list(answer), messages=messages)
    return answer.choices[0].message


def agent(question, stream):
    messages = [{"role": "user", "content": question}]
    while True:
        message = answer_of(messages, stream)
        messages.append(message)
        if not message.tool_calls:
            return message.content
        for call in message.tool_calls:
            city = json.loads(call.function.arguments)["city"]
            messages.append({"role": "tool", "tool_call_id": call.id, "content": f"sunny in {city}"})


for question in sys.argv[2:]:
    print(agent(question, sys.argv[1] == "stream"))
