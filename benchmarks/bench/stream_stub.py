"""A model for streams: as many events as the request names, so far apart as it names, in the form of the API that is
asked. The forms are written by hand, after the events of vLLM, OpenAI and Anthropic.

Who asks for no stream (a proxy may, in the name of one who did) gets a ready answer after the same time. Arguments: the
port, that answer.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
from collections.abc import Callable
from typing import Any, cast

import uvloop

Json = dict[str, Any]

_PACE = re.compile(rb"events=(\d+) every_ms=(\d+) end")
_STREAMED = re.compile(rb'"stream": ?true')
_LOGPROBS = re.compile(rb'"logprobs": ?true')
_HEAD = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ncache-control: no-cache\r\n"
    b"transfer-encoding: chunked\r\n\r\n"
)


Event = Callable[[int, int, int], bytes]
"""Makes an event, by its number, the number of all, and that of the stream. The first one has what comes before it, and
the last one what comes after it."""


def event(number: int, events: int, stream: int) -> bytes:
    """A chunk of vLLM's, with token ids."""
    return _chat(number, events, stream, logprobs=None)


def large_event(number: int, events: int, stream: int) -> bytes:
    """The same with log probabilities: of five alternatives."""
    alternatives = [{"token": f" v{k}", "logprob": -1.5 * k, "bytes": [32, 118]} for k in range(5)]
    token = {"token": " word", "logprob": -0.25, "bytes": [32, 119], "top_logprobs": alternatives}
    return _chat(number, events, stream, logprobs={"content": [token]})


def _chat(number: int, events: int, stream: int, logprobs: object) -> bytes:
    choice = {"index": 0, "delta": {"content": " word"}, "logprobs": logprobs, "finish_reason": None}
    choice["token_ids"] = [1234]
    if number == events - 1:
        choice["finish_reason"] = "stop"
    said = {
        "id": f"chatcmpl-{stream:024x}",
        "object": "chat.completion.chunk",
        "created": 1700000000,
        "model": "bench-model",
        "choices": [choice],
    }
    if number == 0:
        choice["delta"] = {"role": "assistant", "content": ""}
        said["prompt_token_ids"] = list(range(2000, 2032))
    return _data(said) + (b"data: [DONE]\n\n" if number == events - 1 else b"")


def responses_event(number: int, events: int, stream: int) -> bytes:
    """An event of OpenAI's Responses API."""
    part = {"type": "output_text", "annotations": [], "logprobs": [], "text": " word" * events}
    item = {
        "id": f"msg_{stream:048x}",
        "type": "message",
        "status": "completed",
        "content": [part],
        "role": "assistant",
    }
    usage = {"input_tokens": 32, "output_tokens": events, "total_tokens": 32 + events}
    answer = {
        "id": f"resp_{stream:048x}", "object": "response", "created_at": 1700000000, "model": "bench-model",
        "instructions": None, "tools": [], "parallel_tool_calls": True, "previous_response_id": None, "error": None,
    }  # fmt: skip
    place = {"item_id": item["id"], "output_index": 0, "content_index": 0}
    begun = answer | {"status": "in_progress", "output": [], "usage": None}
    before = [
        {"type": "response.created", "response": begun},
        {"type": "response.in_progress", "response": begun},
        {
            "type": "response.output_item.added",
            "output_index": 0,
            "item": item | {"status": "in_progress", "content": []},
        },
        {"type": "response.content_part.added", **place, "part": part | {"text": ""}},
    ]
    delta = {"type": "response.output_text.delta", **place, "delta": " word", "logprobs": [], "obfuscation": "qWe7Zy"}
    after = [
        {"type": "response.output_text.done", **place, "text": part["text"], "logprobs": []},
        {"type": "response.content_part.done", **place, "part": part},
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {"type": "response.completed", "response": answer | {"status": "completed", "output": [item], "usage": usage}},
    ]
    return _named(number, events, before, delta, after)


def messages_event(number: int, events: int, stream: int) -> bytes:
    """An event of Anthropic's Messages API."""
    message = {
        "id": f"msg_{stream:024x}", "type": "message", "role": "assistant", "model": "bench-model", "content": [],
        "stop_reason": None, "stop_sequence": None, "usage": {"input_tokens": 32, "output_tokens": 1},
    }  # fmt: skip
    before = [
        {"type": "message_start", "message": message},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "ping"},
    ]
    delta = {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": " word"}}
    end = {"stop_reason": "end_turn", "stop_sequence": None}
    after = [
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": end, "usage": {"output_tokens": events}},
        {"type": "message_stop"},
    ]
    return _named(number, events, before, delta, after)


def _named(number: int, events: int, before: list[Json], delta: Json, after: list[Json]) -> bytes:
    parts = [*(before if number == 0 else ()), delta, *(after if number == events - 1 else ())]
    return b"".join(b"event: %b\n%b" % (part["type"].encode(), _data(part)) for part in parts)


def _data(said: Json) -> bytes:
    return b"data: " + json.dumps(said).encode() + b"\n\n"


def _event_of(request: bytes) -> Event:
    """Choose the form of the events that answer this request."""
    path = request.split(b" ", 2)[1]
    if path.endswith(b"/responses"):
        return responses_event
    if path.endswith(b"/messages"):
        return messages_event
    return large_event if _LOGPROBS.search(request) else event


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


class Stub(asyncio.Protocol):
    """One connection; its requests come one after the other."""

    streams = 0
    answer = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._received = b""
        self._timer: asyncio.TimerHandle | None = None

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer:
            self._timer.cancel()

    def data_received(self, data: bytes) -> None:
        self._received += data
        if not (pace := _PACE.search(self._received)) or not self._whole():
            return
        streamed, made = _STREAMED.search(self._received), _event_of(self._received)
        self._received = b""
        self._events, every_ms = int(pace[1]), int(pace[2])
        self._every = every_ms / 1000
        if not streamed:
            whole = b"content-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(self.answer) + self.answer
            wait = self._events * self._every
            self._timer = asyncio.get_running_loop().call_later(
                wait, self._transport.write, b"HTTP/1.1 200 OK\r\n" + whole
            )
            return
        Stub.streams += 1
        numbers = 0, 1, self._events - 1
        first, middle, last = (_chunk(made(number, self._events, Stub.streams)) for number in numbers)
        self._first, self._middle, self._last = first, middle, last + b"0\r\n\r\n"
        self._sent = 0
        self._due = asyncio.get_running_loop().time()
        self._transport.write(_HEAD + self._first)
        self._next()

    def _whole(self) -> bool:
        head, found, body = self._received.partition(b"\r\n\r\n")
        length = re.search(rb"content-length: *(\d+)", head, re.IGNORECASE)
        return bool(found) and (len(body) >= int(length[1]) if length else body.endswith(b"0\r\n\r\n"))

    def _next(self) -> None:
        self._sent += 1
        if self._sent < self._events:
            self._due += self._every
            self._timer = asyncio.get_running_loop().call_at(self._due, self._send)

    def _send(self) -> None:
        self._transport.write(self._last if self._sent == self._events - 1 else self._middle)
        self._next()


async def main(port: int) -> None:
    """Serve for good."""
    server = await asyncio.get_running_loop().create_server(Stub, "127.0.0.1", port, backlog=4096)
    await server.serve_forever()


if __name__ == "__main__":
    Stub.answer = sys.argv[2].encode()
    uvloop.run(main(int(sys.argv[1])))
