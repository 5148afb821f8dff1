"""Exchanges as the proxy hands them over, and the calls that are read from them."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from slipstream.capture.completion import CapturedCall, read_call

Message = dict[str, Any]
MAX_BODY = 1024 * 1024


def user(text: Any) -> Message:
    return {"role": "user", "content": text}


def assistant(text: str | None = None, *tool_calls: dict[str, Any]) -> Message:
    """As OpenAI's API answers: with the null fields that agents leave out."""
    message: Message = {"role": "assistant", "content": text, "refusal": None, "annotations": []}
    return message | ({"tool_calls": list(tool_calls)} if tool_calls else {})


def tool_call(call_id: str, name: str, **arguments: Any) -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}


def tool(call_id: str, text: str) -> Message:
    return {"role": "tool", "tool_call_id": call_id, "content": text}


def completion(message: Message, **fields: Any) -> dict[str, Any]:
    finish_reason = "tool_calls" if message.get("tool_calls") else "stop"
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1_750_000_000,
        "model": "gpt-4o-2024-08-06",
        "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": finish_reason}],
        "usage": {"prompt_tokens": 9, "completion_tokens": 3, "total_tokens": 12},
    } | fields


def event_stream(*events: Any) -> bytes:
    """Each event as one `data:` line, `[DONE]` after the last."""
    lines = [event if isinstance(event, str) else json.dumps(event, ensure_ascii=False) for event in events]
    return "".join(f"data: {line}\n\n" for line in [*lines, "[DONE]"]).encode()


@dataclass
class Exchange:
    """Of the shape of the proxy's; the defaults are one good call."""

    request: Any = field(default_factory=lambda: {"model": "gpt-4o", "messages": [user("hi")]})
    answer: Any = field(default_factory=lambda: completion(assistant("hello")))
    method: str = "POST"
    path: str = "/v1/chat/completions"
    request_headers: list[tuple[bytes, bytes]] = field(default_factory=list)
    request_body: bytes | None = b""
    status: int | None = 200
    response_headers: list[tuple[bytes, bytes]] = field(default_factory=list)
    response_body: bytes | None = b""
    started_at: float = 1_750_000_000.0
    duration: float = 0.5
    complete: bool = True

    def __post_init__(self) -> None:
        if self.request_body == b"":
            self.request_body = json.dumps(self.request).encode()
        if self.response_body == b"":
            streamed = isinstance(self.answer, bytes)
            self.response_body = self.answer if streamed else json.dumps(self.answer).encode()
            if not self.response_headers:
                kind = b"text/event-stream; charset=utf-8" if streamed else b"application/json"
                self.response_headers = [(b"Content-Type", kind)]


def call(messages: list[Message], answer: Message | bytes, *, key: str = "sk-a", **headers: str) -> CapturedCall:
    """A captured call; `session_id=...`, `task_id=...` become headers, an answer of bytes is an event stream."""
    given = [(f"x-slipstream-{name.replace('_', '-')}".encode(), value.encode()) for name, value in headers.items()]
    exchange = Exchange(
        request={"model": "gpt-4o", "messages": messages},
        answer=answer if isinstance(answer, bytes) else completion(answer),
        request_headers=[(b"authorization", f"Bearer {key}".encode()), *given],
    )
    captured = read_call(exchange, MAX_BODY)
    assert isinstance(captured, CapturedCall), captured
    return captured
