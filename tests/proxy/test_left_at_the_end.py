"""A caller that leaves once the answer is whole, as most SDKs do at `[DONE]`: captured, its connection kept."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import openai
import pytest
from captured_chats import read_call
from framing import chunk, kept_post
from wire import LIMIT, Peer, Sidecar, answer, dial, sidecar, until, upstream

from slipstream.capture.completion import CapturedCall

MESSAGES: Any = [{"role": "user", "content": "What is 2+2?"}]
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
END = b"0\r\n\r\n"
DONE = b"data: [DONE]\n\n"
CALLS = 20


def event(text: str | None = None, finish: str | None = None, index: int = 0) -> bytes:
    delta = {} if text is None else {"role": "assistant", "content": text}
    chosen = {"index": index, "delta": delta, "finish_reason": finish}
    data = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [chosen]}
    return b"data: " + json.dumps(data).encode() + b"\n\n"


ANSWER = (event("fo"), event("ur"), event(finish="stop"))


class Production:
    """Streams an answer, and ends it some time after `[DONE]`."""

    def __init__(self, late: float) -> None:
        self.late = late
        self.ended = 0

    async def __call__(self, peer: Peer) -> None:
        while True:
            await peer.request()
            await peer.send(HEAD)
            for data in (*ANSWER, DONE):
                await peer.send(chunk(data))
            await asyncio.sleep(self.late)
            await peer.send(END)
            self.ended += 1


async def captured(side: Sidecar, calls: int) -> int:
    """How many of so many exchanges capture takes."""
    exchanges = [await side.tap.next() for _ in range(calls)]
    return sum(isinstance(read_call(exchange), CapturedCall) for exchange in exchanges)


async def ask_in_turn(base_url: str, calls: int, *, sync: bool) -> None:
    """Stream so many answers with the openai SDK."""

    def in_turn() -> None:
        with openai.OpenAI(base_url=base_url, api_key="sk-agent", max_retries=0) as client:
            for _ in range(calls):
                stream = client.chat.completions.create(model="m", messages=MESSAGES, stream=True)
                assert "".join(chunk.choices[0].delta.content or "" for chunk in stream) == "four"

    if sync:
        await asyncio.to_thread(in_turn)
        return
    async with openai.AsyncOpenAI(base_url=base_url, api_key="sk-agent", max_retries=0) as client:
        for _ in range(calls):
            stream = await client.chat.completions.create(model="m", messages=MESSAGES, stream=True)
            assert "".join([chunk.choices[0].delta.content or "" async for chunk in stream]) == "four"


@pytest.mark.sampled
@pytest.mark.parametrize("sync", [True, False], ids=["sync", "async"])
@pytest.mark.parametrize("late", [0.0, 0.005, 0.05])
async def test_each_stream_that_the_sdk_read_is_captured_and_its_connection_kept(late: float, sync: bool) -> None:
    production = Production(late)
    async with upstream(production) as up, sidecar(up.port) as side:
        await ask_in_turn(side.base_url, CALLS, sync=sync)
        assert await captured(side, CALLS) == CALLS
        await until(lambda: production.ended == CALLS)  # no answer was broken off before its end
        await until(lambda: side.kept_connections > 0)
        before = up.connections
        await ask_in_turn(side.base_url, 1, sync=sync)
        assert up.connections == before
        assert side.metric("caller_gone_total") == 0


RESPONSE = json.dumps({"type": "response.completed", "response": {"output": ["x" * 20_000]}}).encode()
TERMINAL = {
    "chat": b"".join(ANSWER) + DONE,
    "chat, no blank": b"data:[DONE]\r\n\r\n",
    "a comment after": DONE + b": bye\n\n",
    "usage after the finish": b"".join(ANSWER) + b'data: {"choices": [], "usage": {}}\n\n',
    "messages": b'event: message_delta\ndata: {}\n\nevent: message_stop\ndata: {"type":"message_stop"}\n\n',
    "responses": b"event: response.created\ndata: {}\n\nevent: response.completed\ndata: " + RESPONSE + b"\n\n",
    "failed responses": b'event: response.failed\r\ndata: {"type":"response.failed"}\r\n\r\n',
    "incomplete responses": b"event: response.incomplete\ndata: {}\n\n",
}
OTHER_DIALECTS = ("messages", "responses", "failed responses", "incomplete responses")
PARTS = {
    "nothing": b"",
    "no choice finished": b"".join(ANSWER[:2]),
    "a text that says so": event('data: [DONE]\n\n"finish_reason": "stop"\nevent: message_stop\ndata: {}\n'),
    "the last event in part": TERMINAL["responses"][:-10_000],
    "its name alone": b"event: message_stop\n",
    "another name": b"event: response.completed.not\ndata: {}\n\n",
}


CHAT = b"/v1/chat/completions"


async def leave_after(side: Sidecar, body: bytes, path: bytes = CHAT, **asked: Any) -> None:
    """Ask for a stream, and leave with the last byte of this part of the answer."""
    async with dial(side.port) as client:
        await client.send(kept_post(json.dumps({"messages": MESSAGES, "stream": True, **asked}).encode(), path=path))
        received = await asyncio.wait_for(client.reader.readuntil(b"\r\n\r\n"), LIMIT)
        assert b" 200 " in received
        left = len(body)
        while left:
            size = int(await client.reader.readuntil(b"\r\n"), 16)
            await client.reader.readexactly(size + 2)
            left -= size


class Pieces:
    """Answers a first request in these pieces, goes on when the test says so, and answers others at once."""

    def __init__(self, *pieces: bytes) -> None:
        self.pieces = pieces
        self.go_on = asyncio.Event()
        self.cancelled = asyncio.Event()

    async def __call__(self, peer: Peer) -> None:
        await peer.request()
        await peer.send(HEAD)
        for piece in self.pieces:
            await peer.send(chunk(piece))
        going, gone = asyncio.create_task(self.go_on.wait()), asyncio.create_task(peer.gone())
        await asyncio.wait({going, gone}, return_when=asyncio.FIRST_COMPLETED)
        if gone.done():
            going.cancel()
            self.cancelled.set()
            return
        gone.cancel()
        await asyncio.wait({gone})
        await self.end(peer)
        while True:
            await peer.request()
            await peer.send(answer(b"{}"))

    async def end(self, peer: Peer) -> None:
        await peer.send(END)


@pytest.mark.parametrize("size", [7, 16384], ids=["bytes", "blocks"])
@pytest.mark.parametrize(
    ("path", "name"),
    [
        *((CHAT, name) for name in TERMINAL if name not in OTHER_DIALECTS),
        *((b"/v1/other", name) for name in TERMINAL if name != "usage after the finish"),
    ],
)
async def test_the_connection_is_kept_when_the_caller_left_after_the_last_event(
    path: bytes, name: str, size: int
) -> None:
    body = TERMINAL[name]
    production = Pieces(*[body[at : at + size] for at in range(0, len(body), size)])
    whole = name != "usage after the finish"  # what only capture can tell
    async with upstream(production) as up, sidecar(up.port) as side:
        await leave_after(side, body, path)
        await side.metric_reaches(0, "in_flight")
        assert side.metric("caller_gone_total") == (not whole)
        if path == CHAT:
            exchange = await side.tap.next()
            assert (exchange.complete, exchange.error) == (whole, None if whole else "caller_gone")
        assert side.kept_connections == 0
        production.go_on.set()
        await until(lambda: side.kept_connections == 1)


@pytest.mark.parametrize("path", [CHAT, b"/v1/responses"], ids=["captured", "not captured"])
@pytest.mark.parametrize("name", PARTS)
async def test_the_call_is_cancelled_when_the_caller_left_before_the_last_event(name: str, path: bytes) -> None:
    production = Pieces(PARTS[name]) if PARTS[name] else Pieces()
    async with upstream(production) as up, sidecar(up.port) as side:
        await leave_after(side, PARTS[name], path)
        await asyncio.wait_for(production.cancelled.wait(), LIMIT)
        await side.metric_reaches(1, "caller_gone_total")
        if path == CHAT:
            exchange = await side.tap.next()
            assert (exchange.complete, exchange.error) == (False, "caller_gone")


async def test_of_several_choices_that_were_asked_for_one_does_not_end_the_call() -> None:
    production = Pieces(*ANSWER)
    async with upstream(production) as up, sidecar(up.port) as side:
        before = asyncio.get_running_loop().time()
        await leave_after(side, b"".join(ANSWER), n=2)
        await asyncio.wait_for(production.cancelled.wait(), LIMIT)
        assert asyncio.get_running_loop().time() - before < 0.9, "read on for the moment that a whole answer has"
        assert await captured(side, 1) == 0


async def test_production_that_does_not_end_an_answer_is_left_after_a_moment() -> None:
    production = Pieces(DONE)
    async with upstream(production) as up, sidecar(up.port) as side:
        await leave_after(side, DONE)
        assert (await side.tap.next()).complete
        await asyncio.wait_for(production.cancelled.wait(), LIMIT)
        assert side.kept_connections == 0


async def test_production_that_goes_on_after_the_last_event_is_not_listened_to_for_long() -> None:
    class GoesOn(Pieces):
        async def end(self, peer: Peer) -> None:
            try:
                while True:
                    await peer.send(chunk(b": and another thing\n" * 1000))
            finally:
                self.cancelled.set()

    production = GoesOn(DONE)
    async with upstream(production) as up, sidecar(up.port) as side:
        await leave_after(side, DONE)
        production.go_on.set()
        await asyncio.wait_for(production.cancelled.wait(), LIMIT)
        assert side.kept_connections == 0
