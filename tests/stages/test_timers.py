"""Timers that wake stages, and what a clock that is set while they run changes about them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from datetime import datetime, timedelta, tzinfo
from zoneinfo import ZoneInfo

import apscheduler.schedulers.base
import pytest
from serving import until

from slipstream.stages import timers as module
from slipstream.stages.timers import Timers


class Clock:
    """The time of day, which a test can set. The monotonic clock is left alone."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.ahead = 0.0
        monkeypatch.setattr(module, "time_of_day", self.now)
        clock = self

        class Shifted(datetime):
            @classmethod
            def now(cls, tz: tzinfo | None = None) -> datetime:
                return datetime.now(tz) + timedelta(seconds=clock.ahead)

        monkeypatch.setattr(module, "datetime", Shifted)
        monkeypatch.setattr(apscheduler.schedulers.base, "datetime", Shifted)

    def now(self) -> float:
        return time.time() + self.ahead


class Fired:
    def __init__(self) -> None:
        self.at: list[float] = []

    def __call__(self) -> None:
        self.at.append(time.monotonic())


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


@pytest.fixture
async def timers() -> AsyncIterator[Timers]:
    made = Timers()
    yield made
    made.stop()


@pytest.mark.sampled(1)
@pytest.mark.parametrize("ahead", [0.0, 3600.0, -3600.0, 365 * 86400.0])
async def test_an_interval_is_measured_by_the_monotonic_clock(clock: Clock, timers: Timers, ahead: float) -> None:
    timers.start()
    short, long, began = Fired(), Fired(), time.monotonic()
    timers.every(0.2, short)
    timers.every(1.5, long)
    clock.ahead = ahead
    await until(lambda: long.at)
    assert 1.4 < long.at[0] - began < 4, "the look at the clocks, each second, sets it anew"
    assert len(short.at) >= 3


@pytest.mark.slow
async def test_the_next_time_follows_a_clock_that_was_set(clock: Clock, timers: Timers) -> None:
    timers.start()
    timer = timers.every(300, Fired())
    assert timer.next_at == pytest.approx(clock.now() + 300, abs=1)
    clock.ahead = -7200.0
    await until(lambda: timer.next_at < time.time())
    assert timer.next_at == pytest.approx(clock.now() + 300, abs=2)


async def test_a_cron_expression_fires_at_its_times_and_once_for_those_that_a_jump_passed(
    clock: Clock, timers: Timers
) -> None:
    timers.start()
    fired = Fired()
    timer = timers.cron("0 3 * * 0", "Europe/Berlin", fired)  # Sundays; 0 is Monday for APScheduler's own
    at = datetime.fromtimestamp(timer.next_at).astimezone(ZoneInfo("Europe/Berlin"))
    assert (at.isoweekday(), at.hour, at.minute) == (7, 3, 0)
    clock.ahead = 30 * 86400.0
    await until(lambda: fired.at)
    await asyncio.sleep(0)
    assert len(fired.at) == 1
    assert timer.next_at > clock.now()

    clock.ahead = -30 * 86400.0
    await until(lambda: timer.next_at < time.time())
    assert len(fired.at) == 1


async def test_a_removed_timer_does_not_fire(timers: Timers) -> None:
    timers.start()
    removed, other = Fired(), Fired()
    timers.every(0.05, removed).remove()
    timers.every(0.15, other)
    await until(lambda: other.at)
    assert not removed.at
