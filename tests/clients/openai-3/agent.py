"""An agent of the openai SDK: its own loop over tools."""

import json
import sys

import openai

WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "The weather in a city.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}

client = openai.OpenAI()


def answer_of(messages, stream):
    request = {"model": "gpt-4o", "messages": messages, "tools": [WEATHER]}
    if not stream:
        return client.chat.completions.create(**request).choices[0].message
    with client.chat.completions.stream(**request) as events:
        for _ in events:
            pass
        return events.get_final_completion().choices[0].message


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


stream = sys.argv[1] == "stream"
for question in sys.argv[2:]:
    print(agent(question, stream))
