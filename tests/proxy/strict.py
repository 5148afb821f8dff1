"""A proxy between a client that sends any bytes and upstreams that note what arrives, for thousands of exchanges.

The client reads with blocking calls in the test's thread; the rest runs on loops of its own for a whole test module.
The judge is `reading`: what it reads in the client's bytes is what may arrive, in that order and nothing else.
"""

from __future__ import annotations

import asyncio
import contextlib
import select
import socket
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import h11
import wire
from reading import UNREAD, Fields, Message, Row, read_answers, read_requests

from slipstream.proxy.sample import Draw

PATIENCE = 20.0
"""Seconds until what must come has come."""

MOMENT = 0.02
"""Seconds in which what must not come would have come."""

_ABSOLUTE = (b"http://", b"https://")


@dataclass
class Arrived:
    """A whole request at an upstream, which is `production` or `control`."""

    side: str
    message: Message


@dataclass
class Script:
    """What an upstream answers to its next request instead of an echo.

    Attributes:
        pieces: bytes, each sent by itself.
        close: the connection is closed behind them.
    """

    pieces: tuple[bytes, ...]
    close: bool = False


@dataclass
class Struck:
    """What came of some bytes sent to the proxy.

    Attributes:
        sent: what a strict reader makes of them.
        closed: the proxy ended the connection.
    """

    sent: Row
    received: bytes
    closed: bool
    arrived: list[Arrived]

    def answers(self) -> Row:
        methods = [message.first[0] for message in self.sent.messages]
        return read_answers(self.received, [*methods, UNREAD], ended=self.closed)


@dataclass
class Rig:
    """The proxy's port, and what its upstreams saw and are to say."""

    port: int = 0
    production: str = ""
    arrived: list[Arrived] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)
    scripts: list[Script] = field(default_factory=list)
    loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.new_event_loop)
    strikes: int = 0
    open: list[asyncio.Transport] = field(default_factory=list)
    """Connections to production, at its end."""

    def strike(self, *pieces: bytes, patience: float = PATIENCE) -> Struck:
        """Send pieces, each by itself, and read until all is said that they ask for."""
        self.strikes += 1
        self.arrived, self.violations = [], []
        sent = read_requests(b"".join(pieces))
        waits_for_end = sent.state == "bad" or bool(sent.messages and not sent.messages[-1].kept)
        with socket.socket() as client:
            client.settimeout(PATIENCE)
            client.connect(("127.0.0.1", self.port))
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with contextlib.suppress(ConnectionError):
                for number, piece in enumerate(pieces):
                    if number:
                        time.sleep(0.001)  # so that the proxy reads it by itself
                    client.sendall(piece)
            received, closed = b"", False
            struck = Struck(sent, b"", False, [])
            until = time.monotonic() + (patience if sent.state != "partial" or sent.messages else MOMENT)
            waits_for_end |= sent.state == "partial"  # for nothing to come
            while not closed:
                struck.received = received
                more = bool(select.select([client], [], [], 0)[0])
                if not more and _all_served(struck.answers(), len(sent.messages)):
                    if not waits_for_end:
                        break
                    if sent.state == "partial":
                        until = min(until, time.monotonic() + MOMENT)
                client.settimeout(max(0.001, until - time.monotonic()))
                try:
                    data = client.recv(1 << 20)
                except TimeoutError:
                    self._settle()
                    if not select.select([client], [], [], 0)[0]:
                        break
                    continue
                except ConnectionError:
                    data = b""
                received += data
                closed = not data
        struck.received, struck.closed = received, closed
        struck.arrived = self.taken()
        return struck

    def _settle(self) -> None:
        """Let the proxy and its upstreams take in what was sent: all of them turn with one loop, on one machine."""

        async def turns() -> None:
            for _ in range(20):  # to accept, read, connect, send, read there, answer, and pass that on take fewer
                await asyncio.sleep(0)

        asyncio.run_coroutine_threadsafe(turns(), self.loop).result(PATIENCE)

    def say(self, unasked: bytes) -> None:
        """Production says something, on each of its connections."""
        for connection in self.open:
            self.loop.call_soon_threadsafe(connection.write, unasked)

    def taken(self) -> list[Arrived]:
        """What has arrived since this was asked last."""
        asyncio.run_coroutine_threadsafe(asyncio.sleep(0), self.loop).result(PATIENCE)
        arrived, self.arrived = self.arrived, []
        return arrived

    def next_is_sound(self) -> None:
        """Another agent's next request, which may meet the same connection to production, gets its own answer."""
        name = b"/v1/next-%d" % self.strikes
        struck = self.strike(b"GET " + name + b" HTTP/1.1\r\nhost: s\r\n\r\n")
        assert [got.message.first for got in struck.arrived] == [(b"GET", name)]
        assert struck.answers().messages[0].body == b"production GET " + name + b" 0"

    def judged(self, struck: Struck, *, stricter: bool = False) -> bool:
        """Check the invariants; returns whether something was refused.

        Args:
            stricter: the proxy may refuse what the strict reader reads, such as a method that it does not know, and
                may wait for more where the strict reader has seen enough.
        """
        row, arrived, answers = struck.sent, struck.arrived, struck.answers()
        assert not self.violations, self.violations
        assert len(arrived) <= len(row.messages), f"{row.why}: {arrived} arrived"
        for sent, got in zip(row.messages, arrived, strict=False):
            assert_same(sent, got, self.production)
        assert answers.state == "clean" or not struck.closed, (answers.why, struck.received)
        for got, answer in zip(arrived, answers.messages, strict=False):
            if got.message.first[0] != b"HEAD":
                assert answer.body == echo(got.side, got.message)
        refusals = answers.messages[len(arrived) :]
        assert all(400 <= int(refusal.first[0]) <= 505 for refusal in refusals), struck.received
        assert len(refusals) <= 1, struck.received
        if refusals or (row.state == "bad" and not stricter):
            assert struck.closed, f"{row.why}: the connection stayed open: {struck.received!r}"
        elif row.state == "clean" and not stricter:
            assert len(arrived) == len(row.messages), f"{row} came to {struck.received!r}"
        return bool(refusals) or (row.state == "bad" and struck.closed)


def _all_served(answers: Row, requests: int) -> bool:
    """All requests have their answers, none of which ends the connection."""
    messages = answers.messages
    return len(messages) >= requests and not any(b"close" in message.values(b"connection") for message in messages)


def assert_same(sent: Message, got: Arrived, production: str) -> None:
    """What arrived means what was sent."""
    message, target = got.message, sent.first[1]
    if not target.startswith(b"/"):
        target = path_of(target)
    assert message.first == (sent.first[0], target)
    assert got.side == ("production" if target == b"/v1" or target[:4] in (b"/v1/", b"/v1?") else "control")
    assert (message.version, message.body) == (b"1.1", sent.body)
    # each side's own; the caller's credentials, which are production's (docs/access.md); whom the worker found it to be
    own = (b"host", b"authorization", b"x-slipstream-scope") if got.side == "control" else (b"host", b"x-slipstream-")
    assert _without(message.end_to_end, own) == _without(sent.end_to_end, own)
    if got.side == "production":
        assert message.values(b"host") == [production.encode()]
        assert not [name for name, _ in message.fields if name.startswith(b"x-slipstream-")]
    else:
        assert message.values(b"host") == sent.values(b"host")


def path_of(target: bytes) -> bytes:
    """An absolute target's path and query."""
    assert target.lower().startswith(_ABSOLUTE), target
    rest = target.partition(b"#")[0].partition(b"://")[2]
    authority = len(rest.replace(b"?", b"/").split(b"/")[0])
    path = rest[authority:]
    return (path if path.startswith(b"/") else b"/" + path).removesuffix(b"?")  # an empty query is none


def _without(fields: Fields, prefixes: tuple[bytes, ...]) -> Fields:
    return [pair for pair in fields if not pair[0].startswith(prefixes)]


def echo(side: str, message: Message) -> bytes:
    return b"%b %b %b %d" % (side.encode(), *message.first, len(message.body))


class _NoTap:
    """Nothing is captured: this is about the wire."""

    def draw(self, *_: object) -> Draw:
        return Draw.UNWANTED


class _Recorder(asyncio.Protocol):
    """An upstream's end of one connection."""

    def __init__(self, rig: Rig, side: str) -> None:
        self._rig, self._side = rig, side
        self._data = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        if self._side == "production":
            self._rig.open.append(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._side == "production":
            self._rig.open.remove(self._transport)

    def data_received(self, data: bytes) -> None:
        self._data += data
        row = read_requests(self._data)
        if row.state == "bad":
            self._rig.violations.append(f"{self._side} got {row.why}: {self._data[:2000]!r}")
            self._transport.abort()
            return
        if not row.messages:
            return
        if len(row.messages) > 1 or row.state != "clean":
            self._rig.violations.append(f"{self._side} got more than a request: {self._data[:2000]!r}")
        message = row.messages[0]
        # a second Host, which h11 refuses, reaches the control API only, where nothing goes by it
        if self._side == "production" and (second := _as_h11_reads(self._data)) != (*message.first, message.body):
            self._rig.violations.append(f"h11 reads {second} in {self._data[:2000]!r}")
        self._data = b""
        self._rig.arrived.append(Arrived(self._side, row.messages[0]))
        script = self._rig.scripts.pop(0) if self._rig.scripts else None
        asyncio.ensure_future(self._answered(row.messages[0], script)) if script else self._echoed(row.messages[0])

    def _echoed(self, message: Message) -> None:
        body = echo(self._side, message)
        head = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(body)
        self._transport.write(head if message.first[0] == b"HEAD" else head + body)

    async def _answered(self, message: Message, script: Script) -> None:
        for number, piece in enumerate(script.pieces):
            if number:
                await asyncio.sleep(0.002)
            self._transport.write(piece)
        if script.close:
            self._transport.close()


def _as_h11_reads(data: bytes) -> tuple[bytes, bytes, bytes] | str:
    """Another reader's opinion of one request."""
    reader = h11.Connection(h11.SERVER, max_incomplete_event_size=1 << 24)
    try:
        reader.receive_data(data)
        request, body = reader.next_event(), b""
        while isinstance(event := reader.next_event(), h11.Data):
            body += event.data
    except h11.RemoteProtocolError as error:
        return str(error)
    if not isinstance(request, h11.Request) or not isinstance(event, h11.EndOfMessage):
        return repr((request, event))
    return request.method, request.target, body + reader.trailing_data[0]


@contextlib.contextmanager
def rig(**sidecar: Any) -> Iterator[Rig]:
    """A proxy and its upstreams, until the end of the block."""
    rig, stop, ready = Rig(), asyncio.Event(), threading.Event()
    problems: list[BaseException] = []

    async def main() -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "control"
            loop = asyncio.get_running_loop()
            production = await loop.create_server(lambda: _Recorder(rig, "production"), "127.0.0.1", 0)
            control = await loop.create_unix_server(lambda: _Recorder(rig, "control"), path)
            port = production.sockets[0].getsockname()[1]
            rig.production = f"127.0.0.1:{port}"
            async with wire.sidecar(port, control=path, tap=_NoTap(), **sidecar) as side:
                rig.port = side.port
                ready.set()
                await stop.wait()
            production.close()
            control.close()

    def run() -> None:
        try:
            rig.loop.run_until_complete(main())
        except BaseException as error:  # noqa: BLE001 - the test's thread raises it
            problems.append(error)
        finally:
            ready.set()
            rig.loop.close()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        assert ready.wait(PATIENCE)
        if problems:
            raise problems[0]
        yield rig
    finally:
        if not rig.loop.is_closed():
            rig.loop.call_soon_threadsafe(stop.set)
        thread.join(2 * PATIENCE)
