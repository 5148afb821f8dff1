"""A response as the server-sent events that it would have been streamed in."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

_Events = Iterator[tuple[str, dict[str, Any]]]

_PASSED = {
    "function_call": ("response.function_call_arguments", "arguments"),
    "custom_tool_call": ("response.custom_tool_call_input", "input"),
}
_TEXTS = {
    "output_text": ("response.output_text", "text"),
    "refusal": ("response.refusal", "refusal"),
    "reasoning_text": ("response.reasoning_text", "text"),
}


def stream(response: Mapping[str, Any]) -> Iterator[bytes]:
    """The events in the order of OpenAI's API, each text as one delta."""
    for number, (kind, fields) in enumerate(_events(response)):
        event = {"type": kind, "sequence_number": number, **fields}
        yield f"event: {kind}\ndata: {json.dumps(event)}\n\n".encode()  # in ASCII: texts hold lone surrogates too


def _events(response: Mapping[str, Any]) -> _Events:
    nothing_yet = dict.fromkeys(("usage", "incomplete_details", "completed_at"))
    begun = {"response": {**response, **nothing_yet, "status": "in_progress", "output": []}}
    yield "response.created", begun
    yield "response.in_progress", begun
    for index, item in enumerate(response["output"]):
        yield from _item_events(item, index)
    yield f"response.{response['status']}", {"response": response}


def _item_events(item: Mapping[str, Any], index: int) -> _Events:
    place = {"item_id": item.get("id"), "output_index": index}
    event, field = _PASSED.get(item["type"], ("", ""))
    begun = {**item, "status": "in_progress"}
    if field:
        begun[field] = ""
    elif "content" in item:
        begun["content"] = []
    yield "response.output_item.added", {"output_index": index, "item": begun}
    if field:
        yield f"{event}.delta", place | {"delta": item[field]}
        yield f"{event}.done", place | {field: item[field]} | ({"name": item["name"]} if field == "arguments" else {})
    for number, part in enumerate(item.get("content") or []):
        yield from _part_events(part, place | {"content_index": number})
    yield "response.output_item.done", {"output_index": index, "item": item}


def _part_events(part: Mapping[str, Any], place: Mapping[str, Any]) -> _Events:
    event, field = _TEXTS[part["type"]]
    begun = {**part, field: ""} | ({"logprobs": []} if "logprobs" in part else {})
    logprobs = {"logprobs": part["logprobs"]} if "logprobs" in part else {}
    yield "response.content_part.added", {**place, "part": begun}
    yield f"{event}.delta", {**place, "delta": part[field], **logprobs}
    yield f"{event}.done", {**place, field: part[field], **logprobs}
    yield "response.content_part.done", {**place, "part": part}
