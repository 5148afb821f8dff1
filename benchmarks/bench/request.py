"""What the agent asks: a chat completion of 2 KB, no two alike, or a stream whose pace the request itself names."""

from __future__ import annotations

import json

MODEL = "bench-model"
SLOT = "0123456789abcdef"
"""Stands in a request where each one has a word of its own: no call continues another, and none is a repetition."""

KEY = "sk-bench-is-no-secret-and-as-long-as-a-real-one"

_HEADERS = (
    ("host", "127.0.0.1"),
    ("accept", "application/json"),
    ("accept-encoding", "identity"),
    ("authorization", f"Bearer {KEY}"),
    ("content-type", "application/json"),
    ("user-agent", "OpenAI/Python 2.8.0"),
    ("x-stainless-lang", "python"),
    ("x-stainless-retry-count", "0"),
)
_SYSTEM = "You are the assistant of a shop. You answer in one sentence, name the order, and never promise a date. "
_BODY = 2048


def _request(body: bytes) -> bytes:
    head = "".join(f"{name}: {value}\r\n" for name, value in (*_HEADERS, ("content-length", str(len(body)))))
    return f"POST /v1/chat/completions HTTP/1.1\r\n{head}\r\n".encode() + body


def _messages(asked: str, body: int) -> list[dict[str, str]]:
    """A system message, filled until the whole has about `body` bytes, and a user message."""
    rules = (_SYSTEM * (body // len(_SYSTEM)))[: max(0, body - len(asked) - 160)]
    return [{"role": "system", "content": rules}, {"role": "user", "content": asked}]


def chat() -> bytes:
    """The whole request, with `SLOT` once in it."""
    asked = f"Where is my order {SLOT}?"
    messages = _messages(asked, _BODY)
    body = json.dumps({"model": MODEL, "messages": messages, "temperature": 0.7, "max_tokens": 64}).encode()
    return _request(body.ljust(_BODY))


def stream(events: int, every_ms: int, number: int) -> bytes:
    """A request for a stream of `events` events, `every_ms` apart; `number` tells it from others."""
    asked = f"Where is my order {number:016x}? events={events} every_ms={every_ms} end"
    return _request(json.dumps({"model": MODEL, "messages": _messages(asked, _BODY), "stream": True}).encode())
