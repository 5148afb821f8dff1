"""Capture, put together: from what the proxy tells of to calls in the store.

CaptureWriter ─▶ Recorder      and between them a backlog, which bounds what is written and not read yet
"""

from __future__ import annotations

from slipstream.capture.backlog import Backlog
from slipstream.capture.call_spans import CallSpans
from slipstream.capture.conversations import Conversations
from slipstream.capture.imported import Importer
from slipstream.capture.recorder import Recorder
from slipstream.capture.redacted import ExchangeRedactor
from slipstream.capture.retries import Retries
from slipstream.capture.room import TICK as ROOM_TICK
from slipstream.capture.room import StoreRoom
from slipstream.capture.throttle import RecorderThrottle, waited_for_cpu
from slipstream.capture.writer import CaptureWriter
from slipstream.redaction.redactor import Redactor
from slipstream.selection import Selector
from slipstream.stages.context import Context, Stage


class Capture:
    """The stages of capture.

    Args:
        selector: decides tasks that are complete with their first call, where it is quick.

    Attributes:
        writer: takes the exchanges that the proxy copied.
        recorder: makes calls of them.
        importer: makes calls of what did not pass here.
        stages: their loops.
        workers: all loops.
    """

    def __init__(self, context: Context, redactor: Redactor, selector: Selector) -> None:
        settings = context.settings
        self._context = context
        self._backlog = Backlog(settings.capture.backlog_bytes)
        self._room = StoreRoom(context.database, context.metrics, settings.limits.store_bytes)
        exchanges = ExchangeRedactor(
            redactor,
            settings.capture.max_body,
            context.parsing,
            settings.access.identity_headers,
            skip_store_false=settings.capture.store_false == "skip",
        )
        spans = CallSpans(context, redactor)
        self.writer = CaptureWriter(context, self._backlog, exchanges, self._room, spans)
        self.recorder = Recorder(
            context,
            self._backlog,
            RecorderThrottle(self.writer.behind, waited_for_cpu),
            Conversations(settings.capture.chains),
            Retries(settings.capture.chains),
            decide=selector.decide if selector.quick else None,
        )
        self.importer = Importer(exchanges, context.parsing, settings.capture.chains)
        self.stages = (
            context.stages.add(Stage.CAPTURE_WRITER, self.writer.step),
            context.stages.add(Stage.RECORDER, self.recorder.step),
        )
        self.workers = (*self.stages, context.timers.stage("room", ROOM_TICK, self._room.step))

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
        await self._backlog.open(self._context.database, sidecar)
        self.recorder.registered()

    def adopted(self) -> None:
        """Some of what another sidecar captured is to be read here, or may be."""
        self._backlog.adopted()
        self._context.stages.wake(Stage.RECORDER)
