"""Agents that call a tool, with the vendors' SDKs: one of Anthropic's Messages API, one of OpenAI's Responses API."""

from __future__ import annotations

from typing import Any, NamedTuple

import anthropic
import openai

LOOK_UP: dict[str, Any] = {"type": "object", "properties": {"q": {"type": "integer"}}, "required": ["q"]}
"""The parameters of the agents' tool."""

_ABOUT = {"name": "look_up", "description": "Look it up."}


class Ended(NamedTuple):
    """An agent's work: the ids of the answers that it got, and the last one's text."""

    ids: list[str]
    text: str


async def messages_agent(client: anthropic.AsyncAnthropic, question: str, *, stream: bool) -> Ended:
    """Ask, and go on until no tool is called."""
    tools = [{**_ABOUT, "input_schema": LOOK_UP}]
    asked: dict[str, Any] = {"model": "prod", "max_tokens": 64, "system": "Be short.", "tools": tools}
    said: list[Any] = [{"role": "user", "content": question}]
    ids: list[str] = []
    while True:
        if stream:
            async with client.messages.stream(messages=said, **asked) as events:
                answer = await events.get_final_message()
        else:
            answer = await client.messages.create(messages=said, **asked)
        ids.append(answer.id)
        uses = [block for block in answer.content if block.type == "tool_use"]
        if not uses:
            return Ended(ids, "".join(block.text for block in answer.content if block.type == "text"))
        results = [{"type": "tool_result", "tool_use_id": use.id, "content": "42"} for use in uses]
        said += [{"role": "assistant", "content": answer.content}, {"role": "user", "content": results}]


async def responses_agent(
    client: openai.AsyncOpenAI, question: str, *, stream: bool, held: bool = False, referred: bool = False
) -> Ended:
    """The same for the Responses API.

    Args:
        held: the provider holds the conversation: each request names the answer before it.
        referred: the provider holds its answers: each request names their items, as the Vercel AI SDK does.
    """
    tools = [{"type": "function", **_ABOUT, "parameters": LOOK_UP}]
    asked: dict[str, Any] = {"model": "prod", "instructions": "Be short.", "tools": tools}
    said: list[Any] = [{"role": "user", "content": question}]
    ids: list[str] = []
    while True:
        if held and ids:
            asked["previous_response_id"] = ids[-1]
        if stream:
            async with client.responses.stream(input=said, **asked) as events:
                answer = await events.get_final_response()
        else:
            answer = await client.responses.create(input=said, **asked)
        ids.append(answer.id)
        calls = [item for item in answer.output if item.type == "function_call"]
        if not calls:
            return Ended(ids, answer.output_text)
        results = [{"type": "function_call_output", "call_id": call.call_id, "output": "42"} for call in calls]
        answered = [
            {"type": "item_reference", "id": item.id} if referred else item.model_dump(exclude_none=True)
            for item in answer.output
        ]
        said = results if held else [*said, *answered, *results]
