"""Requests and answers of Anthropic's Messages API, as the API writes them."""

from __future__ import annotations

import json
from typing import Any

Block = dict[str, Any]

ADD = {
    "name": "add",
    "description": "Add two numbers.",
    "input_schema": {"type": "object", "properties": {"a": {"type": "number"}}, "required": ["a"]},
}


def text(words: str, **fields: Any) -> Block:
    return {"type": "text", "text": words, **fields}


def tool_use(call_id: str, name: str, **tool_input: Any) -> Block:
    return {"type": "tool_use", "id": call_id, "name": name, "input": tool_input}


def tool_result(call_id: str, content: Any = None, **fields: Any) -> Block:
    return {"type": "tool_result", "tool_use_id": call_id, "content": content, **fields}


def user(*content: Any) -> dict[str, Any]:
    """A message of the user: one text, or blocks."""
    return {"role": "user", "content": content[0] if len(content) == 1 else list(content)}


def assistant(*content: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": content[0] if len(content) == 1 else list(content)}


def request(*messages: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"model": "claude-opus-4-6", "max_tokens": 1024, "messages": list(messages) or [user("hi")], **fields}


def message(*content: Block, **fields: Any) -> dict[str, Any]:
    called = any(block["type"] == "tool_use" for block in content)
    return {
        "id": "msg_01",
        "type": "message",
        "role": "assistant",
        "model": "claude-opus-4-6",
        "content": list(content) or [text("hello")],
        "stop_reason": "tool_use" if called else "end_turn",
        "stop_sequence": None,
        "usage": {
            "input_tokens": 9,
            "cache_creation_input_tokens": 20,
            "cache_read_input_tokens": 100,
            "output_tokens": 3,
        },
    } | fields


def sse(*events: dict[str, Any], names: bool = True) -> bytes:
    """A stream of these events, as the API frames them."""
    frames = [
        (f"event: {event['type']}\n" if names else "") + f"data: {json.dumps(event, ensure_ascii=False)}\n\n"
        for event in events
    ]
    return "".join(frames).encode()
