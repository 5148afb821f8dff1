"""The way of finished exchanges from a worker of the proxy to the training side: a Unix socket, in batches.

A frame is the length of its head (4 bytes, big-endian), the head (MessagePack), the request's body, the answer's. The
bodies' pieces go to the kernel as they are. What the training side does not take in time is dropped and counted by
the worker: its queue is the one that `capture.queue` bounds.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import msgspec
import structlog

from slipstream.proxy.metrics import ProxyMetrics
from slipstream.proxy.sample import Sample
from slipstream.proxy.tap import Exchange, ExchangeHead, Recording, with_bodies

_log = structlog.get_logger(__name__)

_PAUSE = 0.005
"""Seconds between two batches. Short, so that of two calls of a conversation that went through different workers the
first is told first; long enough that a busy worker makes few system calls."""

_BATCH = 64
"""Exchanges written at once: some 200 µs of the event loop's time."""

_BUFFERED = 1024 * 1024
"""Bytes that wait in the transport, and after which a batch ends; the others wait in the queue, where they can be
counted."""

_MUCH = 4 * 1024 * 1024
"""Bytes in the queue whose memory is worth being given back once they are gone."""

_RETRY = 0.5
"""Seconds until a training side that was not there is looked for again."""


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(tuple[ExchangeHead, int | None, int | None]).decode
"""The head of an exchange, and the bytes of its bodies; None for a body that is not there."""


def frame(recording: Recording) -> list[bytes]:
    """The frame of an exchange, in parts."""
    request, response = recording.request, recording.response
    sizes = None if request.pieces is None else request.size, None if response.pieces is None else response.size
    head = _encode((recording.head, *sizes))
    return [len(head).to_bytes(4, "big") + head, *(request.pieces or ()), *(response.pieces or ())]


class Sender(asyncio.Protocol):
    """A worker's end: the tap of its proxy.

    Args:
        path: of the training side's socket.
        sample: the calls that `capture.rate` takes.
        limit, limit_bytes: bounds of the queue.
    """

    def __init__(self, path: Path, metrics: ProxyMetrics, *, sample: Sample, limit: int, limit_bytes: int) -> None:
        self._path = path
        self._metrics = metrics
        self.draw = sample.draw
        self._limit = limit
        self._limit_bytes = limit_bytes
        self._queue: deque[Recording] = deque()
        self._bytes = 0
        self._had_much = False
        self._transport: asyncio.Transport | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._may_write = True
        self._timer: asyncio.TimerHandle | None = None
        self._sent_at = 0.0
        self._emptied = asyncio.Event()
        self._lost = asyncio.Event()
        self._ending = False
        """The training side reads what was sent, and no more."""

    def record(self, recording: Recording) -> None:
        """Take an exchange, or drop it when the queue is full. Never waits."""
        size = recording.size
        if recording.crowded_out or len(self._queue) >= self._limit or self._bytes + size > self._limit_bytes:
            trace = recording.head.trace
            if trace is not None:
                self._metrics.trace_dropped()
            if trace is None or not trace.alone:
                self._metrics.dropped(time.time())
            return
        self._queue.append(recording)
        self._bytes += size
        self._metrics.waiting(len(self._queue))
        if self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_at(max(loop.time(), self._sent_at + _PAUSE), self._send)

    def relieved(self) -> bool:
        """Return True once, when a long queue has become empty."""
        if not self._had_much or self._queue:
            return False
        self._had_much = False
        return True

    async def drain(self, seconds: float) -> None:
        """Hand everything to the training side and disconnect, in at most so long."""
        self._send()
        try:
            async with asyncio.timeout(seconds):
                while self._queue:
                    self._emptied.clear()
                    await self._emptied.wait()
                if self._transport is not None:
                    self._transport.close()  # after what is in its buffer
                    await self._lost.wait()
        except TimeoutError:
            _log.warning("captures_not_handed_over", exchanges=len(self._queue))
            if self._transport is not None:
                self._transport.abort()

    def _send(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self._queue:
            return
        if self._transport is None:
            if self._connecting is None:
                self._connecting = asyncio.get_running_loop().create_task(self._connect())
            return
        if not self._may_write or self._ending:
            return
        loop = asyncio.get_running_loop()
        buffers: list[bytes] = []
        left = self._bytes
        if left >= _MUCH:
            self._had_much = True
        for _ in range(_BATCH):
            recording = self._queue.popleft()
            self._bytes -= recording.size
            buffers += frame(recording)
            if not self._queue or left - self._bytes > _BUFFERED:
                break
        self._metrics.waiting(len(self._queue))
        self._sent_at = loop.time()
        self._transport.writelines(buffers)
        if not self._queue:
            self._emptied.set()
        elif self._may_write:
            self._timer = loop.call_later(0, self._send)  # traffic goes first

    async def _connect(self) -> None:
        try:
            await asyncio.get_running_loop().create_unix_connection(lambda: self, str(self._path))
        except OSError:
            await asyncio.sleep(_RETRY)  # it is being started again
        finally:
            self._connecting = None
        self._send()

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=_BUFFERED)
        self._may_write, self._ending = True, False
        self._lost.clear()

    def eof_received(self) -> None:
        self._ending = True  # the transport closes behind what is in its buffer; the next one is the successor's

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._lost.set()
        if self._queue and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_RETRY, self._send)

    def pause_writing(self) -> None:
        self._may_write = False

    def resume_writing(self) -> None:
        self._may_write = True
        self._send()


class Receivers:
    """The training side's end of all workers' connections.

    Args:
        record: takes each exchange.
        full: whether it takes no more for now.
    """

    def __init__(self, record: Callable[[Exchange], None], full: Callable[[], bool]) -> None:
        self._record = record
        self._full = full
        self._open: set[_Receiver] = set()
        self._none = asyncio.Event()

    def connected(self) -> _Receiver:
        """A protocol for the next connection."""
        return _Receiver(self._record, self._full, self._opened, self._closed)

    def end(self) -> None:
        """Have each worker close its connection behind what it has sent; it keeps the rest for the next process."""
        for receiver in self._open:
            receiver.end()

    async def gone(self) -> None:
        """Wait until no worker is connected, and what they sent is taken."""
        while self._open:
            self._none.clear()
            await self._none.wait()

    def _opened(self, receiver: _Receiver) -> None:
        self._open.add(receiver)

    def _closed(self, receiver: _Receiver) -> None:
        self._open.discard(receiver)
        self._none.set()


class _Receiver(asyncio.Protocol):
    """One worker's connection."""

    _LOOK_AGAIN = 0.02

    def __init__(
        self,
        record: Callable[[Exchange], None],
        full: Callable[[], bool],
        opened: Callable[[_Receiver], None],
        closed: Callable[[_Receiver], None],
    ) -> None:
        self._record = record
        self._full = full
        self._opened = opened
        self._closed = closed
        self._buffer = bytearray()
        self._transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self._opened(self)

    def end(self) -> None:
        """Say that no more is taken than was sent."""
        if not self._transport.is_closing():
            self._transport.write_eof()

    def connection_lost(self, exc: Exception | None) -> None:
        self._closed(self)

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        self._take()
        if self._full():
            self._transport.pause_reading()
            asyncio.get_running_loop().call_later(self._LOOK_AGAIN, self._go_on)

    def _go_on(self) -> None:
        if self._transport.is_closing():
            return
        if self._full():
            asyncio.get_running_loop().call_later(self._LOOK_AGAIN, self._go_on)
        else:
            self._transport.resume_reading()

    def _take(self) -> None:
        """Hand on all frames that are whole."""
        buffer, at = self._buffer, 0
        with memoryview(buffer) as view:
            while len(buffer) - at >= 4:
                body = at + 4 + int.from_bytes(view[at : at + 4], "big")
                if len(buffer) < body:
                    break
                head, request_size, response_size = _decode(view[at + 4 : body])
                answer = body + (request_size or 0)
                end = answer + (response_size or 0)
                if len(buffer) < end:
                    break
                request = None if request_size is None else bytes(view[body:answer])
                response = None if response_size is None else bytes(view[answer:end])
                self._record(with_bodies(head, request, response))
                at = end
        del buffer[:at]
