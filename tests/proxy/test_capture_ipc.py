"""What the proxy captured reaches the training side whole, in order, or is counted as dropped."""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from serving import until

from slipstream.proxy.capture_ipc import Receivers, Sender, frame
from slipstream.proxy.metrics import SharedCounters
from slipstream.proxy.sample import Sample
from slipstream.proxy.tap import Exchange, ExchangeHead, Recording, Room

MB = 1024 * 1024
ENDLESS = Room(1 << 40)


def recording(
    number: int, request: list[bytes] | None = None, answer: list[bytes] | None = None, *, max_body: int = 64 * MB
) -> Recording:
    """A finished exchange: POST /v1/chat/completions?, its number in the request's body unless pieces are given."""
    made = Recording(
        ExchangeHead("POST", "/v1/chat/completions", [(b"X-Number", b"%d" % number)], 1.0), max_body, ENDLESS
    )
    made.request.add([b"request %d" % number] if request is None else request)
    made.answer_starts(200, [(b"content-type", b"application/json")])
    made.answer_pieces([b"answer"] if answer is None else answer)
    made.end(None, True)
    return made


def number(exchange: Exchange) -> int:
    return int(exchange.request_headers[0][1])


class Training:
    """The training side's end; what it has taken is in `taken`. While `full` is set it takes no more."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.taken: list[Exchange] = []
        self.full = False
        self.receivers = Receivers(self.taken.append, lambda: self.full)
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        self.path.unlink(missing_ok=True)
        self._server = await asyncio.get_running_loop().create_unix_server(self.receivers.connected, str(self.path))

    def stop(self) -> None:
        assert self._server is not None
        self._server.close()

    @property
    def numbers(self) -> list[int]:
        return [number(exchange) for exchange in self.taken]


NewSender = Callable[..., tuple[Sender, SharedCounters]]


@pytest.fixture
async def training(tmp_path: Path) -> AsyncIterator[Training]:
    served = Training(tmp_path / "captures")
    await served.start()
    yield served
    served.full = False
    async with asyncio.timeout(30):
        await served.receivers.gone()
    served.stop()


@pytest.fixture
async def new_sender(training: Training) -> AsyncIterator[NewSender]:
    senders = []

    def new(*, limit: int = 20_000, limit_bytes: int = 64 * MB) -> tuple[Sender, SharedCounters]:
        counters = SharedCounters(1)
        senders.append(Sender(training.path, counters.row(0), sample=Sample(1.0), limit=limit, limit_bytes=limit_bytes))
        return senders[-1], counters

    yield new
    for sender in senders:
        await sender.drain(0.5)


def exchanges() -> list[Recording]:
    """One of each kind."""
    long = recording(1, [b"x" * 11], max_body=10)
    half = recording(2)
    half.end("caller_gone", False)
    unanswered = Recording(
        ExchangeHead("POST", "/v1/ch\u00e4t/completions", [(b"X-\xff", b"\x00\xfe")], 1.0), 10, ENDLESS
    )
    unanswered.end("connect", True)
    return [recording(0), long, half, unanswered, recording(3, [], []), recording(4, [os.urandom(300)] * 3)]


@pytest.mark.parametrize("size", [1, 2, 3, 5, 7, 64, 1000, 1 << 20])
async def test_frames_are_read_however_they_are_split(size: int) -> None:
    made = exchanges()
    sent = b"".join(itertools.chain.from_iterable(map(frame, made)))
    taken: list[Exchange] = []
    receiver = Receivers(taken.append, lambda: False).connected()
    for at in range(0, len(sent), size):
        receiver.data_received(sent[at : at + size])
    assert taken == [one.exchange() for one in made]


async def test_a_stream_of_many_events_arrives_whole(training: Training, new_sender: NewSender) -> None:
    events = [b"%0100d" % event for event in range(10_000)]
    sender, counters = new_sender()
    sender.record(recording(1, answer=events))
    await until(lambda: training.taken)
    assert training.taken[0].response_body == b"".join(events)
    assert counters.dropped == 0


async def test_the_longest_bodies_arrive_whole(training: Training, new_sender: NewSender) -> None:
    pieces = [os.urandom(50_000) for _ in range(160)]
    sender, _ = new_sender()
    for one in range(3):
        sender.record(recording(one, request=pieces, answer=pieces[::-1]))
    await until(lambda: len(training.taken) == 3)
    assert {exchange.request_body for exchange in training.taken} == {b"".join(pieces)}
    assert {exchange.response_body for exchange in training.taken} == {b"".join(pieces[::-1])}


async def test_a_backlog_that_is_gone_is_told_once(training: Training, new_sender: NewSender) -> None:
    sender, counters = new_sender()
    sender.record(recording(0))
    await until(lambda: training.taken)
    assert not sender.relieved(), "there was none"
    training.full = True
    for one in range(200):
        sender.record(recording(one, request=[b"x" * 100_000]))
    await until(lambda: 0 < counters.waiting < 200)
    assert not sender.relieved(), "it is still there"
    training.full = False
    await until(lambda: len(training.taken) == 201)
    assert sender.relieved()
    assert not sender.relieved()


@pytest.mark.parametrize("bounds", [{"limit": 50}, {"limit_bytes": 50 * 20_000}, {"limit": 50, "limit_bytes": 20_000}])
async def test_what_a_slow_training_side_does_not_take_is_dropped_and_counted_exactly(
    training: Training, new_sender: NewSender, bounds: dict[str, int]
) -> None:
    sender, counters = new_sender(**bounds)
    training.full = True
    body, told = [b"x" * 10_000], 1000
    for one in range(told):
        sender.record(recording(one, request=body, answer=body))
        if one % 10 == 0:
            await asyncio.sleep(0)
        assert counters.waiting <= 50
    assert counters.dropped > told / 2
    training.full = False
    await until(lambda: len(training.taken) + counters.dropped == told)
    assert training.numbers == sorted(training.numbers)
    assert counters.waiting == 0
    assert counters.dropped_at is not None


async def test_what_waits_for_the_kernel_is_bounded_in_bytes(training: Training, new_sender: NewSender) -> None:
    """What is handed to the transport is counted nowhere, so it must not be much."""
    sender, counters = new_sender()
    training.full = True
    body = [b"x" * MB]
    for one in range(30):
        sender.record(recording(one, request=body, answer=body))
    await asyncio.sleep(0.1)
    assert counters.waiting >= 27
    training.full = False
    await until(lambda: len(training.taken) == 30)


async def test_nothing_is_lost_while_the_training_side_is_not_there(training: Training, new_sender: NewSender) -> None:
    training.stop()
    training.path.unlink()
    sender, counters = new_sender()
    for one in range(100):
        sender.record(recording(one))
    await asyncio.sleep(0.05)
    assert counters.waiting == 100
    await training.start()
    await until(lambda: training.numbers == list(range(100)))


async def test_a_frame_that_is_cut_by_the_receivers_end_is_no_exchange_and_the_rest_goes_on(
    training: Training, new_sender: NewSender
) -> None:
    training.stop()
    cut = asyncio.Event()

    async def dies_in_mid_frame(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(100_000)
        writer.transport.abort()
        cut.set()

    training.path.unlink()
    dying = await asyncio.start_unix_server(dies_in_mid_frame, str(training.path))
    sender, counters = new_sender()
    sender.record(recording(0, answer=[os.urandom(4 * MB)]))
    await cut.wait()
    dying.close()
    for one in range(1, 20):
        sender.record(recording(one))
    await training.start()
    await until(lambda: training.numbers == list(range(1, 20)))
    assert counters.dropped == 0


async def test_a_worker_that_dies_in_mid_frame_leaves_nothing(training: Training) -> None:
    whole, half = b"".join(frame(recording(0))), b"".join(frame(recording(1)))[:-3]
    _, writer = await asyncio.open_unix_connection(str(training.path))
    writer.write(whole + half)
    writer.close()
    await writer.wait_closed()
    await until(lambda: training.taken)
    await training.receivers.gone()
    assert training.numbers == [0]


async def test_at_the_end_everything_is_handed_over(training: Training, new_sender: NewSender) -> None:
    """Also what is already out of the queue and still in this process's buffers."""
    sender, counters = new_sender()
    training.full = True
    for one in range(20):
        sender.record(recording(one, answer=[os.urandom(100_000)]))
    await until(lambda: counters.waiting < 20)
    draining = asyncio.create_task(sender.drain(10))
    for _ in range(20):
        await asyncio.sleep(0.01)
        assert not draining.done(), "the training side has not taken all of it"
    training.full = False
    await draining
    await training.receivers.gone()
    assert training.numbers == list(range(20))


async def test_the_end_waits_for_no_training_side_for_longer_than_it_may(
    training: Training, new_sender: NewSender
) -> None:
    training.full = True
    sender, _ = new_sender()
    for one in range(20):
        sender.record(recording(one, answer=[os.urandom(MB)]))
    async with asyncio.timeout(30):
        await sender.drain(0.2)
