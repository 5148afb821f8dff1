"""Agents of LiteLLM's SDK: their own loops over tools."""

import gc
import json
import sys

import litellm

# LiteLLM leaves a stream of Anthropic's before its last bytes. If the garbage collector ends such a stream while
# httpcore holds its lock, the process waits for itself for ever, at any server: encode/httpcore pull request 1108.
gc.disable()

dialect, mode, *questions = sys.argv[1:]

FUNCTION = {
    "name": "weather",
    "description": "The weather in a city.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}
MODELS = {"chat": "openai/gpt-4o", "messages": "anthropic/claude-sonnet-4-5"}


def sunny(arguments):
    return f"sunny in {json.loads(arguments)['city']}"


def answer_of(messages, stream):
    tools = [{"type": "function", "function": FUNCTION}]
    answer = litellm.completion(MODELS[dialect], messages, tools=tools, stream=stream)
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
            content = sunny(call.function.arguments)
            messages.append({"role": "tool", "tool_call_id": call.id, "content": content})


def output_of(items, stream):
    tools = [{"type": "function", **FUNCTION}]
    answer = litellm.responses(input=items, model="openai/gpt-5", tools=tools, stream=stream)
    if stream:
        answer = next(event.response for event in answer if event.type == "response.completed")
    return [item.model_dump(exclude_none=True) for item in answer.output]


def agent_of_responses(question, stream):
    items = [{"role": "user", "content": question}]
    while True:
        output = output_of(items, stream)
        items += output
        calls = [item for item in output if item["type"] == "function_call"]
        if not calls:
            return output[-1]["content"][0]["text"]
        items += [
            {"type": "function_call_output", "call_id": call["call_id"], "output": sunny(call["arguments"])}
            for call in calls
        ]


for question in questions:
    print((agent_of_responses if dialect == "responses" else agent)(question, mode == "stream"))
