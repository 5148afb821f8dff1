"""What `capture.rate` leaves out is not copied: that is known from the beginning of a request, however it arrives."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from framing import echo
from hypothesis import given
from hypothesis import strategies as st
from wire import ListTap, ask, post, sidecar, upstream

from slipstream.proxy.capture_ipc import Sender
from slipstream.proxy.copies import Copies
from slipstream.proxy.guard import FREELY, Admitted
from slipstream.proxy.metrics import SharedCounters
from slipstream.proxy.request import Request
from slipstream.proxy.sample import Draw, Sample
from slipstream.proxy.tap import Recording

ROOM = 2**24

PATHS = {"chat": b"/v1/chat/completions?x=1", "responses": b"/v1/responses", "messages": b"/v1/messages"}


class Worker:
    """What a worker copies at this rate."""

    def __init__(self, rate: float, room: int = ROOM, max_body: int = 2**23) -> None:
        self.counters = SharedCounters(1)
        row = self.counters.row(0)
        sender = Sender(Path("/nowhere"), row, sample=Sample(rate), limit=10, limit_bytes=ROOM)
        self.copies = Copies(sender, row, max_body, room)

    def begin(self, request: Request, admitted: Admitted = FREELY) -> Recording | None:
        copied = self.copies.begin(request, admitted)
        assert copied is None or isinstance(copied, Recording)
        return copied

    def copied(self, path: bytes, pieces: list[bytes], *headers: tuple[bytes, bytes]) -> Recording | None:
        """The copy of a request that arrives in these pieces, as `Forward` makes it."""
        request = Request(b"POST", path, list(headers), http11=True, keep_alive=True)
        if len(pieces) < 2:
            request.pieces, request.complete = pieces, True
        recording = self.begin(request)
        for at, piece in enumerate(pieces, start=1):
            if recording is not None:
                recording.request.add([piece])
                if recording.draw_at and self.copies.leaves_out(recording, whole=at == len(pieces)):
                    return None
        return recording


def body_of(dialect: str, first: str, turns: int, long: int = 1) -> bytes:
    talk = [{"role": ("user", "assistant")[turn % 2], "content": f"{first} {turn} " * long} for turn in range(turns)]
    return json.dumps({"model": "m", "input" if dialect == "responses" else "messages": talk, "stream": True}).encode()


@given(
    dialect=st.sampled_from(sorted(PATHS)),
    number=st.integers(0, 1000),
    turns=st.integers(1, 9),
    long=st.sampled_from([1, 50, 1000]),
    cuts=st.lists(st.floats(0, 1), max_size=9),
)
def test_the_pieces_of_a_body_change_nothing(
    dialect: str, number: int, turns: int, long: int, cuts: list[float]
) -> None:
    body, path = body_of(dialect, f"conversation {number}", turns, long), PATHS[dialect]
    places = sorted({0, len(body), *(int(cut * len(body)) for cut in cuts)})
    pieces = [body[start:end] for start, end in pairwise(places)]
    at_once, bit_by_bit = Worker(0.5), Worker(0.5)
    whole, in_pieces = at_once.copied(path, [body]), bit_by_bit.copied(path, pieces)
    first = Worker(0.5).copied(path, [body_of(dialect, f"conversation {number}", 1, long)])
    assert (whole is None) is (in_pieces is None) is (first is None)
    assert at_once.counters.left_out == bit_by_bit.counters.left_out == (whole is None)
    if in_pieces is not None:
        assert in_pieces.request.whole() == body
        assert in_pieces.head.drawn


def test_a_long_upload_is_decided_at_its_beginning_and_held_until_then() -> None:
    body = body_of("chat", "long", 400, 50)
    pieces = [body[at : at + 1000] for at in range(0, len(body), 1000)]
    for rate in (1e-9, 1 - 1e-9):
        worker = Worker(rate)
        request = Request(b"POST", PATHS["chat"], [], http11=True, keep_alive=True)
        recording = worker.begin(request)
        assert recording is not None
        for piece in pieces:
            recording.request.add([piece])
            assert recording.request.pieces is not None
            assert recording.request.pieces[-1] is piece, "no copy"
            if worker.copies.leaves_out(recording, whole=False) or not recording.draw_at:
                break
        assert recording.request.size < len(body) / 10
        assert worker.counters.left_out == (rate < 0.5)
        assert recording.head.drawn is (rate > 0.5)


def test_a_body_in_tiny_pieces_is_looked_at_a_few_times(monkeypatch: pytest.MonkeyPatch) -> None:
    looked, draw = [0], Sample.draw

    def counted(*arguments: Any) -> Any:
        looked.append(sum(map(len, arguments[4])))
        return draw(*arguments)

    monkeypatch.setattr(Sample, "draw", counted)
    worker = Worker(0.5)
    body = b'{"messages":[{"role":"user","content":"' + b"x" * 300_000
    worker.copied(PATHS["chat"], [body[at : at + 7] for at in range(0, len(body), 7)])
    assert sum(looked) < 3 * len(body)


def test_what_is_left_out_gives_its_room_back() -> None:
    body = body_of("chat", "room", 40, 50)
    worker = Worker(1e-9, room=2 * len(body))
    for _ in range(20):
        assert worker.copied(PATHS["chat"], [body[:5000], body[5000:]]) is None
    assert worker.counters.left_out == 20
    assert worker.counters.dropped == 0


@pytest.mark.parametrize("limits", [{"max_body": 5000}, {"room": 5000}], ids=["too long", "no room"])
def test_what_cannot_be_held_until_it_is_decided_is_told_as_that(limits: dict[str, int]) -> None:
    worker = Worker(1e-9, **limits)
    body = b'{"messages":[{"role":"user","content":"' + b"x" * 20_000
    recording = worker.copied(PATHS["chat"], [body[:4000], body[4000:]])
    assert recording is not None
    assert recording.request.pieces is None
    assert not recording.head.drawn
    assert worker.counters.left_out == 0


@pytest.fixture(params=[0.5, 1.0])
def rate(request: pytest.FixtureRequest) -> float:
    value: float = request.param
    return value


async def test_nothing_is_copied_of_who_refuses(rate: float) -> None:
    tap = ListTap(rate)
    async with upstream(echo) as up, sidecar(up.port, tap=tap) as side:
        for number in range(10):
            body = body_of("chat", f"secret {number}", 1)
            for field in (b"x-slipstream-capture: never", b"x-slipstream-select: never", b"x-slipstream-capture: x"):
                await ask(side.port, post(body, field))
        about = "POST", "/v1/chat/completions", []
        bodies = [body_of("chat", f"{number}", 1) for number in range(99)]
        kept = next(body for body in bodies if Sample(rate).draw(*about, (body,), True, "default", None) is Draw.TAKEN)
        await ask(side.port, post(kept))
        assert (await tap.next()).request_body == kept
        assert tap.exchanges.empty()


async def test_calls_pass_byte_for_byte_whether_they_are_left_out_or_not() -> None:
    tap, kept = ListTap(0.5), 0
    bodies = [body_of("chat", f"conversation {number}", 3, 200) for number in range(12)]
    async with upstream(echo) as up, sidecar(up.port, tap=tap) as side:
        for body in bodies:
            assert (await ask(side.port, post(body))).body == body
        await ask(side.port, post(next(body for body in bodies if Worker(0.5).copied(PATHS["chat"], [body]))))
        while tap.exchanges.qsize():
            assert (await tap.next()).request_body in bodies
            kept += 1
    assert 2 < kept < 12
