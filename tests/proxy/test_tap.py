"""Capture sees what passed, and production never notices that it looks."""

from __future__ import annotations

import asyncio
import threading
import time
import tracemalloc
from typing import Any

import pytest
from wire import LIMIT, ListTap, Peer, answer, ask, post, sidecar, upstream

from slipstream.http.remainder import TAIL, has_ended
from slipstream.proxy.capture_ipc import frame
from slipstream.proxy.copies import Copies
from slipstream.proxy.guard import FREELY
from slipstream.proxy.metrics import SharedCounters
from slipstream.proxy.request import Request
from slipstream.proxy.sample import Draw
from slipstream.proxy.tap import Exchange, ExchangeHead, Recording, Room
from slipstream.tracing.context import Traced

CHUNKED = b"HTTP/1.1 201 Created\r\nx-request-id: r\r\ntransfer-encoding: chunked\r\n\r\n"


async def echo(peer: Peer) -> None:
    while True:
        request = await peer.request()
        await peer.send(answer(request.body, b"x-request-id: r"))


async def test_exchange_is_what_passed() -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(CHUNKED + b"3\r\none\r\n")
        await peer.send(b"3\r\ntwo\r\n0\r\n\r\n")

    async with upstream(script) as up, sidecar(up.port) as side:
        before = time.time()
        await ask(side.port, post(b"question", b"X-Slipstream-Task-Id: t", path=b"/v1/chat/completions?x=1"))
        exchange: Exchange = await side.tap.next()
    assert (exchange.method, exchange.path) == ("POST", "/v1/chat/completions")
    assert (b"X-Slipstream-Task-Id", b"t") in exchange.request_headers
    assert exchange.request_body == b"question"
    assert exchange.status == 201
    assert (b"x-request-id", b"r") in exchange.response_headers
    assert exchange.response_body == b"onetwo"
    assert before <= exchange.started_at <= time.time()
    assert 0 < exchange.first_byte_after <= exchange.duration < LIMIT
    assert (exchange.complete, exchange.error) == (True, None)


async def test_only_what_is_wanted_is_recorded_and_only_once() -> None:
    async with upstream(echo) as up, sidecar(up.port) as side:
        await ask(side.port, post(b"no", path=b"/v1/embeddings"))
        await ask(side.port, post(b"yes"))
        assert (await side.tap.next()).request_body == b"yes"
        assert side.tap.exchanges.empty()


async def test_bodies_beyond_max_body_pass_and_are_not_copied() -> None:
    async with upstream(echo) as up, sidecar(up.port, max_body=100) as side:
        for size in (100, 101, 300_000):
            assert (await ask(side.port, post(b"x" * size))).body == b"x" * size
            exchange = await side.tap.next()
            assert exchange.complete
            kept = b"x" * size if size <= 100 else None
            assert (exchange.request_body, exchange.response_body) == (kept, kept)


@pytest.mark.parametrize("call", ["draw", "record"])
async def test_tap_that_raises_changes_nothing(call: str) -> None:
    class Broken(ListTap):
        def draw(self, *_: Any) -> Draw:
            if call == "draw":
                raise RuntimeError("draw")
            return Draw.TAKEN

        def record(self, recording: Recording) -> None:
            raise RuntimeError("record")

    async with upstream(echo) as up, sidecar(up.port, tap=Broken()) as side:
        for _ in range(3):
            response = await ask(side.port, post(b"x"))
            assert (response.status, response.body) == (200, b"x")
        await side.metric_reaches(3, "tap_failures_total")


async def test_slow_tap_takes_its_time_after_the_answer_has_left() -> None:
    go_on = threading.Event()

    class Slow(ListTap):
        def record(self, recording: Recording) -> None:
            go_on.wait(LIMIT)
            super().record(recording)

    async with upstream(echo) as up, sidecar(up.port, tap=Slow()) as side:
        async with asyncio.timeout(LIMIT):
            reader, writer = await asyncio.open_connection("127.0.0.1", side.port)
            writer.write(post(b"whole answer"))
            await reader.readuntil(b"\r\n\r\nwhole answer")  # while the tap still holds the loop
        go_on.set()
        assert (await side.tap.next()).complete
        writer.close()
        await writer.wait_closed()


def test_a_body_in_tiny_chunks_takes_no_more_memory_than_it_is_given() -> None:
    room = Room(2**20)
    tracemalloc.start()
    try:
        recording = Recording(ExchangeHead("POST", "/v1/chat/completions", [], 1.0), 2**20, room)
        for number in range(200_000):
            recording.request.add([b"%02d" % (number % 100)])
        assert tracemalloc.get_traced_memory()[1] < 2**20
    finally:
        tracemalloc.stop()
    recording.end(None, request_whole=True)
    assert recording.crowded_out
    assert room.left == 2**20, "and gives back what it was given"


def test_a_traced_call_that_is_left_out_keeps_nothing_of_what_is_said_and_yet_knows_the_end_of_its_stream() -> None:
    room = Room(10_000)
    head = ExchangeHead("POST", "/v1/chat/completions", [(b"authorization", b"a secret")], 1.0, trace=Traced())
    recording = Recording(head, 1000, room)
    recording.request.add([b"a question"])
    recording.answer_starts(200, [])
    recording.answer_pieces([b"data: early\n\n"])
    recording.leave_out()
    assert room.left == 10_000
    recording.request.add([b" of more than one piece"])
    recording.answer_pieces([b"data: an answer\n\n"])
    recording.answer_pieces([b"data: [DONE]\n\n"])
    assert has_ended(recording.response.tail(TAIL))
    recording.end(None, request_whole=True)
    assert (room.left, recording.size, recording.crowded_out) == (10_000, 0, False)
    [sent] = frame(recording)
    assert not any(word in sent for word in (b"secret", b"question", b"answer", b"DONE"))
    assert recording.response.tail(TAIL) == b""


@pytest.mark.parametrize("fails", [False, True], ids=["left out", "fails"])
def test_a_call_that_is_left_out_after_its_answer_began_takes_no_room(fails: bool) -> None:
    class Late(ListTap):
        def draw(self, method: str, path: str, headers: Any, body: Any, whole: bool, *about: Any) -> Draw:
            if whole and fails:
                raise ValueError("broken")
            return Draw.LEFT_OUT if whole else Draw.LATER

    metrics = SharedCounters(1).row(0)
    copies = Copies(Late(), metrics, max_body=1000, room=1000)
    for _ in range(3):
        request = Request(b"POST", b"/v1/chat/completions", [], http11=True, keep_alive=True)
        recording = copies.begin(request, FREELY)
        assert isinstance(recording, Recording)
        recording.answer_pieces([b"x" * 800])
        assert not recording.response.crowded_out
        assert copies.leaves_out(recording, whole=True)
