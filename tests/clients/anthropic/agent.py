"""An agent of the anthropic SDK: its own loop over tools."""

import sys

import anthropic

WEATHER = {
    "name": "weather",
    "description": "The weather in a city.",
    "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}

client = anthropic.Anthropic()


def answer_of(messages, stream):
    request = {"model": "claude-sonnet-4-5", "max_tokens": 1024, "system": "Answer briefly.", "tools": [WEATHER]}
    if not stream:
        return client.messages.create(messages=messages, **request)
    with client.messages.stream(messages=messages, **request) as events:
        return events.get_final_message()


def agent(question, stream):
    messages = [{"role": "user", "content": question}]
    while True:
        message = answer_of(messages, stream)
        messages.append({"role": "assistant", "content": message.content})
        if message.stop_reason != "tool_use":
            return message.content[-1].text
        results = [
            {"type": "tool_result", "tool_use_id": block.id, "content": f"sunny in {block.input['city']}"}
            for block in message.content
            if block.type == "tool_use"
        ]
        messages.append({"role": "user", "content": results})


for question in sys.argv[2:]:
    print(agent(question, sys.argv[1] == "stream"))
