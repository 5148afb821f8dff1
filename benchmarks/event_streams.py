"""Cost of a thousand open event streams: CPU of the workers and of the training side, and latency of calls beside them.

    python benchmarks/event_streams.py [--streams 1000] [--rate 100] [--seconds 8]

Production and the users are in this process, the readers of the streams in one of their own, and the sidecar is
`slipstream serve` with two workers, which captures every call: with calls, what the streams show changes all the time.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import os
import statistics
import time
from multiprocessing.sharedctypes import Synchronized

import psutil
import uvloop
from lane_stopped import Users, running

WARM = 2.0
"""Seconds of load before it is measured."""

WORKERS = 2
OPEN_WITHIN = 60.0

Row = tuple[float, float, float, float, float]
"""CPU of the workers and of the training side in percent of a core, p50 and p99 in milliseconds, kB a second that the
streams brought."""


class _Reader(asyncio.Protocol):
    """Reads a stream and throws it away."""

    def __init__(self, begun: Synchronized[int], read: Synchronized[int]) -> None:
        self._begun = begun
        self._read = read
        self._first = True

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.write(b"GET /events HTTP/1.1\r\nhost: localhost\r\n\r\n")

    def data_received(self, data: bytes) -> None:
        self._read.value += len(data)
        if self._first and b"event: changed" in data:
            self._first = False
            self._begun.value += 1


def _readers(port: int, streams: int, begun: Synchronized[int], read: Synchronized[int]) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        for _ in range(streams):
            await loop.create_connection(lambda: _Reader(begun, read), "127.0.0.1", port)
        await asyncio.Event().wait()

    asyncio.run(main())


def _cpu(pid: int) -> tuple[float, float]:
    """CPU seconds so far of the workers, and of the training side with its own children."""
    workers = training = 0.0
    for process in psutil.Process(pid).children(recursive=True):
        times = process.cpu_times()
        if process.name().startswith("slip-proxy"):
            workers += times.user + times.system
        else:
            training += times.user + times.system
    return workers, training


async def measure(streams: int, rate: int, seconds: float) -> Row:
    async with running(WORKERS, serves=False) as rig:
        context = multiprocessing.get_context("spawn")
        begun, read = context.Value("q", 0, lock=False), context.Value("q", 0, lock=False)
        readers = context.Process(target=_readers, args=(rig.deployment.port, streams, begun, read), daemon=True)
        readers.start()
        try:
            async with asyncio.timeout(OPEN_WITHIN):
                while begun.value < streams:  # noqa: ASYNC110 - another process counts
                    await asyncio.sleep(0.1)
            users = Users(rig.deployment.port, max(rate, 1))
            working = asyncio.create_task(users.work()) if rate else None
            await asyncio.sleep(WARM)
            pid = rig.deployment.running["serve"].pid
            before, bytes_before, began = _cpu(pid), read.value, time.perf_counter()
            await asyncio.sleep(seconds)
            after, bytes_after, ended = _cpu(pid), read.value, time.perf_counter()
            users.over = True
            if working is not None:
                await working
        finally:
            readers.terminate()
            readers.join()
    assert not users.failed, f"{users.failed} calls failed"
    took = [spent * 1000 for at, spent, _ in users.answered if began <= at < ended] or [0.0, 0.0]
    workers, training = (100 * (end - start) / (ended - began) for start, end in zip(before, after, strict=True))
    rest = statistics.median(took), statistics.quantiles(took, n=100)[98]
    return workers, training, *rest, (bytes_after - bytes_before) / 1000 / (ended - began)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--streams", type=int, default=1000)
    parser.add_argument("--rate", type=int, default=100, help="calls a second")
    parser.add_argument("--seconds", type=float, default=8.0, help="of each measurement")
    given = parser.parse_args()
    print(f"{os.cpu_count()} cores, load average before: {os.getloadavg()[0]:.1f}\n")
    print("| streams | calls a second | CPU of the workers | of the training side | p50 | p99 | kB a second |")
    print("|---:|---:|---:|---:|---:|---:|---:|")
    for streams, rate in ((0, 0), (given.streams, 0), (0, given.rate), (given.streams, given.rate)):
        workers, training, p50, p99, sent = uvloop.run(measure(streams, rate, given.seconds))
        latency = f"{p50:.1f} ms | {p99:.1f} ms" if rate else "|"
        print(f"| {streams} | {rate} | {workers:.1f}% | {training:.1f}% | {latency} | {sent:.0f} |", flush=True)


if __name__ == "__main__":
    main()
