"""How many captured calls a second go into the store, with and without `store.encryption_key`.

    python benchmarks/encryption.py [--calls 20000] [--rounds 5]

Calls of 2 kB with answers of 1 kB, no two alike, go the whole way from the proxy's tap into a SQLite store on the disk
that holds the temporary folder. The rounds take turns. Prints the median of CPU time and of wall time a call.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import json
import logging
import os
import random
import statistics
import string
import tempfile
import time
from typing import Any

import structlog

from slipstream.proxy.metrics import SharedCounters
from slipstream.proxy.tap import Exchange
from slipstream.settings.sidecar import Settings
from slipstream.sidecar import Sidecar

_REQUEST, _ANSWER = 2000, 1000


def _exchange(number: int, rng: random.Random) -> Exchange:
    words = "".join(rng.choices(string.ascii_letters + " ", k=_REQUEST + _ANSWER))
    request = {"model": "m", "messages": [{"role": "user", "content": words[:_REQUEST]}]}
    message = {"role": "assistant", "content": words[_REQUEST:]}
    answer = {"id": f"chatcmpl-{number}", "choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}
    return Exchange(
        method="POST",
        path="/v1/chat/completions",
        request_headers=[(b"content-type", b"application/json")],
        request_body=json.dumps(request).encode(),
        status=200,
        response_headers=[(b"content-type", b"application/json")],
        response_body=json.dumps(answer).encode(),
        started_at=time.time(),
        first_byte_after=0.1,
        duration=0.2,
        error=None,
    )


async def _round(exchanges: list[Exchange], keys: list[str]) -> tuple[float, float]:
    """Seconds of CPU and of the clock that a call takes until it is stored."""
    with tempfile.TemporaryDirectory() as folder:
        store: dict[str, Any] = {"url": f"sqlite+aiosqlite:///{folder}/slipstream.db", "encryption_key": keys}
        away = {"base_url": "http://127.0.0.1:9"}
        settings = Settings.model_validate({"store": store, "explorer": away, "selection": {"explicit_mark": {}}})
        sidecar = Sidecar(settings, SharedCounters(1))
        await sidecar.start()
        cpu, wall = time.process_time(), time.perf_counter()
        for exchange in exchanges:
            while sidecar.capture.writer.full():  # noqa: ASYNC110 - as the proxy looks
                await asyncio.sleep(0.001)
            sidecar.capture.writer.record(exchange)
        while sidecar.waiting:  # noqa: ASYNC110
            await asyncio.sleep(0.005)
        took = time.process_time() - cpu, time.perf_counter() - wall
        await sidecar.stop()
    return took[0] / len(exchanges), took[1] / len(exchanges)


async def _measure(calls: int, rounds: int) -> None:
    rng = random.Random(0)
    exchanges = [_exchange(number, rng) for number in range(calls)]
    kinds = {"plain": [], "encrypted": [base64.b64encode(os.urandom(32)).decode()]}
    took: dict[str, list[tuple[float, float]]] = {kind: [] for kind in kinds}
    for _ in range(rounds):
        for kind, keys in kinds.items():
            took[kind].append(await _round(exchanges, keys))
    print("| store | CPU µs a call | calls a second of CPU | calls a second |")
    print("|---|---|---|---|")
    for kind, times in took.items():
        cpu, wall = (statistics.median(one) for one in zip(*times, strict=True))
        print(f"| {kind} | {cpu * 1e6:.0f} | {1 / cpu:,.0f} | {1 / wall:,.0f} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    asyncio.run(_measure(given.calls, given.rounds))


if __name__ == "__main__":
    main()
