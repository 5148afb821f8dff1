"""Triggers of a delivery: the timer, enough ready groups, or the end of the sidecar.

Sidecars that share a store have a timer each, and one interval: it begins with the last delivery of any of them. By a
schedule they all fire at the same time, and the first one to come delivers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

import structlog

from slipstream.delivery.committer import Committer
from slipstream.delivery.delivered import Delivered
from slipstream.errors import ExplorerError
from slipstream.stages.context import Context, Stage
from slipstream.stages.timers import Timer
from slipstream.store import commits, ready_groups

_log = structlog.get_logger(__name__)

_EARLY = 0.01
"""Seconds by which a timer may run out before the interval has: it is computed in another clock's ticks."""


class CommitTriggers:
    """Asks for commits that nobody asked for."""

    def __init__(self, context: Context, committer: Committer) -> None:
        self._stages = context.stages
        self._timers = context.timers
        self._database = context.database
        self._settings = context.settings.commit
        self._clock = context.clock
        self._committer = committer
        self._timer: Timer | None = None
        self._timer_ran_out = False
        self._was_left = False

    def start(self) -> None:
        """Start the timer."""
        commit = self._settings
        if commit.schedule is None:
            self._timer = self._timers.every(commit.interval, self._on_timer)
        else:
            self._timer = self._timers.cron(commit.schedule, commit.timezone, self._on_timer)

    def stop(self) -> None:
        """Stop the timer."""
        if self._timer is not None:
            self._timer.remove()
            self._timer = None

    @property
    def next_at(self) -> float | None:
        """Return the time at which the timer runs out, in Unix seconds."""
        return None if self._timer is None else self._timer.next_at

    def was_left(self) -> None:
        """A sidecar that is gone has left a delivery, which is to be ended now."""
        self._was_left = True
        self._stages.wake(Stage.COMMITTER)

    async def step(self) -> bool:
        """Commit because the timer ran out, or because enough is ready; end a delivery that one left which is gone."""
        await self._committer.let_go()
        if self._was_left:
            await self._done("left", self._committer.resume())
            self._was_left = False  # only now: where the store was away, it is tried again
        if self._timer_ran_out:
            await self._on_time()
            self._timer_ran_out = False
        limit = self._settings.max_pending
        if limit is not None:
            async with self._database.read() as session:
                ready = await ready_groups.ready_experiences(session)
            if ready >= limit:
                await self._done("size", self._committer.commit("size", limit, wait=False))
        return False

    async def _on_time(self) -> None:
        minimum = self._settings.min_experiences
        if self._settings.schedule is not None:
            await self._done("schedule", self._committer.commit("schedule", minimum, wait=False))
            return
        async with self._database.read() as session:
            last = await commits.last(session)
        now, interval = self._clock(), self._settings.interval
        # a clock that was set back by more than that says nothing of when it was
        if last is not None and abs(now - last[1]) < interval - _EARLY:
            if self._timer is not None:
                self._timer.fire_in(min(last[1], now) + interval - now)
        else:
            await self._done("interval", self._committer.commit("interval", minimum, wait=False))

    async def last(self, seconds: float) -> None:
        """Commit because the sidecar ends, if that is wanted and done in time."""
        if not self._settings.on_shutdown:
            return
        try:
            async with asyncio.timeout(seconds):
                await self._done("shutdown", self._committer.commit("shutdown"))
        except TimeoutError:
            _log.warning("commit_left_for_the_next_start")

    def _on_timer(self) -> None:
        self._timer_ran_out = True
        self._stages.wake(Stage.COMMITTER)

    async def _done(self, trigger: str, delivering: Awaitable[Delivered]) -> None:
        try:
            await delivering
        except ExplorerError as error:
            _log.warning("commit_postponed", trigger=trigger, reason=str(error))
