"""From the share in the store to the page that the workers of this host read."""

from __future__ import annotations

import asyncio
import time

import structlog

from slipstream.explorer.lane import LaneClient, LaneState
from slipstream.serving.page import ServingPage, Split
from slipstream.stages.context import Context, Stage
from slipstream.stages.worker import Worker
from slipstream.store import audit, experiments, serving
from slipstream.store.audit import Action, Author, Write
from slipstream.store.serving import Serving

_log = structlog.get_logger(__name__)

_LOOK = 0.05
"""Seconds between two looks at a store that others change too, while a share is set: a kill of theirs holds here within
a tenth of a second."""

_ASK = 1.0
"""Seconds between two questions to the lane, and between two looks while no share is set."""

_SENT = 0.05
"""Seconds that a kill waits after the page was written, for requests that a worker had read the page for before that
and was about to send."""

_NOT_READ = "the share was not read yet"


class ServingWriter:
    """Writes the page whenever the share or the lane changes. No other process of the host writes it.

    Users go to the lane while it answers, and shows the version that the share is for. It is asked each second, beside
    the looks at the store, which it must not hold up. A page that a process left behind holds until this one has asked.

    Args:
        page: None where `serving.mode` is off or there is no lane.

    Attributes:
        now: the share, as last read.
        lane: what the lane said last; None before that, and without one.
        workers: its loops; none without a page.
    """

    def __init__(self, context: Context, page: ServingPage | None) -> None:
        settings = context.settings.serving
        self._database = context.database
        self._metrics = context.metrics
        self._clock = context.clock
        self._page = page
        self._settings = settings.routed
        self._client = None if settings.routed is None else LaneClient(settings.routed, context.parsing)
        self._reading = asyncio.Lock()
        self._read_at = -_ASK
        self._is_read = False
        self.now = Serving()
        self.lane: LaneState | None = None
        look = _LOOK if self._database.shared else _ASK
        self.workers: tuple[Worker, ...] = ()
        if page is not None:
            own = context.stages.add(Stage.SERVING, self.step, look)
            self.workers = own, context.timers.stage("lane", _ASK, self.ask)

    @property
    def ready(self) -> bool:
        """Return whether users may go to the lane, as far as the lane is concerned."""
        return self.reason is None

    @property
    def reason(self) -> str | None:
        """Return why no user may go to the lane, whatever the share; None if they may."""
        if self._settings is None:
            return "serving.mode is off, or there is no serving.lane"
        if not self._is_read:
            return _NOT_READ
        if self.lane is None:
            return "the lane was not asked yet"
        if self.lane.error is not None:
            return self.lane.error
        if self.now.lane is not None and self.now.lane != self._settings.base_url:
            return f"the share was set for the lane {self.now.lane}"
        if self.now.lane_step is not None and self.lane.step != self.now.lane_step:
            return f"the lane serves its step {self.lane.step}, and the share is for {self.now.lane_step}"
        return None

    def reason_for(self, now: Serving) -> str | None:
        """Return the reason, where this share is in the store: the workers of this host may not have it yet."""
        return self.reason if self._settings is None or now.epoch == self.now.epoch else _NOT_READ

    @property
    def steps(self) -> tuple[int | None, int | None]:
        """Return the step that the lane serves, and the one that the share is for; None for each that is not known."""
        return None if self.lane is None else self.lane.step, self.now.lane_step if self._is_open else None

    async def step(self) -> bool:
        """Look at the store where others may have changed it, and write the page."""
        if self._page is None:
            return False
        if self._page.unnoted:
            await self._note_kill()
        clock = time.monotonic()
        if not self._database.shared or self._is_open or clock - self._read_at >= _ASK:
            self._read_at = clock
            await self._read()
        self._write()
        return False

    async def ask(self) -> bool:
        """Ask the lane, and write the page by what it says."""
        if self._client is not None:
            before = self.reason
            self.lane = await self._client.state(with_step=self.now.lane_step is not None)
            if self.reason != before and self.now.version is not None:
                _log.warning("lane_not_ready" if self.reason else "lane_ready", reason=self.reason)
            self._write()
        return False

    async def hold(self, *, revived: bool = False) -> Serving:
        """Read the share that was just stored and have the workers of this host go by it; returns it.

        Args:
            revived: a kill was taken back, also one of which the store did not know.
        """
        await self._read()
        if revived and self._page is not None:
            self._page.release(unnoted=True)
        self._write()
        if self._page is not None and self.now.killed:
            await asyncio.sleep(_SENT)
        return self.now

    def close(self) -> None:
        """Close the connections to the lane."""
        if self._client is not None:
            self._client.close()

    @property
    def _is_open(self) -> bool:
        return self.now.share > 0 and not self.now.killed

    async def _read(self) -> None:
        async with self._reading:
            async with self._database.read() as session:
                now = await serving.current(session)
            self.now, self._is_read = now, True

    async def _note_kill(self) -> None:
        """Store a kill that a worker took while nothing else was there to note it."""
        async with self._reading:  # else a reading of before could end after it, and open the page again
            async with self._database.write() as session:
                now = await serving.current(session)
                if not now.killed:
                    now = await serving.kill(session, self._clock())
                    write = Write(Action.SERVING_KILL, str(now.epoch))
                    await audit.note(session, write, Author(None, None), self._clock())
                    await experiments.killed(session, Author(None, None), self._clock())
                    now = await serving.current(session)
            self.now = now

    def _write(self) -> None:
        if not self._is_read:
            return  # what a process of before wrote holds until then
        now, lane = self.now, self.lane
        if self._page is not None:
            if now.killed:
                self._page.stop(noted=True)
            else:
                self._page.release(unnoted=False)
            if lane is not None or not self._is_open:  # else what is written there holds until the lane was asked
                self._page.write(self._split(now, lane))
        self._metrics.serving_share.set(now.share if self._is_open else 0)
        self._metrics.serving_version.set(now.version or 0)
        self._metrics.serving_ready.set(self.ready)
        self._metrics.serving_killed.set(now.killed)

    def _split(self, now: Serving, lane: LaneState | None) -> Split | None:
        if not self._is_open or not self.ready or now.version is None or self._settings is None:
            return None
        if lane is None or lane.model is None:
            return None
        return Split(now.epoch, now.version, now.share, now.salt, lane.model, self._settings.base_url)
