"""Write captured exchanges to the store in batches, redacted and otherwise as they came; the recorder reads them later.

record ─▶ queue ─▶ checked by its head, redacted ─▶ the table `captured` ─▶ Recorder
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Sequence

import structlog

from slipstream.capture.backlog import Backlog
from slipstream.capture.call_spans import CallSpans
from slipstream.capture.redacted import ExchangeRedactor, RedactedExchange, outcome_of, pack_exchanges
from slipstream.capture.room import StoreRoom
from slipstream.dialects.body import NotCaptured, header_value
from slipstream.http.encodings import Undecodable, decoded
from slipstream.proxy.sample import Draw, Sample
from slipstream.proxy.tap import Exchange
from slipstream.stages.context import Context, Stage
from slipstream.store import captured, sidecars
from slipstream.store.captured import CaptureBatch

_log = structlog.get_logger(__name__)

_BATCH = 1000
"""Exchanges written in one transaction: enough to share its cost, few enough to keep feedback's writes prompt."""

_ROW = 250
"""Exchanges in one row of the store, ..."""

_ROW_BYTES = 16 * 1024**2
"""... and bytes of their bodies, where it is more than one: far below what a row can hold."""

_GATHER = 0.05
"""Seconds that the first exchanges wait for others, because a transaction costs as much as keeping fifty calls. What
is said of an answer in the meantime waits for it."""

_PAUSE = 0.25
"""Seconds between two transactions, unless a whole batch waits: each makes the recorder begin three more, which at ten
calls a second are nearly all that a call costs."""


_NOTHING_KEPT = ("opted_out", "store_full")
"""Reasons for which not even the outcome of a call is stored."""


class CaptureWriter:
    """Takes exchanges from the proxy without ever waiting, and writes what is to be kept of them."""

    def __init__(
        self, context: Context, backlog: Backlog, redactor: ExchangeRedactor, room: StoreRoom, spans: CallSpans
    ) -> None:
        self._stages = context.stages
        self._database = context.database
        self._metrics = context.metrics
        self._backlog = backlog
        self._redactor = redactor
        self._room = room
        self._spans = spans
        settings = context.settings
        self._captures = settings.capture.rate > 0
        self._samples = settings.capture.rate < 1
        self._sample = Sample(settings.capture.rate, settings.access.identity_headers)
        self._max_body = settings.capture.max_body
        self._limit_bytes = settings.capture.queue_bytes
        self._queue: deque[Exchange] = deque()
        self._bytes = 0
        self._wrote_at = -_PAUSE
        self._enough = asyncio.Event()
        self._unwritten: list[tuple[int, bytes]] = []
        """For each batch: the number of its exchanges, and these in packed form."""
        self._tried: int | None = None
        """The id of this sidecar when they may have been written, though nobody heard of it."""

    def record(self, exchange: Exchange) -> None:
        """Take an exchange. Never waits; whoever sees that it is `full` waits."""
        self._queue.append(exchange)
        self._bytes += _size(exchange)
        if self.behind():
            self._enough.set()
        self._stages.wake(Stage.CAPTURE_WRITER)

    def full(self) -> bool:
        """Return whether the queue is full: exchanges that are not taken yet are better counted where they wait."""
        return len(self._queue) >= 2 * _BATCH or self._bytes >= self._limit_bytes or self._backlog.full

    def behind(self) -> bool:
        """Return whether a whole batch waits."""
        return len(self._queue) >= _BATCH or self._bytes >= self._limit_bytes

    @property
    def waiting(self) -> int:
        """Exchanges that are not written yet."""
        return len(self._queue) + sum(number for number, _ in self._unwritten)

    async def step(self) -> bool:
        """Write a batch. Returns True when more is waiting."""
        if not self._unwritten and self._queue:
            if not self.behind():
                self._enough.clear()
                with contextlib.suppress(TimeoutError):
                    pause = self._wrote_at + _PAUSE - time.monotonic()
                    await asyncio.wait_for(self._enough.wait(), max(pause, _GATHER))
                self._wrote_at = time.monotonic()
            exchanges = [self._queue.popleft() for _ in range(min(_BATCH, len(self._queue)))]
            self._bytes -= sum(map(_size, exchanges))
            # the control API shares this event loop
            self._unwritten = await asyncio.to_thread(self._pack, exchanges)
        if self._unwritten:
            await self._write(self._backlog.owner)
        return bool(self._queue)

    async def _write(self, owner: int) -> None:
        """Write what is kept, beside others: it is this sidecar's alone."""
        if self._tried not in (None, owner):
            # It may have been written in the name that this sidecar lost, and be another's by now: rather lost than
            # captured twice.
            exchanges = sum(number for number, _ in self._unwritten)
            _log.error("captured_lost_with_the_lease", exchanges=exchanges)
            self._metrics.dropped.labels("lease_lost").inc(exchanges)
        else:
            first = self._backlog.last_id + 1
            batches = [CaptureBatch(first + at, *some) for at, some in enumerate(self._unwritten)]
            async with self._database.write(alone=False) as session:
                await sidecars.hold(session, owner)
                await captured.add(session, owner, batches, again=self._tried is not None)
                self._tried = owner  # from here on it may come to its end, and nobody hear of it
            self._backlog.added(owner, batches)
            self._stages.wake(Stage.RECORDER)
        self._unwritten, self._tried = [], None

    def _pack(self, exchanges: Sequence[Exchange]) -> list[tuple[int, bytes]]:
        packed: list[tuple[int, bytes]] = []
        some: list[RedactedExchange] = []
        size = 0
        for exchange in exchanges:
            if (redacted := self._redacted(exchange)) is not None:
                more = len(redacted.request) + len(redacted.answer)
                if some and (len(some) == _ROW or size + more > _ROW_BYTES):
                    packed.append((len(some), pack_exchanges(some)))
                    some, size = [], 0
                some.append(redacted)
                size += more
        return [*packed, (len(some), pack_exchanges(some))] if some else packed

    def _redacted(self, exchange: Exchange) -> RedactedExchange | None:
        if exchange.trace is not None and exchange.trace.alone:
            self._spans.make(exchange, captured=False)
            return outcome_of(exchange) if self._captures else None
        if exchange.served is not None and exchange.served.alone:
            return outcome_of(exchange)  # the worker counted that it was left out
        redacted: RedactedExchange | NotCaptured
        try:
            draw = self._draw(exchange) if self._samples and not exchange.drawn else Draw.TAKEN
            if draw is Draw.LEFT_OUT:
                self._metrics.not_captured.labels("rate").inc()
                self._spans.make(exchange, captured=False)
                return None
            redacted = NotCaptured("store_full") if self._room.full else self._redactor.redact(exchange)
            if isinstance(redacted, RedactedExchange):
                redacted.held = draw is Draw.HELD
        except Exception:  # noqa: BLE001 - the others of its batch are kept all the same
            _log.exception("capture_unreadable")
            redacted = NotCaptured("unreadable")
        if isinstance(redacted, NotCaptured):
            self._metrics.not_captured.labels(redacted.reason).inc()
            if redacted.reason != "opted_out":
                self._spans.make(exchange, captured=False)
            return None if redacted.reason in _NOTHING_KEPT else outcome_of(exchange)
        self._spans.make(exchange, captured=True)
        return redacted

    def _draw(self, exchange: Exchange) -> Draw:
        """Say whether `capture.rate` takes a call, where the worker could not tell."""
        headers, body = exchange.request_headers, exchange.request_body
        if body is None:
            return Draw.TAKEN  # it is counted by what is wrong with it
        try:
            body = decoded(body, header_value(headers, b"content-encoding"), self._max_body)
        except Undecodable:
            return Draw.TAKEN
        plain = [field for field in headers if field[0].lower() != b"content-encoding"]
        about = exchange.method, exchange.path, plain
        return self._sample.draw(*about, (body,), True, exchange.tenant, exchange.key)


def _size(exchange: Exchange) -> int:
    return len(exchange.request_body or b"") + len(exchange.response_body or b"")
