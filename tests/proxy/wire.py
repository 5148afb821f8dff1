"""Both ends of the wire by hand: an upstream that a test scripts byte by byte, a client that sees every byte, and the
proxy between them on a loop and a thread of its own."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import queue
import socket
import tempfile
import threading
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvloop
from peer import Peer, Request, Script
from prometheus_client import CollectorRegistry

from slipstream.http.pool import Pool
from slipstream.proxy.capture_ipc import Sender
from slipstream.proxy.gateway import Gateway
from slipstream.proxy.limits import AgentLimits
from slipstream.proxy.metrics import ProxyMetrics, SharedCounters
from slipstream.proxy.routing import Routing
from slipstream.proxy.sample import Draw, Sample
from slipstream.proxy.server import Stop, serve_agents
from slipstream.proxy.tap import Exchange, Recording
from slipstream.proxy.tls import Certificates
from slipstream.proxy.upstreams import control_route, production_route
from slipstream.settings.listen import ListenTls
from slipstream.settings.production import Production
from slipstream.settings.sidecar import Limits

LIMIT = 10.0
"""Seconds that any wait in these tests may take before it fails."""


async def until(true: Callable[[], bool]) -> None:
    """Wait for something that another thread brings about and tells nobody."""
    async with asyncio.timeout(LIMIT):
        while not true():  # noqa: ASYNC110
            await asyncio.sleep(0.002)


class Upstream:
    """Hands each connection to `script`, and keeps what it raised for the test's end."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.connections = 0
        self.port = 0
        self.errors: list[BaseException] = []

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            await self.script(Peer(reader, writer))
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass  # the proxy closed an idle connection, or the test is over
        except Exception as error:  # noqa: BLE001
            self.errors.append(error)
        finally:
            writer.close()
            with contextlib.suppress(ConnectionError, asyncio.CancelledError):
                await writer.wait_closed()


@contextlib.asynccontextmanager
async def upstream(script: Script, **listen: Any) -> AsyncIterator[Upstream]:
    served = Upstream(script)
    tasks: set[asyncio.Task[None]] = set()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(served.handle(reader, writer))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    server = await asyncio.start_server(accept, "127.0.0.1", 0, limit=2**24, **listen)
    served.port = server.sockets[0].getsockname()[1]
    try:
        yield served
    finally:
        server.close()
        for task in list(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await server.wait_closed()
    if served.errors:
        raise served.errors[0]


class ListTap:
    """A tap that keeps what it gets of the calls in a sample."""

    def __init__(self, rate: float = 1.0) -> None:
        self._sample = Sample(rate)
        self.exchanges: queue.Queue[Exchange] = queue.Queue()

    def draw(self, method: str, path: str, *about: Any) -> Draw:
        return self._sample.draw(method, path, *about) if self.wants(path) else Draw.UNWANTED

    def wants(self, path: str) -> bool:
        return path == "/v1/chat/completions"

    def record(self, recording: Recording) -> None:
        self.exchanges.put(recording.exchange())

    async def next(self) -> Exchange:
        return await asyncio.to_thread(self.exchanges.get, timeout=LIMIT)


async def control(peer: Peer) -> None:
    """A control API that answers everything with its path."""
    while True:
        request = await peer.request()
        await peer.send(answer(b"control " + request.line.split(b" ")[1]))


@dataclass
class Sidecar:
    """A running proxy."""

    port: int
    tap: Any
    registry: CollectorRegistry
    pool: Pool

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    @property
    def kept_connections(self) -> int:
        return self.pool.idle  # from outside it shows in nothing but a race

    def metric(self, name: str, **labels: str) -> float:
        return self.registry.get_sample_value(f"slipstream_proxy_{name}", labels) or 0.0

    async def metric_reaches(self, value: float, name: str, **labels: str) -> None:
        await until(lambda: self.metric(name, **labels) == value)


@contextlib.asynccontextmanager
async def sidecar(
    upstream_port: int,
    *,
    tap: Any = None,
    max_body: int = 8 * 1024**2,
    scheme: str = "http",
    limits: dict[str, Any] | None = None,
    control: Path | None = None,
    tls: ListenTls | None = None,
    routing: Callable[[ProxyMetrics], Routing] | None = None,
    send_buffer: int = 0,
    **production: Any,
) -> AsyncIterator[Sidecar]:
    """A proxy before the upstream on this port; `control` is the control API's Unix socket, where not the one below,
    `routing` makes what sends users to a lane, and `send_buffer` is the size of the kernel's buffer for an answer, else
    its own choice."""
    tap = tap or ListTap()
    counters, registry = SharedCounters(1), CollectorRegistry()
    registry.register(counters)
    metrics = counters.row(0)
    settings = Production.model_validate({"base_url": f"{scheme}://127.0.0.1:{upstream_port}/v1", **production})
    route = production_route(settings, os.environ, metrics)
    listener = socket.create_server(("127.0.0.1", 0))
    if send_buffer:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer)  # connections inherit it
    loop, stop = uvloop.new_event_loop(), Stop(grace=2)

    agent_limits = AgentLimits.share(Limits.model_validate(limits or {}))

    async with contextlib.nullcontext(control) if control else control_api() as path:

        def run() -> None:
            gateway = Gateway(
                route, control_route(path), tap, metrics, max_body=max_body, room=64 * 1024**2, limits=agent_limits,
                routing=routing and routing(metrics),
            )  # fmt: skip

            async def main() -> None:
                await serve_agents(gateway, [listener], stop, certificates=tls and Certificates(tls))
                if isinstance(tap, Sender):
                    await tap.drain(LIMIT)

            try:
                loop.run_until_complete(main())
            finally:
                loop.close()

        thread = threading.Thread(target=run)
        thread.start()
        try:
            yield Sidecar(listener.getsockname()[1], tap, registry, route.pool)
        finally:
            loop.call_soon_threadsafe(stop.now.set)
            await asyncio.to_thread(thread.join, LIMIT)


@contextlib.asynccontextmanager
async def control_api() -> AsyncIterator[Path]:
    """`control` behind a Unix socket."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            await control(Peer(reader, writer))
        writer.close()

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "control"
        server = await asyncio.start_unix_server(handle, path)
        try:
            yield path
        finally:
            server.close()


@contextlib.asynccontextmanager
async def dial(port: int) -> AsyncIterator[Peer]:
    """A client connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=2**24)
    try:
        yield Peer(reader, writer)
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


@dataclass
class Answer:
    """A response as its bytes arrived."""

    head: bytes
    rest: bytes
    """Everything after the head, chunk framing included."""

    @property
    def status(self) -> int:
        return int(self.head.split(b" ", 2)[1])

    @property
    def fields(self) -> list[tuple[bytes, bytes]]:
        return Request(self.head, b"").fields

    def values(self, name: bytes) -> list[bytes]:
        return Request(self.head, b"").values(name)

    @property
    def body(self) -> bytes:
        """The body without chunk framing.

        Raises:
            EOFError: it is cut.
        """
        if not self.values(b"transfer-encoding"):
            length = self.values(b"content-length")
            if length and len(self.rest) < int(length[0]):
                raise EOFError(f"{len(self.rest)} of {length[0]!r} bytes")
            return self.rest
        body, rest = b"", self.rest
        while True:
            size, line_end, rest = rest.partition(b"\r\n")
            if not line_end:
                raise EOFError("no chunk after " + repr(body[-40:]))
            if int(size, 16) == 0:
                return body
            if len(rest) < int(size, 16) + 2:
                raise EOFError("cut in a chunk")
            body, rest = body + rest[: int(size, 16)], rest[int(size, 16) + 2 :]

    @property
    def received(self) -> bytes:
        """The body bytes that came before a cut."""
        if not self.values(b"transfer-encoding"):
            return self.rest
        body, rest = b"", self.rest
        while rest:
            size, _, rest = rest.partition(b"\r\n")
            body, rest = body + rest[: int(size or b"0", 16)], rest[int(size or b"0", 16) + 2 :]
        return body

    def json(self) -> Any:
        return json.loads(self.body)


async def ask(port: int, request: bytes) -> Answer:
    """Send raw bytes, which must ask for `connection: close`, and read to the end of the connection."""
    async with asyncio.timeout(LIMIT), dial(port) as client:
        client.writer.write(request)
        received = b""
        with contextlib.suppress(ConnectionResetError):
            while data := await client.reader.read(2**20):
                received += data
    head, _, rest = received.partition(b"\r\n\r\n")
    return Answer(head + b"\r\n\r\n", rest)


def post(body: bytes, *fields: bytes, path: bytes = b"/v1/chat/completions") -> bytes:
    lines = [b"POST " + path + b" HTTP/1.1", b"host: sidecar", b"connection: close", *fields]
    return b"\r\n".join([*lines, b"content-length: %d" % len(body), b"", b""]) + body


def answer(body: bytes = b"{}", *fields: bytes, status: bytes = b"200 OK") -> bytes:
    lines = [b"HTTP/1.1 " + status, *fields, b"content-length: %d" % len(body), b"", b""]
    return b"\r\n".join(lines) + body
