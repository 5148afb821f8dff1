"""Agents while the sidecar is replaced and restarted: calls refused, failed and cut, and the time that is added.

    python benchmarks/restart.py [--store sqlite|postgresql] [--rate 500] [--streams 100] [--case CASE ...]

A production model that answers at once, and streams an event each half second, is in this process, and so are the
agents: calls at a fixed rate, nine of ten over kept connections and one over a new one, and streams that are open all
the time and whose bytes are compared. In each case the sidecar runs quietly for some seconds; then it is replaced or
restarted.

On PostgreSQL two sidecars share the store, and the agents take them in turn. One sidecar is replaced or restarted, then
the other; the time that it takes is that of both.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import uvloop
import yaml
from postgresql import postgresql

QUIET, AFTER = 6.0, 4.0
"""Seconds of load before the event, and after its end."""
PATIENCE = 30.0
"""Seconds after which a call has failed."""
EVENTS, PAUSE = 40, 0.5
NEW_EACH = 10

BODY = b'{"model":"m","messages":[{"role":"user","content":"hello"}]}'
STREAMED = b'{"model":"m","stream":true,"messages":[{"role":"user","content":"hello"}]}'
ANSWER = (
    b'{"id":"c","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,"finish_reason":"stop",'
    b'"message":{"role":"assistant","content":"hello"}}]}'
)
PIECES = [b'data: {"id":"s","object":"chat.completion.chunk","choices":[],"n":%d}\n\n' % n for n in range(EVENTS)]
PIECES.append(b"data: [DONE]\n\n")


@dataclass
class Seen:
    """Outcomes of the agents' calls.

    Attributes:
        times: moment and seconds of each answered call.
    """

    times: list[tuple[float, float]] = field(default_factory=list)
    refused: int = 0
    failed: int = 0
    cut: int = 0
    streams: int = 0


async def message(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    """The head, in lower case, and the body of a request or an answer that says its length.

    Raises:
        IncompleteReadError, OSError: the connection ended first.
    """
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    length = re.search(rb"content-length: (\d+)", head)
    return head, await reader.readexactly(int(length[1]) if length else 0)


async def production(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(
        OSError, asyncio.IncompleteReadError, RuntimeError
    ):  # the last: uvloop's, where the other end has gone
        while True:
            _, body = await message(reader)
            if b'"stream"' not in body:
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: ")
                writer.write(b"%d\r\n\r\n%b" % (len(ANSWER), ANSWER))
                continue
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
            for piece in PIECES:
                writer.write(b"%x\r\n%b\r\n" % (len(piece), piece))
                await asyncio.sleep(PAUSE)
            writer.write(b"0\r\n\r\n")
    writer.close()


class Agents:
    """Load at a fixed rate beside open streams."""

    def __init__(self, ports: Sequence[int], rate: int, streams: int) -> None:
        self._ports = ports
        self._rate = rate
        self._streams = streams
        self._idle: dict[int, list[tuple[asyncio.StreamReader, asyncio.StreamWriter]]] = {port: [] for port in ports}
        self._over = False
        self.seen = Seen()

    @asynccontextmanager
    async def working(self) -> AsyncIterator[None]:
        streams = [asyncio.create_task(self._stream(number)) for number in range(self._streams)]
        calls = asyncio.create_task(self._calls())
        try:
            yield
        finally:
            self._over = True
            await asyncio.gather(calls, *streams)

    async def _calls(self) -> None:
        under_way: set[asyncio.Task[None]] = set()
        at, number = time.perf_counter(), 0
        while not self._over:
            port = self._ports[number // NEW_EACH % len(self._ports)]  # so that each gets its part of new connections
            task = asyncio.create_task(self._call(port, new=number % NEW_EACH == 0))
            under_way.add(task)
            task.add_done_callback(under_way.discard)
            at, number = at + 1 / self._rate, number + 1
            await asyncio.sleep(max(0.0, at - time.perf_counter()))
        await asyncio.gather(*under_way)

    async def _call(self, port: int, *, new: bool) -> None:
        began = time.perf_counter()
        try:
            async with asyncio.timeout(PATIENCE):
                kept = None if new else self._kept(port)
                reader, writer = kept or await asyncio.open_connection("127.0.0.1", port)
                self._ask(writer, BODY)
                head, body = await message(reader)
        except ConnectionRefusedError:
            self.seen.refused += 1
            return
        except (OSError, asyncio.IncompleteReadError, TimeoutError):
            self.seen.failed += 1
            return
        if not head.startswith(b"http/1.1 200") or body != ANSWER:
            self.seen.failed += 1
            return
        self.seen.times.append((began, time.perf_counter() - began))
        if new or b"connection: close" in head:
            writer.close()
        else:
            self._idle[port].append((reader, writer))

    def _kept(self, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter] | None:
        while self._idle[port]:
            reader, writer = self._idle[port].pop()
            if not reader.at_eof() and not writer.is_closing():
                return reader, writer
            writer.close()
        return None

    async def _stream(self, number: int) -> None:
        port = self._ports[number % len(self._ports)]
        await asyncio.sleep(number * PAUSE * EVENTS / 2 / max(1, self._streams))
        while not self._over:
            self.seen.streams += 1
            said = b""
            try:
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
            except ConnectionRefusedError:
                self.seen.refused += 1
                await asyncio.sleep(0.1)
                continue
            with suppress(OSError, asyncio.IncompleteReadError):
                self._ask(writer, STREAMED)
                await reader.readuntil(b"\r\n\r\n")
                while size := int(await reader.readuntil(b"\r\n"), 16):
                    said += (await reader.readexactly(size + 2))[:-2]
            if said != b"".join(PIECES):
                self.seen.cut += 1
            writer.close()

    def _ask(self, writer: asyncio.StreamWriter, body: bytes) -> None:
        writer.write(
            b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
            b"content-length: %d\r\n\r\n%b" % (len(body), body)
        )


class Deployment:
    """The sidecar, as one program or two, or below a socket that is held for it."""

    def __init__(self, folder: Path, production_port: int, workers: int, store: str, **sections: Any) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self._folder = folder
        self.config = folder / "sidecar.yaml"
        self.config.write_text(
            yaml.safe_dump(
                {
                    "listen": f"127.0.0.1:{self.port}",
                    "proxy": {"sockets": str(folder / "run"), "workers": workers},
                    "production": {"base_url": f"http://127.0.0.1:{production_port}/v1"},
                    "explorer": {"base_url": "http://127.0.0.1:9"},
                    "store": {"url": store},
                    "log": {"level": "warning"},
                    **sections,
                }
            )
        )
        self.held: socket.socket | None = None
        self.running: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, half: str) -> None:
        command = [sys.executable, "-m", "slipstream", half, "--config", str(self.config)]
        passed: Callable[[], None] | None = None
        if (held := self.held) is not None:

            def passed() -> None:
                os.dup2(os.dup(held.fileno()), 3)
                os.environb[b"LISTEN_PID"] = b"%d" % os.getpid()
                os.environb[b"LISTEN_FDS"] = b"1"
                os.execv(sys.executable, command)  # as systemd does: the id is known after the fork alone

        with (self._folder / "log").open("ab") as log:
            self.running[half] = subprocess.Popen(
                command, stderr=log, preexec_fn=passed, close_fds=held is None, start_new_session=True
            )

    async def ready(self) -> None:
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{self.port}", timeout=60) as client:
            for _ in range(600):
                with suppress(httpx.TransportError):
                    if (await client.get("/readyz")).status_code == 200:
                        return
                await asyncio.sleep(0.1)
        raise RuntimeError((self._folder / "log").read_text())

    async def end(self, half: str) -> None:
        self.running[half].send_signal(signal.SIGTERM)
        await asyncio.to_thread(self.running.pop(half).wait)

    async def upgrade(self) -> None:
        command = (sys.executable, "-m", "slipstream", "upgrade", "--config", str(self.config))
        process = await asyncio.create_subprocess_exec(*command, stdout=subprocess.DEVNULL)
        if await process.wait():
            raise RuntimeError((self._folder / "log").read_text())

    async def restart(self, half: str) -> None:
        await self.end(half)
        self.start(half)
        await self.ready()


async def reload(deployment: Deployment) -> None:
    file = next((deployment.config.parent / "run").glob("*.json"))
    before = file.stat().st_mtime_ns
    deployment.running["serve"].send_signal(signal.SIGHUP)
    while file.stat().st_mtime_ns == before:  # noqa: ASYNC110 - another process writes it
        await asyncio.sleep(0.05)


CASES = {
    "upgrade": (("serve",), False, Deployment.upgrade, "`slipstream upgrade`"),
    "reload": (("serve",), False, reload, "SIGHUP"),
    "halves": (("proxy", "training"), False, Deployment.upgrade, "`slipstream upgrade` of both halves"),
    "training": (
        ("proxy", "training"),
        False,
        lambda deployment: deployment.restart("training"),
        "`slipstream training` ended by SIGTERM and started again",
    ),
    "unit": (
        ("serve",),
        True,
        lambda deployment: deployment.restart("serve"),
        "`slipstream serve` ended by SIGTERM and started again, its socket held by a unit",
    ),
    "restart": (
        ("serve",),
        False,
        lambda deployment: deployment.restart("serve"),
        "the same without a unit",
    ),
}


@contextmanager
def stores(kind: str, folder: Path) -> Iterator[list[str]]:
    """The URL of the store for each sidecar of the deployment."""
    if kind == "sqlite":
        yield [f"sqlite+aiosqlite:///{folder}/slipstream.db"]
        return
    with postgresql() as (fresh, _):
        yield [fresh()] * 2


async def measure(case: str, store: str, rate: int, streams: int, workers: int) -> str:
    halves, unit, event, words = CASES[case]
    server = await asyncio.start_server(production, "127.0.0.1", 0, backlog=4096)
    production_port = server.sockets[0].getsockname()[1]
    deployments: list[Deployment] = []
    with tempfile.TemporaryDirectory() as name, stores(store, Path(name)) as urls:
        try:
            for number, url in enumerate(urls):
                folder = Path(name) / str(number)
                folder.mkdir()
                deployments.append(deployment := Deployment(folder, production_port, workers, url))
                if unit:
                    deployment.held = socket.create_server(("127.0.0.1", deployment.port), backlog=4096)
                for half in halves:
                    deployment.start(half)
            for deployment in deployments:
                await deployment.ready()
            agents = Agents([deployment.port for deployment in deployments], rate, streams)
            async with agents.working():
                await asyncio.sleep(QUIET)
                began = time.perf_counter()
                for deployment in deployments:
                    await event(deployment)
                took = time.perf_counter() - began
                await asyncio.sleep(AFTER)
        finally:
            for deployment in deployments:
                for half in list(deployment.running):
                    await deployment.end(half)
                if deployment.held is not None:
                    deployment.held.close()
    server.close()
    seen = agents.seen
    quiet = [seconds for at, seconds in seen.times if began - QUIET + 1 < at < began]
    during = [seconds for at, seconds in seen.times if began <= at < began + took + AFTER]
    p99 = [statistics.quantiles(times, n=100)[98] * 1000 for times in (quiet, during)]
    calls = len(seen.times) + seen.refused + seen.failed
    return (
        f"| {words} | {took:.1f} s | {calls} | {seen.streams} | {seen.refused} | {seen.failed} | {seen.cut} "
        f"| {p99[0]:.1f} ms | {p99[1]:.1f} ms | {max(during) * 1000:.0f} ms |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--store", choices=("sqlite", "postgresql"), default="sqlite")
    parser.add_argument("--rate", type=int, default=500, help="calls a second")
    parser.add_argument("--streams", type=int, default=100)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--case", choices=CASES, action="append")
    given = parser.parse_args()
    print("| what is done | it takes | calls | streams | refused | failed | cut | p99 before | p99 during | longest |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    for case in given.case or CASES:
        print(uvloop.run(measure(case, given.store, given.rate, given.streams, given.workers)), flush=True)


if __name__ == "__main__":
    main()
