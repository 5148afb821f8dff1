"""Timers that wake stages: every so many seconds, or at the times of a cron expression.

APScheduler keeps them and runs them. It computes by the time of day, which can be set while the sidecar runs. So an
interval is measured here by the monotonic clock, and after a jump of the time of day all timers are set anew: without
that, a clock that was set back by an hour would stop every timer for an hour.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from time import monotonic
from time import time as time_of_day

from apscheduler.job import Job
from apscheduler.schedulers.asyncio import AsyncIOScheduler
from apscheduler.triggers.base import BaseTrigger

from slipstream.config.cron import next_time
from slipstream.stages.worker import Worker

_LOOK = 1.0
"""Seconds between two looks at the clocks."""

_JUMP = 0.5
"""Seconds by which the time of day must leave the monotonic clock between two looks to have been set."""

_EARLY = 0.01
"""Seconds by which an interval may be short: its end is computed in another clock's ticks."""


class _Interval(BaseTrigger):  # type: ignore[misc]  # APScheduler has no types
    """Fires some seconds after now. APScheduler's own lists each time that was missed: after a jump of the clock by a
    year, with a timer of a second, that takes minutes."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def get_next_fire_time(self, previous: datetime | None, now: datetime) -> datetime:
        return now + timedelta(seconds=self.seconds)


class _Cron(BaseTrigger):  # type: ignore[misc]
    """Fires at the times of a cron expression. APScheduler's own counts days of the week from Monday, unlike cron."""

    def __init__(self, expression: str, timezone: str) -> None:
        self._expression = expression
        self._timezone = timezone

    def get_next_fire_time(self, previous: datetime | None, now: datetime) -> datetime:
        return next_time(self._expression, self._timezone, now)


class Timer:
    """One timer, which calls `wake` in the event loop each time that it fires."""

    def __init__(self, scheduler: AsyncIOScheduler, trigger: BaseTrigger, wake: Callable[[], None]) -> None:
        self._trigger = trigger
        self._wake = wake
        self._due = 0.0
        self._job: Job = scheduler.add_job(
            self._fire,
            trigger,
            next_run_time=trigger.get_next_fire_time(None, datetime.now(UTC)),
            misfire_grace_time=None,
            coalesce=True,
            max_instances=1,
        )
        if isinstance(trigger, _Interval):
            self._due = monotonic() + trigger.seconds

    @property
    def next_at(self) -> float:
        """The time at which it fires next, in Unix seconds."""
        at: datetime = self._job.next_run_time
        return at.timestamp()

    def fire_in(self, seconds: float) -> None:
        """Fire after so many seconds instead of at the next time."""
        self._due = monotonic() + seconds
        self._job.modify(next_run_time=datetime.now(UTC) + timedelta(seconds=max(0.0, seconds)))

    def clock_was_set(self) -> None:
        """Compute the next time anew, for a time of day that was set. What became due by that fires once."""
        if isinstance(self._trigger, _Interval):
            self.fire_in(self._due - monotonic())
        elif self._job.next_run_time > (now := datetime.now(UTC)):
            self._job.modify(next_run_time=self._trigger.get_next_fire_time(None, now))
        else:
            self._job.modify(next_run_time=now)

    def remove(self) -> None:
        """End the timer."""
        self._job.remove()

    async def _fire(self) -> None:
        left = self._due - monotonic()
        if isinstance(self._trigger, _Interval):
            if left > _EARLY:  # the time of day was set forward, and `clock_was_set` comes only now
                self.fire_in(left)
                return
            self._due = monotonic() + self._trigger.seconds
        self._wake()


class Timers:
    """All timers of one event loop."""

    def __init__(self) -> None:
        self._scheduler = AsyncIOScheduler(timezone=UTC)
        self._timers: list[Timer] = []
        self._looking: asyncio.TimerHandle | None = None
        self._apart = 0.0

    def start(self) -> None:
        """Start the timers that there are, and those that are added later."""
        self._scheduler.start()
        self._apart = time_of_day() - monotonic()
        self._look_later()

    def stop(self) -> None:
        """End all timers."""
        if self._looking is not None:
            self._looking.cancel()
            self._looking = None
            self._scheduler.shutdown(wait=False)

    def every(self, seconds: float, wake: Callable[[], None]) -> Timer:
        """Call `wake` every so many seconds, for the first time after as many."""
        return self._added(_Interval(seconds), wake)

    def cron(self, expression: str, timezone: str, wake: Callable[[], None]) -> Timer:
        """Call `wake` at the times of a cron expression in a time zone."""
        return self._added(_Cron(expression, timezone), wake)

    def stage(self, name: str, seconds: float, step: Callable[[], Awaitable[bool]]) -> Worker:
        """Make a stage whose step is run at the start and then every so many seconds."""
        worker = Worker(name, step)
        self.every(seconds, worker.wake)
        return worker

    def _added(self, trigger: BaseTrigger, wake: Callable[[], None]) -> Timer:
        timer = Timer(self._scheduler, trigger, wake)
        self._timers.append(timer)
        return timer

    def _look_later(self) -> None:
        self._looking = asyncio.get_running_loop().call_later(_LOOK, self._look)

    def _look(self) -> None:
        apart = time_of_day() - monotonic()
        if abs(apart - self._apart) > _JUMP:
            for timer in self._timers:
                timer.clock_was_set()
        self._apart = apart
        self._look_later()
