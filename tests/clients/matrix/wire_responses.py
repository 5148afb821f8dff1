"""Answers of OpenAI's Responses API, whole and streamed, with the thought that models of today give first."""

from __future__ import annotations

import itertools
import json
import re
import time
from collections.abc import Iterator
from typing import Any

from matrix.said import Json
from matrix.script import Reply

_THINKS = re.compile(r"gpt-5|o\d")
"""Models whose answers begin with a thought."""

_USAGE = {
    "input_tokens": 3,
    "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
    "output_tokens": 2,
    "output_tokens_details": {"reasoning_tokens": 0},
    "total_tokens": 5,
}
_DEFAULTS: Json = {
    "background": False,
    "instructions": None,
    "max_output_tokens": None,
    "max_tool_calls": None,
    "metadata": {},
    "parallel_tool_calls": True,
    "previous_response_id": None,
    "prompt_cache_key": None,
    "reasoning": {"effort": None, "summary": None},
    "safety_identifier": None,
    "service_tier": "default",
    "temperature": 1.0,
    "text": {"format": {"type": "text"}, "verbosity": "medium"},
    "tool_choice": "auto",
    "tools": [],
    "top_logprobs": 0,
    "top_p": 1.0,
    "truncation": "disabled",
    "user": None,
}


def response(name: str, reply: Reply, request: Json) -> Json:
    """The response with an id that holds the name."""
    created = int(time.time())
    said = {field: request.get(field) if request.get(field) is not None else _DEFAULTS[field] for field in _DEFAULTS}
    return {
        "id": f"resp_{name}",
        "object": "response",
        "created_at": created,
        "completed_at": created,
        "status": "completed",
        "error": None,
        "incomplete_details": None,
        "model": request["model"],
        "output": _output(name, reply, request),
        "usage": _USAGE,
        **said,
    }


def _output(name: str, reply: Reply, request: Json) -> list[Json]:
    output: list[Json] = []
    if _THINKS.match(request["model"]):
        wants_summary = (request.get("reasoning") or {}).get("summary")
        summary = [{"type": "summary_text", "text": "**Looking it up**"}] if wants_summary else []
        thought = {"id": f"rs_{name}", "type": "reasoning", "summary": summary}
        hidden = "reasoning.encrypted_content" in (request.get("include") or [])
        output.append(thought | ({"encrypted_content": "gAAAAABo"} if hidden else {}))
    if reply.text:
        part = {"type": "output_text", "text": reply.text, "annotations": [], "logprobs": []}
        about = {"id": f"msg_{name}", "type": "message", "status": "completed", "role": "assistant"}
        output.append(about | {"content": [part]})
    for index, (tool, arguments) in enumerate(reply.calls):
        output.append({
            "id": f"fc_{name}_{index}",
            "type": "function_call",
            "status": "completed",
            "call_id": f"call_{name}_{index}",
            "name": tool,
            "arguments": json.dumps(arguments),
        })  # fmt: skip
    return output


def events(answer: Json) -> Iterator[str]:
    """The same as server-sent events."""
    for number, event in enumerate(_events(answer)):
        yield f"event: {event['type']}\ndata: {json.dumps({**event, 'sequence_number': number})}\n\n"


def _events(answer: Json) -> Iterator[Json]:
    begun = {**answer, "status": "in_progress", "completed_at": None, "output": [], "usage": None}
    yield {"type": "response.created", "response": begun}
    yield {"type": "response.in_progress", "response": begun}
    for index, item in enumerate(answer["output"]):
        at = {"output_index": index, "item_id": item["id"]}
        yield {"type": "response.output_item.added", "output_index": index, "item": _empty(item)}
        if item["type"] == "message":
            yield from _text_events(item["content"][0], at | {"content_index": 0})
        elif item["type"] == "function_call":
            arguments = item["arguments"]
            for part in (arguments[:4], arguments[4:]):
                yield _delta("response.function_call_arguments", part, at)
            yield {"type": "response.function_call_arguments.done", **at, "arguments": arguments}
        else:
            for place, part in enumerate(item["summary"]):
                yield from _summary_events(part, at | {"summary_index": place})
        yield {"type": "response.output_item.done", "output_index": index, "item": item}
    yield {"type": "response.completed", "response": answer}


def _empty(item: Json) -> Json:
    emptied: dict[str, Any] = {"message": {"content": []}, "function_call": {"arguments": ""}}
    if item["type"] not in emptied:
        return {**item, "summary": []}
    return {**item, **emptied[item["type"]], "status": "in_progress"}


def _text_events(part: Json, at: Json) -> Iterator[Json]:
    yield {"type": "response.content_part.added", **at, "part": {**part, "text": ""}}
    for word in re.findall(r"\S+\s*", part["text"]):
        yield _delta("response.output_text", word, at) | {"logprobs": []}
    yield {"type": "response.output_text.done", **at, "text": part["text"], "logprobs": []}
    yield {"type": "response.content_part.done", **at, "part": part}


def _summary_events(part: Json, at: Json) -> Iterator[Json]:
    yield {"type": "response.reasoning_summary_part.added", **at, "part": {**part, "text": ""}}
    yield _delta("response.reasoning_summary_text", part["text"], at)
    yield {"type": "response.reasoning_summary_text.done", **at, "text": part["text"]}
    yield {"type": "response.reasoning_summary_part.done", **at, "part": part}


_noise = itertools.cycle(("aV3x", "b", "Kq0", "Zr7Yt1"))
"""Characters that keep an event's length from telling what is in it, as OpenAI's servers add them."""


def _delta(what: str, text: str, at: Json) -> Json:
    return {"type": f"{what}.delta", **at, "delta": text, "obfuscation": next(_noise)}
