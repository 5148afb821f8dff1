"""What the proxy costs: added latency at 1 connection and requests a second at 32, direct against
through the proxy.

    python benchmarks/proxy.py [--seconds 3]

Production is a stub that answers 1 KB at once; requests are 2 KB. The load, the stub and the proxy are processes of
their own. On a machine with fewer than 4 idle cores they get in each other's way, and only the last column, the proxy's
own CPU time (read from Linux's /proc), says much.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import os
import socket
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import uvicorn
import uvloop
from prometheus_client import CollectorRegistry
from starlette.types import Receive, Scope, Send

from slipstream.config.settings import Capture, Production
from slipstream.proxy.asgi import Proxy
from slipstream.proxy.headers import Headers
from slipstream.proxy.metrics import ProxyMetrics
from slipstream.proxy.server import server_config
from slipstream.proxy.tap import Exchange

BODY = b'{"model":"m","messages":[{"role":"user","content":"' + b"x" * 1950 + b'"}]}'
REQUEST = (
    b"POST /v1/chat/completions HTTP/1.1\r\nhost: bench\r\ncontent-type: application/json\r\n"
    b"authorization: Bearer sk-bench\r\nuser-agent: bench\r\naccept: application/json\r\n"
    b"content-length: %d\r\n\r\n" % len(BODY)
) + BODY
ANSWER_BODY = b'{"id":"chatcmpl-1","choices":[]}'.ljust(1024)
ANSWER = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 1024\r\n\r\n" + ANSWER_BODY


class CountingTap:
    """Takes a copy of everything and lets it go: capture's share in the hot path, without the store."""

    def wants(self, method: str, path: str, headers: Headers) -> bool:
        return True

    def record(self, exchange: Exchange) -> None:
        pass


class Stub(asyncio.Protocol):
    """Answers each request of the fixed size with the fixed answer."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self.received = b""

    def data_received(self, data: bytes) -> None:
        self.received += data
        _, end, body = self.received.partition(b"\r\n\r\n")
        if end and len(body) >= len(BODY):
            self.received = b""
            self.transport.write(ANSWER)  # type: ignore[attr-defined]


class Load(asyncio.Protocol):
    """One connection that asks again as soon as it is answered, and notes how long each answer took."""

    def __init__(self, until: float, taken: list[float]) -> None:
        self.until = until
        self.taken = taken
        self.done = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self.ask()

    def ask(self) -> None:
        self.received = 0
        self.asked = time.perf_counter()
        self.transport.write(REQUEST)  # type: ignore[attr-defined]

    def data_received(self, data: bytes) -> None:
        self.received += len(data)
        if data.endswith(ANSWER_BODY[-8:]) and self.received > len(ANSWER_BODY):
            now = time.perf_counter()
            self.taken.append(now - self.asked)
            if now < self.until:
                self.ask()
            else:
                self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.done.done():
            self.done.set_result(None)


async def measure(port: int, connections: int, seconds: float) -> list[float]:
    taken: list[float] = []
    until = time.perf_counter() + seconds
    loop = asyncio.get_running_loop()
    made = [await loop.create_connection(lambda: Load(until, taken), "127.0.0.1", port) for _ in range(connections)]
    await asyncio.gather(*(load.done for _, load in made))
    return taken


async def control(scope: Scope, receive: Receive, send: Send) -> None:
    """There is no control API to speak of here."""


def serve_stub(listener: socket.socket) -> None:
    async def main() -> None:
        server = await asyncio.get_running_loop().create_server(Stub, sock=listener)
        await server.serve_forever()

    uvloop.run(main())


def serve_proxy(listener: socket.socket, upstream: int) -> None:
    production = Production(base_url=f"http://127.0.0.1:{upstream}/v1")
    proxy = Proxy(control, production, Capture(), CountingTap(), ProxyMetrics(CollectorRegistry()))
    uvicorn.Server(server_config(proxy, "127.0.0.1", 0, lifespan="off")).run(sockets=[listener])


@contextmanager
def process(target: Callable[..., None], *args: int) -> Iterator[tuple[int, int]]:
    """Run `target` on a listening socket in a process of its own; gives the port and the process id."""
    with socket.create_server(("127.0.0.1", 0), backlog=1024) as listener:
        child = multiprocessing.Process(target=target, args=(listener, *args), daemon=True)
        child.start()
        try:
            yield listener.getsockname()[1], child.pid or 0
        finally:
            child.terminate()
            child.join()


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seconds", type=float, default=3.0, help="length of each of the four measurements")
    seconds = parser.parse_args().seconds
    with process(serve_stub) as (stub, _), process(serve_proxy, stub) as (proxy, pid):
        for port in (stub, proxy):  # until both are up and warm
            uvloop.run(measure(port, 4, 0.5))
        ports = {"direct": stub, "proxy": proxy}
        one = {name: uvloop.run(measure(port, 1, seconds)) for name, port in ports.items()}
        before = cpu_seconds(pid)
        many = {name: uvloop.run(measure(port, 32, seconds)) for name, port in ports.items()}
        cpu = (cpu_seconds(pid) - before) / len(many["proxy"]) * 1e6
    quantiles = {name: statistics.quantiles(taken, n=100) for name, taken in one.items()}
    print(f"{'':>8} {'p50 µs':>8} {'p99 µs':>8} {'req/s at 32':>12} {'CPU µs':>8}")
    for name in ports:
        p50, p99 = quantiles[name][49] * 1e6, quantiles[name][98] * 1e6
        print(f"{name:>8} {p50:8.0f} {p99:8.0f} {len(many[name]) / seconds:12,.0f}", end="")
        print(f" {cpu:8.0f}" if name == "proxy" else "")
    added = [(quantiles["proxy"][i] - quantiles["direct"][i]) * 1e6 for i in (49, 98)]
    print(f"{'added':>8} {added[0]:8.0f} {added[1]:8.0f}")


if __name__ == "__main__":
    main()
