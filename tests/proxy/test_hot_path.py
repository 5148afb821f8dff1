"""What a request costs in the way of traffic, counted and not timed: calls, copies, and what must not happen there."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from wire import LIMIT, Peer, answer, dial, sidecar, until, upstream

from slipstream.http.connection import Connection
from slipstream.http.deadline import Deadline
from slipstream.proxy import agent
from slipstream.proxy.capture_ipc import Sender
from slipstream.proxy.metrics import SharedCounters
from slipstream.proxy.sample import Draw, Sample
from slipstream.proxy.tap import ExchangeHead, Recording, Room

REQUESTS = 200
MOST_CALLS = 155
"""Calls of Python and C functions for one captured exchange. It takes about 136, and up to 151 on a busy machine, where
each copy is handed on alone; a parser of JSON in Python, a task, or a future for each request would be beyond it."""

MOST_TO_DRAW = 14
"""Calls that it takes to know that an exchange is left out, beyond those with capture off. It takes 12."""

ELSEWHERE = ("json", "sqlite3", "sqlalchemy", "zlib", "isal", "hashlib", "hyperscan", "slipstream.store", "structlog")
"""Modules of which nothing is called in the way of traffic."""

FIELDS = (
    b"POST /v1/chat/completions HTTP/1.1\r\nhost: s\r\naccept: application/json\r\nauthorization: Bearer sk-1\r\n"
    b"content-type: application/json\r\nuser-agent: OpenAI/Python 2.0\r\nx-stainless-retry-count: 0\r\n"
)
BODY = b'{"model":"m","messages":[{"role":"user","content":"' + b"x" * 1950 + b'"}]}'
REQUEST = FIELDS + b"content-length: %d\r\n\r\n" % len(BODY) + BODY


class Work:
    """Counts the calls of every thread that starts while it is watching."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()

    def __call__(self, frame: Any, event: str, function: Any) -> None:
        if event == "call":
            self.calls[f"{frame.f_globals.get('__name__')}.{frame.f_code.co_name}"] += 1
        elif event == "c_call":
            owner = getattr(function, "__module__", None) or type(getattr(function, "__self__", None)).__module__
            self.calls[f"{owner}.{function.__name__}"] += 1


@contextlib.contextmanager
def watching() -> Iterator[Work]:
    work = Work()
    threading.setprofile(work)
    try:
        yield work
    finally:
        threading.setprofile(None)


@contextlib.asynccontextmanager
async def taken(folder: Path) -> AsyncIterator[Path]:
    """The training side's socket, where everything is taken."""

    async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.CancelledError):
            while await reader.read(2**20):
                pass
        writer.close()

    server = await asyncio.start_unix_server(take, folder / "captures")
    try:
        yield folder / "captures"
    finally:
        server.close()


async def echo(peer: Peer) -> None:
    while True:
        await peer.request()
        await peer.send(answer(b'{"id":"1"}'.ljust(1024), b"content-type: application/json"))


async def calls_of_exchanges(folder: Path, rate: float) -> Counter[str]:
    """The calls of `REQUESTS` exchanges, of which this share of conversations is captured."""
    async with upstream(echo) as up, taken(folder) as path:
        tap = Sender(path, SharedCounters(1).row(0), sample=Sample(rate), limit=1000, limit_bytes=2**26)
        with watching() as work:
            async with sidecar(up.port, tap=tap) as side, dial(side.port) as client, asyncio.timeout(LIMIT * 3):
                for number in range(REQUESTS + 10):
                    if number == 10:  # connections are open, names are known
                        work.calls.clear()
                    await client.send(REQUEST)
                    await client.reader.readuntil(b"\r\n\r\n")
                    await client.reader.readexactly(1024)
                return work.calls.copy()
    raise AssertionError


async def test_a_captured_exchange_is_few_calls_and_none_that_reads_or_stores_it(tmp_path: Path) -> None:
    calls = await calls_of_exchanges(tmp_path, 1.0)
    assert calls["slipstream.proxy.capture_ipc.frame"] > REQUESTS / 2, "the exchanges were captured"
    assert calls.total() / REQUESTS < MOST_CALLS, calls.most_common(40)
    assert not [name for name in calls if name.startswith(ELSEWHERE)]


async def test_an_exchange_that_is_left_out_is_as_few_calls_as_with_capture_off(tmp_path: Path) -> None:
    off, left_out = [await calls_of_exchanges(tmp_path, rate) for rate in (0.0, 1e-9)]
    assert left_out["slipstream.proxy.lot.of"] == REQUESTS
    assert not left_out["slipstream.proxy.tap.__init__"], "nothing is made for a copy"
    assert left_out.total() / REQUESTS < off.total() / REQUESTS + MOST_TO_DRAW, (left_out - off).most_common(40)


@pytest.mark.parametrize("framing", ["length", "chunked"])
async def test_a_large_body_is_captured_without_a_copy(framing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pieces = [bytes([number]) * 2**18 for number in range(32)]
    kept: list[Recording] = []

    class Keep:
        def draw(self, *_: Any) -> Draw:
            return Draw.TAKEN

        def record(self, recording: Recording) -> None:
            kept.append(recording)

    async def script(peer: Peer) -> None:
        await peer.request()
        if framing == "length":
            await peer.send(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % 2**23)
        else:
            await peer.send(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
        for piece in pieces:
            await peer.send(piece if framing == "length" else b"%x\r\n%b\r\n" % (len(piece), piece))
        await peer.send(b"" if framing == "length" else b"0\r\n\r\n")

    sent: list[Any] = []

    def write(transport: Any, head: bytes, pieces: Any) -> None:
        sent.extend(pieces)
        original(transport, head, pieces)

    original = agent.write
    monkeypatch.setattr(agent, "write", write)
    closing = REQUEST.replace(b"host: s\r\n", b"host: s\r\nconnection: close\r\n")
    async with upstream(script) as up, sidecar(up.port, tap=Keep()) as side, dial(side.port) as client:
        async with asyncio.timeout(LIMIT):
            await client.send(closing)
            while await client.reader.read(2**20):
                pass
            while not kept:  # noqa: ASYNC110 - another thread brings it about
                await asyncio.sleep(0.01)
    copied = kept[0].response.pieces
    assert copied is not None
    assert sum(map(len, copied)) == 2**23
    passed_on = {id(piece) for piece in sent}
    same = sum(len(piece) for piece in copied if id(piece) in passed_on)
    assert same > 0.9 * 2**23, "what is kept is what was passed on, the parser's own pieces; small ones are framed"


def test_pieces_are_kept_as_the_objects_that_came() -> None:
    piece = b"x" * 100
    recording = Recording(ExchangeHead("POST", "/v1/chat/completions", [], 1.0), 1000, Room(1000))
    recording.request.add([piece])
    assert recording.request.pieces is not None
    assert recording.request.pieces[0] is piece


def test_a_worker_loads_no_part_of_the_training_side() -> None:
    code = (
        "import sys, slipstream.serve.app; "
        "print([name for name in sys.modules if name.startswith(('slipstream.store', 'slipstream.capture', "
        "'slipstream.sidecar', 'slipstream.api', 'fastapi', 'sqlite3', 'aiosqlite', 'torch'))])"
    )
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert loaded == "[]\n"


async def test_nothing_of_a_connection_that_is_closed_waits_for_a_collection_of_cycles() -> None:
    """A worker looks for cycles once in 200,000 objects: tens of megabytes, if connections were among them."""
    gc.collect()
    gc.disable()
    try:
        async with upstream(echo) as up, sidecar(up.port) as side:
            for _ in range(5):
                async with dial(side.port) as client, asyncio.timeout(LIMIT):
                    await client.send(REQUEST.replace(b"host: s\r\n", b"host: s\r\nconnection: close\r\n"))
                    while await client.reader.read(2**20):
                        pass
        kinds = {agent.AgentConnection, Connection, Deadline}
        # By `type`: isinstance asks an object for its class, which a deprecated attribute's stand-in answers by warning
        await until(lambda: not [one for one in gc.get_objects() if type(one) in kinds])
    finally:
        gc.enable()
