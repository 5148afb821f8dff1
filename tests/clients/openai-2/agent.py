"""Agents of the openai SDK: their own loops over tools."""

import json
import sys

import openai

dialect, mode, *questions = sys.argv[1:]

FUNCTION = {
    "name": "weather",
    "description": "The weather in a city.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}

client = openai.OpenAI()


def sunny(arguments):
    return f"sunny in {json.loads(arguments)['city']}"


def answer_of(messages, stream):
    request = {"model": "gpt-4o", "messages": messages, "tools": [{"type": "function", "function": FUNCTION}]}
    if not stream:
        return client.chat.completions.create(**request).choices[0].message
    with client.chat.completions.stream(**request) as events:
        for _ in events:
            pass
        return events.get_final_completion().choices[0].message


def agent_of_chat(question, stream):
    messages = [{"role": "user", "content": question}]
    while True:
        message = answer_of(messages, stream)
        messages.append(message)
        if not message.tool_calls:
            return message.content
        for call in message.tool_calls:
            messages.append({"role": "tool", "tool_call_id": call.id, "content": sunny(call.function.arguments)})


def response_of(items, stream):
    request = {"model": "gpt-5", "input": items, "tools": [{"type": "function", **FUNCTION}]}
    if not stream:
        return client.responses.create(**request)
    with client.responses.stream(**request) as events:
        return events.get_final_response()


def agent_of_responses(question, stream):
    items = [{"role": "user", "content": question}]
    while True:
        response = response_of(items, stream)
        items += response.output
        calls = [item for item in response.output if item.type == "function_call"]
        if not calls:
            return response.output_text
        items += [
            {"type": "function_call_output", "call_id": call.call_id, "output": sunny(call.arguments)} for call in calls
        ]


agent = {"chat": agent_of_chat, "responses": agent_of_responses}[dialect]
for question in questions:
    print(agent(question, mode == "stream"))
