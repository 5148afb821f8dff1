"""What the load asks of the model: each request says in its own words how it is to be answered, faults included.

So the load knows what must come back, byte for byte, and the model needs no schedule of its own.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

from bench.request import KEY, MODEL

_ASKED = re.compile(rb"soak=(\w+) number=(\d+) events=(\d+) every_ms=(\d+) size=(\d+) end")
_RULES = "You are the assistant of a shop. You answer in one sentence, name the order, and never promise a date. " * 16
"""About 1.7 KB, so that a request has about 2 KB."""
_WORDS = "Your order is on its way, and here is all that we know of it. " * 12
"""About 750 bytes, so that an answer has about 1 KB."""

CUT, LEFT = 0.5, 0.3
"""Shares of a stream after which production cuts it, and its client leaves."""


@dataclass(frozen=True, slots=True)
class Asked:
    """How a request is to be answered.

    Attributes:
        kind: `answer`; `late`, `every_ms` later; `status429` and the like; `reset`, without a byte of an answer;
            `cut`, in the middle of it; `stream`; `broken`, a stream that ends without its end.
        number: tells it from all others.
        events, every_ms, size: of a stream: how many, how far apart, bytes of each.
    """

    kind: str
    number: int
    events: int = 0
    every_ms: int = 0
    size: int = 0

    @property
    def streamed(self) -> bool:
        return self.kind in ("stream", "broken")

    def words(self) -> str:
        return (
            f"Where is my order? soak={self.kind} number={self.number} events={self.events} every_ms={self.every_ms} "
            f"size={self.size} end"
        )


def read(request: bytes) -> Asked | None:
    """What a request's last message asks; None while that has not come."""
    found = _ASKED.findall(request)
    if not found:
        return None
    kind, *numbers = found[-1]
    return Asked(kind.decode(), *map(int, numbers))


def answer(number: int) -> bytes:
    """The body of production's answer."""
    message = {"role": "assistant", "content": said(number)}
    whole = {
        "id": msg_id(number),
        "object": "chat.completion",
        "created": 1700000000,
        "model": MODEL,
        "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 400, "completion_tokens": 180, "total_tokens": 580},
    }
    return json.dumps(whole).encode()


def pieces(asked: Asked) -> tuple[bytes, bytes]:
    """Of a stream: each event, and what follows the last of them."""
    head = {"id": msg_id(asked.number), "object": "chat.completion.chunk", "created": 1700000000, "model": MODEL}

    def event(delta: dict[str, str], finish: str | None) -> bytes:
        return (
            b"data: %s\n\n"
            % json.dumps({**head, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}).encode()
        )

    return event({"content": "w" * asked.size}, None), event({}, "stop") + b"data: [DONE]\n\n"


def said(number: int) -> str:
    return f"{_WORDS}Number {number}."


def msg_id(number: int) -> str:
    return f"chatcmpl-soak-{number}"


def request(asked: Asked, *, before: Asked | None = None, task_id: str | None = None, close: bool = False) -> bytes:
    """The whole HTTP request.

    Args:
        before: the turn of the conversation that this one goes on.
        task_id: sent as a header, for who will speak of this task.
        close: this is the connection's last request.
    """
    messages = [{"role": "system", "content": _RULES}]
    if before is not None:
        messages.append({"role": "user", "content": before.words()})
        messages.append({"role": "assistant", "content": said(before.number)})
    messages.append({"role": "user", "content": asked.words()})
    body = json.dumps({"model": MODEL, "messages": messages, "temperature": 0.7, "stream": asked.streamed}).encode()
    headers = {"host": "127.0.0.1", "content-type": "application/json", "authorization": f"Bearer {KEY}"}
    if task_id is not None:
        headers["x-slipstream-task-id"] = task_id
    if close:
        headers["connection"] = "close"
    return post("/v1/chat/completions", headers, body)


def post(path: str, headers: dict[str, str], body: bytes) -> bytes:
    """An HTTP request with a body."""
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"POST {path} HTTP/1.1\r\n{lines}content-length: {len(body)}\r\n\r\n".encode() + body
