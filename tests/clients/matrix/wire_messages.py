"""Answers of Anthropic's Messages API, whole and streamed."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from matrix.said import Json
from matrix.script import Reply

_USAGE = {
    "input_tokens": 3,
    "cache_creation_input_tokens": 0,
    "cache_read_input_tokens": 0,
    "cache_creation": {"ephemeral_5m_input_tokens": 0, "ephemeral_1h_input_tokens": 0},
    "output_tokens": 2,
    "service_tier": "standard",
}


def message(name: str, reply: Reply, request: Json) -> Json:
    """The message with an id that holds the name; with a thought first, where the request asks for one."""
    content: list[Json] = []
    if (request.get("thinking") or {}).get("type") in ("enabled", "adaptive"):
        content.append({"type": "thinking", "thinking": "Look it up.", "signature": "EqQBCgIYAg=="})
    if reply.text:
        content.append({"type": "text", "text": reply.text.rstrip()})
    content += [
        {"type": "tool_use", "id": f"toolu_{name}_{index}", "name": tool, "input": arguments}
        for index, (tool, arguments) in enumerate(reply.calls)
    ]
    return {
        "id": f"msg_{name}",
        "type": "message",
        "role": "assistant",
        "model": request["model"],
        "content": content,
        "stop_reason": "tool_use" if reply.calls else "end_turn",
        "stop_sequence": None,
        "usage": _USAGE,
    }


def events(answer: Json) -> Iterator[str]:
    """The same as server-sent events."""
    for event in _events(answer):
        yield f"event: {event['type']}\ndata: {json.dumps(event)}\n\n"


def _events(answer: Json) -> Iterator[Json]:
    begun = {**answer, "content": [], "stop_reason": None, "usage": {**_USAGE, "output_tokens": 1}}
    yield {"type": "message_start", "message": begun}
    for index, block in enumerate(answer["content"]):
        start, deltas = _pieces(block)
        yield {"type": "content_block_start", "index": index, "content_block": start}
        if index == 0:
            yield {"type": "ping"}
        for delta in deltas:
            yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}
    end = {"stop_reason": answer["stop_reason"], "stop_sequence": None}
    usage = {name: _USAGE[name] for name in _USAGE if name.endswith("_tokens")}
    yield {"type": "message_delta", "delta": end, "usage": usage}
    yield {"type": "message_stop"}


def _pieces(block: Json) -> tuple[Json, list[Json]]:
    """A block as it begins, and the deltas that follow."""
    if block["type"] == "text":
        words = re.findall(r"\S+\s*", block["text"])
        return {**block, "text": ""}, [{"type": "text_delta", "text": word} for word in words]
    if block["type"] == "thinking":
        thought = {"type": "thinking_delta", "thinking": block["thinking"]}
        return {**block, "thinking": "", "signature": ""}, [
            thought,
            {"type": "signature_delta", "signature": block["signature"]},
        ]
    text = json.dumps(block["input"])
    parts = ("", text[:4], text[4:])
    return {**block, "input": {}}, [{"type": "input_json_delta", "partial_json": part} for part in parts]
