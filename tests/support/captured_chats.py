"""Exchanges as the proxy hands them over, and the calls that are read from them."""

from __future__ import annotations

import json
from typing import Any

from contexts import parse_memory

from slipstream.capture import completion as reading
from slipstream.capture.completion import CapturedCall
from slipstream.capture.histories import Histories, Items, Newest
from slipstream.capture.redacted import ExchangeRedactor
from slipstream.dialects.body import NotCaptured
from slipstream.proxy.tap import Exchange
from slipstream.redaction.redactor import Redactor

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


def exchange(request: Any = None, answer: Any = None, **fields: Any) -> Exchange:
    """One good exchange with what is given changed; an answer of bytes is an event stream."""
    request = {"model": "gpt-4o", "messages": [user("hi")]} if request is None else request
    answer = completion(assistant("hello")) if answer is None else answer
    streamed = isinstance(answer, bytes)
    kind = b"text/event-stream; charset=utf-8" if streamed else b"application/json"
    good: dict[str, Any] = {
        "method": "POST",
        "path": "/v1/chat/completions",
        "request_headers": [],
        "request_body": json.dumps(request).encode(),
        "status": 200,
        "response_headers": [(b"Content-Type", kind)],
        "response_body": answer if streamed else json.dumps(answer).encode(),
        "started_at": 1_750_000_000.0,
        "first_byte_after": 0.1,
        "duration": 0.5,
        "error": None,
    }
    if not fields.pop("complete", True):
        fields.setdefault("error", "caller_gone")
    return Exchange(**good | fields)


def read_call(went_by: Exchange, max_body: int = MAX_BODY) -> CapturedCall | NotCaptured:
    """What is read of what is kept of it; nothing is redacted."""
    kept = ExchangeRedactor(Redactor([]), max_body, parse_memory()).redact(went_by)
    return kept if isinstance(kept, NotCaptured) else reading.read_call(kept, Histories(Items(), Newest(1)))


def call(messages: list[Message], answer: Message | bytes, *, key: str = "sk-a", **headers: str) -> CapturedCall:
    """A captured call; `session_id=...`, `task_id=...` become headers, an answer of bytes is an event stream."""
    given = [(f"x-slipstream-{name.replace('_', '-')}".encode(), value.encode()) for name, value in headers.items()]
    went_by = exchange(
        request={"model": "gpt-4o", "messages": messages},
        answer=answer if isinstance(answer, bytes) else completion(answer),
        request_headers=[(b"authorization", f"Bearer {key}".encode()), *given],
    )
    captured = read_call(went_by)
    assert isinstance(captured, CapturedCall), captured
    return captured
