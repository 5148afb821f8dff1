"""Requests of the agent: chat completions of 2 KB, no two alike, those of one conversation, and streams. A stream's
request names its pace."""

from __future__ import annotations

import json
from collections.abc import Callable
from enum import StrEnum

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


class Api(StrEnum):
    """A way to ask for a stream: the API, by the end of its path, or chat completions with log probabilities."""

    CHAT = "chat"
    LOGPROBS = "logprobs"
    RESPONSES = "responses"
    MESSAGES = "messages"


_SYSTEM = "You are the assistant of a shop. You answer in one sentence, name the order, and never promise a date. "
_BODY = 2048


def _request(body: bytes, path: str = "chat/completions") -> bytes:
    head = "".join(f"{name}: {value}\r\n" for name, value in (*_HEADERS, ("content-length", str(len(body)))))
    return f"POST /v1/{path} HTTP/1.1\r\n{head}\r\n".encode() + body


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


def conversation(size: int) -> Callable[[int], bytes]:
    """Make the requests of one conversation, by a number that no other has: each holds all that was said before, which
    is `size` bytes at the beginning."""
    said = [json.dumps(message) for message in _messages("Where are my orders?", size)]

    def ask(number: int) -> bytes:
        said.append(json.dumps({"role": "assistant", "content": "Your order is on its way."}))
        said.append(json.dumps({"role": "user", "content": f"And order {number:016x}?"}))
        return _request(f'{{"model": "{MODEL}", "messages": [{", ".join(said)}]}}'.encode())

    return ask


def stream(events: int, every_ms: int, number: int, api: Api = Api.CHAT) -> bytes:
    """A request for a stream of `events` events, `every_ms` apart; `number` tells it from others."""
    asked = f"Where is my order {number:016x}? events={events} every_ms={every_ms} end"
    system, user = _messages(asked, _BODY)
    body: dict[str, object] = {"model": MODEL, "stream": True}
    match api:
        case Api.RESPONSES:
            return _request(
                json.dumps(body | {"instructions": system["content"], "input": asked}).encode(), "responses"
            )
        case Api.MESSAGES:
            body |= {"max_tokens": 256, "system": system["content"], "messages": [user]}
            return _request(json.dumps(body).encode(), "messages")
        case Api.LOGPROBS:
            body |= {"logprobs": True, "top_logprobs": 5}
    return _request(json.dumps(body | {"messages": [system, user]}).encode())
