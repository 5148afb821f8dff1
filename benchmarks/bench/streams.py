"""Many streams at once through a proxy: when the first event came, and whether the last one did."""

from __future__ import annotations

import asyncio
import gc
import itertools
import re
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import cast

import uvloop

from bench.load import LoadFailed
from bench.request import Api, stream

_numbers = itertools.count(time.time_ns() & 0xFFFFFFFFFFFF)
_LAST = re.compile(rb'"finish_reason": ?"stop"|"type": ?"(?:response.completed|message_stop)"')
_PATIENCE = 15.0
"""Seconds that streams may take longer than their pace says."""


@dataclass
class Streams:
    """Seconds to the first event of each stream that had one, and how many streams came whole."""

    first: list[float] = field(default_factory=list)
    whole: int = 0


class _Stream(asyncio.Protocol):
    def __init__(self, request: bytes, streams: Streams) -> None:
        self._request = request
        self._streams = streams
        self._tail = b""
        self._first = True
        self._whole = False
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's own is none by its class
        self._began = time.perf_counter()
        self._transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        now = time.perf_counter()
        seen = self._tail + data
        if self._first and b"data: " in seen:
            self._first = False
            self._streams.first.append(now - self._began)
        if not self._whole and _LAST.search(seen):
            self._whole = True
            self._streams.whole += 1
        if seen.endswith(b"\r\n0\r\n\r\n"):
            self._transport.close()
        self._tail = seen[-40:]

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.done.done():
            self.done.set_result(None)


async def _run(
    port: int,
    at_once: int,
    events: int,
    every_ms: int,
    opening: float,
    api: Api,
    meanwhile: Callable[[], Awaitable[None]],
) -> Streams:
    loop = asyncio.get_running_loop()
    streams = Streams()
    made = []
    other = asyncio.ensure_future(meanwhile())
    begin = loop.time()
    for number in range(at_once):
        await asyncio.sleep(begin + number * opening / at_once - loop.time())
        request = stream(events, every_ms, next(_numbers), api)
        made.append(await loop.create_connection(partial(_Stream, request, streams), "127.0.0.1", port))
    waits = asyncio.gather(*(protocol.done for _, protocol in made))
    try:
        await asyncio.wait_for(waits, events * every_ms / 1000 + _PATIENCE)
    except TimeoutError:
        for transport, _ in made:
            transport.abort()
    await other
    return streams


def run_streams(
    port: int,
    at_once: int,
    events: int,
    every_ms: int,
    *,
    opening: float,
    api: Api = Api.CHAT,
    after: float | None = None,
    look: Callable[[], None] | None = None,
) -> Streams:
    """Open `at_once` streams within `opening` seconds, and read them to their end.

    Args:
        after: seconds from the beginning to the moment at which `look` is called.

    Raises:
        LoadFailed: no stream had an event.
    """

    async def meanwhile() -> None:
        if after is not None and look is not None:
            await asyncio.sleep(after)
            look()

    gc.disable()
    try:
        streams = uvloop.run(_run(port, at_once, events, every_ms, opening, api, meanwhile))
    except OSError as error:
        raise LoadFailed(f"no connection: {error}") from error
    finally:
        gc.enable()
    if not streams.first:
        raise LoadFailed("no stream had an event")
    return streams
