"""Capture, put together: from what the proxy tells of to calls in the store.

CaptureWriter ─▶ Recorder      and between them a backlog, which bounds what is written and not read yet
"""

from __future__ import annotations

import time
from collections.abc import Callable

from slipstream.capture.backlog import Backlog
from slipstream.capture.conversations import Conversations
from slipstream.capture.recorder import Recorder
from slipstream.capture.redacted import ExchangeRedactor
from slipstream.capture.retries import Retries
from slipstream.capture.room import TICK as ROOM_TICK
from slipstream.capture.room import StoreRoom
from slipstream.capture.throttle import RecorderThrottle, waited_for_cpu
from slipstream.capture.writer import CaptureWriter
from slipstream.metrics import Metrics
from slipstream.redaction.redactor import Redactor
from slipstream.selection import Selector
from slipstream.settings.sidecar import Settings
from slipstream.stages.timers import Timers
from slipstream.stages.worker import TICK, Worker
from slipstream.store.database import Database
from slipstream.store.recording import Added


class Capture:
    """The stages of capture.

    Args:
        selector: decides tasks that are complete with their first call, where it is quick.
        stored: told what was stored.

    Attributes:
        writer: what the proxy tells of each exchange.
        recorder: makes calls of what is kept.
        stages: their loops.
        workers: all loops.
    """

    def __init__(
        self,
        settings: Settings,
        database: Database,
        redactor: Redactor,
        selector: Selector,
        metrics: Metrics,
        timers: Timers,
        *,
        stored: Callable[[Added], None],
    ) -> None:
        self._database = database
        self._backlog = Backlog(settings.capture.backlog_bytes)
        self._room = room = StoreRoom(database, metrics, settings.limits.store_bytes)
        self.writer = CaptureWriter(
            database,
            self._backlog,
            ExchangeRedactor(redactor, settings.capture.max_body, settings.access.identity_headers),
            metrics,
            store_full=lambda: room.full,
            limit_bytes=settings.capture.queue_bytes,
            written=lambda: self._recording.wake(),
            wake=lambda: self._taking.wake(),
        )
        self.recorder = Recorder(
            database,
            self._backlog,
            RecorderThrottle(self.writer.behind, waited_for_cpu),
            Conversations(settings.capture.chains),
            Retries(settings.capture.chains),
            metrics,
            decide=selector.decide if selector.quick else None,
            rate=settings.capture.rate,
            clock=time.time,
            stored=stored,
        )
        self._taking = Worker("writer", self.writer.step, TICK)
        self._recording = Worker("recorder", self.recorder.step, TICK)
        self.stages = (self._taking, self._recording)
        self.workers = (*self.stages, timers.stage("room", ROOM_TICK, room.step))

    @property
    def store_full(self) -> bool:
        """Return whether new calls are refused because the store is full."""
        return self._room.full

    @property
    def waiting(self) -> int:
        """Exchanges that came here and are not stored as calls yet."""
        return self.writer.waiting + self._backlog.exchanges

    async def registered(self, sidecar: int) -> None:
        """From here on it writes in the name of this sidecar."""
        await self._backlog.open(self._database, sidecar)

    def adopted(self) -> None:
        """Some of what another sidecar captured is to be read here, or may be."""
        self._backlog.adopted()
        self._recording.wake()
