"""From the proxy's tap to the store, as little as can be done to a call: what is done with it comes when there is time.

record ─▶ queue ─▶ kept: checked by its head, redacted ─▶ the table `captured` ─▶ Recorder
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Sequence

import structlog

from slipstream.capture.backlog import Backlog
from slipstream.capture.body import NotCaptured
from slipstream.capture.kept import Keeper, Kept, pack_kept
from slipstream.metrics import Metrics
from slipstream.proxy.tap import Exchange
from slipstream.store import captured
from slipstream.store.captured import Parcel
from slipstream.store.database import Database

_log = structlog.get_logger(__name__)

_BATCH = 1000
"""Exchanges written in one transaction: enough to share its cost, few enough to keep feedback's writes prompt."""

_PARCEL = 250
"""Exchanges in one row of the store, ..."""

_PARCEL_BYTES = 16 * 1024**2
"""... and bytes of their bodies, where it is more than one: far below what a row can hold."""

_GATHER = 0.05
"""Seconds that the first exchanges wait for others, because a transaction costs as much as keeping fifty calls. What
is said of an answer in the meantime waits for it."""


class Intake:
    """Takes exchanges from the proxy without ever waiting, and writes what is to be kept of them.

    Args:
        limit_bytes: of bodies that are enough to be waiting here.
        written: called when there is something to be read.
        wake: called when there is something to be written.
    """

    def __init__(
        self,
        database: Database,
        backlog: Backlog,
        keeper: Keeper,
        metrics: Metrics,
        *,
        limit_bytes: int,
        written: Callable[[], None],
        wake: Callable[[], None],
    ) -> None:
        self._database = database
        self._backlog = backlog
        self._keeper = keeper
        self._metrics = metrics
        self._limit_bytes = limit_bytes
        self._written = written
        self._wake = wake
        self._queue: deque[Exchange] = deque()
        self._bytes = 0
        self._enough = asyncio.Event()
        self._unwritten: list[Parcel] = []
        self._tried = False

    def record(self, exchange: Exchange) -> None:
        """Take an exchange. Never waits; whoever sees that it is `full` waits."""
        self._queue.append(exchange)
        self._bytes += _size(exchange)
        if self.behind():
            self._enough.set()
        self._wake()

    def full(self) -> bool:
        """Whether enough is here: what is not taken yet is better counted where it waits."""
        return len(self._queue) >= 2 * _BATCH or self._bytes >= self._limit_bytes or self._backlog.full

    def behind(self) -> bool:
        """Whether a whole batch waits."""
        return len(self._queue) >= _BATCH or self._bytes >= self._limit_bytes

    @property
    def waiting(self) -> int:
        """Exchanges that are not written yet."""
        return len(self._queue) + sum(parcel.exchanges for parcel in self._unwritten)

    async def step(self) -> bool:
        """Write a batch. Returns True when more is waiting."""
        if not self._unwritten and self._queue:
            if not self.behind():
                self._enough.clear()
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._enough.wait(), _GATHER)
            batch = [self._queue.popleft() for _ in range(min(_BATCH, len(self._queue)))]
            self._bytes -= sum(map(_size, batch))
            # the control API shares this event loop
            self._unwritten = await asyncio.to_thread(self._keep, batch)
        if self._unwritten:
            try:
                async with self._database.write() as session:
                    await captured.add(session, self._unwritten, again=self._tried)
            except BaseException:
                self._tried = True
                raise
            self._backlog.added(self._unwritten)
            self._unwritten, self._tried = [], False
            self._written()
        return bool(self._queue)

    def _keep(self, batch: Sequence[Exchange]) -> list[Parcel]:
        parcels: list[Parcel] = []
        some: list[Kept] = []
        size = 0
        for exchange in batch:
            if (kept := self._kept(exchange)) is not None:
                more = len(kept.request) + len(kept.answer)
                if some and (len(some) == _PARCEL or size + more > _PARCEL_BYTES):
                    parcels.append(self._parcel(some, len(parcels)))
                    some, size = [], 0
                some.append(kept)
                size += more
        return [*parcels, self._parcel(some, len(parcels))] if some else parcels

    def _parcel(self, some: Sequence[Kept], number: int) -> Parcel:
        return Parcel(self._backlog.last_id + 1 + number, len(some), pack_kept(some))

    def _kept(self, exchange: Exchange) -> Kept | None:
        try:
            kept = self._keeper.keep(exchange)
        except Exception:  # noqa: BLE001 - the others of its batch are kept all the same
            _log.exception("capture_unreadable")
            kept = NotCaptured("unreadable")
        if isinstance(kept, NotCaptured):
            self._metrics.not_captured.labels(kept.reason).inc()
            return None
        return kept


def _size(exchange: Exchange) -> int:
    return len(exchange.request_body or b"") + len(exchange.response_body or b"")
