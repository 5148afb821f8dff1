"""A production model for agents of any framework: it calls a tool, calls it again, then answers in words.

A question that asks for a greeting gets a text at once. Its stream ends as long after `[DONE]` as the question says.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import re
import time
from collections.abc import AsyncIterator
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

WEATHER = "How warm is it in Paris and in Rome?"
ANSWER = "Sunny in both."
_GREETING = re.compile(r"Say hello (\d+), (\d+) ms late")


def greeting(number: int, late: int) -> str:
    """A question whose answer's stream ends `late` milliseconds after `[DONE]`."""
    return f"Say hello {number}, {late} ms late."


def production_app(answered: list[str]) -> Starlette:
    """The production model.

    Args:
        answered: takes the id of each answer: `weather-...`, or `late-MILLISECONDS-...`.
    """
    numbers = itertools.count()

    async def chat(request: Request) -> Response:
        body = await request.json()
        number, greeted = next(numbers), _GREETING.search(json.dumps(body["messages"]))
        late = int(greeted[2]) if greeted else 0
        answer = {
            "id": f"late-{late}-{number}" if greeted else f"weather-{number}",
            "created": int(time.time()),
            "model": body["model"],
        }
        answered.append(answer["id"])
        message = _message(body, number, greeted=bool(greeted))
        if body.get("stream"):
            with_usage = (body.get("stream_options") or {}).get("include_usage", False)
            return StreamingResponse(_stream(answer, message, late, with_usage), media_type="text/event-stream")
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": _finish_reason(message)}
        return JSONResponse({**answer, "object": "chat.completion", "choices": [choice], "usage": _USAGE})

    return Starlette(routes=[Route("/v1/chat/completions", chat, methods=["POST"])])


_USAGE = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}


def _message(body: dict[str, Any], number: int, *, greeted: bool) -> dict[str, Any]:
    tools = [tool["function"]["name"] for tool in body.get("tools") or []]
    step = 2 if greeted else _results(body["messages"])
    if not tools and "[[ ## " in json.dumps(body["messages"]):
        return _said(_for_dspy(body["messages"], greeted))
    if step < 2 and tools:
        words = "Now the other one. " if step else None
        return _called(words, f"call_{number}", "weather", {"city": ("Paris", "Rome")[step]})
    if "final_answer" in tools:
        return _called(None, f"call_{number}", "final_answer", {"answer": ANSWER})
    return _said(ANSWER)


def _results(messages: list[dict[str, Any]]) -> int:
    """The number of tool results among the messages; smolagents writes them as the user's."""
    observed = [message for message in messages if message["role"] == "user" and "Observation:" in str(message)]
    return len(observed) + sum(message["role"] == "tool" for message in messages)


def _for_dspy(messages: list[dict[str, Any]], greeted: bool) -> str:
    asked = json.dumps(messages[-1])
    if "next_tool_name" not in asked:
        fields = {"reasoning": "It is known.", "answer": ANSWER}
    elif greeted or "observation_0" in asked:
        fields = {"next_thought": "That is all.", "next_tool_name": "finish", "next_tool_args": "{}"}
    else:
        fields = {"next_thought": "Look.", "next_tool_name": "weather", "next_tool_args": '{"city": "Paris"}'}
    return "\n\n".join(f"[[ ## {name} ## ]]\n{value}" for name, value in {**fields, "completed": ""}.items())


def _said(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text, "refusal": None, "annotations": []}


def _called(words: str | None, call_id: str, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    function = {"name": name, "arguments": json.dumps(arguments)}
    return _said("") | {"content": words, "tool_calls": [{"id": call_id, "type": "function", "function": function}]}


def _finish_reason(message: dict[str, Any]) -> str:
    return "tool_calls" if message.get("tool_calls") else "stop"


async def _stream(answer: dict[str, Any], message: dict[str, Any], late: int, with_usage: bool) -> AsyncIterator[str]:
    head = {**answer, "object": "chat.completion.chunk"}

    def event(delta: dict[str, Any], finish_reason: str | None = None) -> str:
        choices = [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}]
        return f"data: {json.dumps({**head, 'choices': choices})}\n\n"

    yield event({"role": "assistant", "content": "" if message["content"] else None})
    for word in re.findall(r"\S+\s*", message["content"] or ""):
        yield event({"content": word})
    for index, call in enumerate(message.get("tool_calls") or []):
        arguments = call["function"]["arguments"]
        begun = {"index": index, **call, "function": {"name": call["function"]["name"], "arguments": ""}}
        yield event({"tool_calls": [begun]})
        for part in (arguments[:4], arguments[4:]):
            yield event({"tool_calls": [{"index": index, "function": {"arguments": part}}]})
    yield event({}, _finish_reason(message))
    if with_usage:
        yield f"data: {json.dumps({**head, 'choices': [], 'usage': _USAGE})}\n\n"
    yield "data: [DONE]\n\n"
    if late:
        await asyncio.sleep(late / 1000)
