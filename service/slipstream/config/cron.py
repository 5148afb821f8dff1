"""Cron expressions and time zones, as operators write them.

cronsim reads them as Debian's cron does: 0 and 7 are Sunday, and a day of the month *or* of the week is enough if both
are given; at a change of the clocks a time that does not exist is not lost, and one that comes twice counts once.
"""

from __future__ import annotations

from datetime import UTC, datetime
from functools import cache
from typing import Annotated
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError
from pydantic import AfterValidator

_FIELDS = 5  # minute, hour, day of month, month, day of week; cronsim would take seconds as well


def next_time(expression: str, timezone: str, after: datetime) -> datetime:
    """Return the first time of the expression after a time."""
    return next(CronSim(expression, after.astimezone(ZoneInfo(timezone))))


@cache
def longest_gap(expression: str, timezone: str, times: int = 100) -> float:
    """Return the longest time between two of the next times, in seconds."""
    previous, longest = datetime.now(UTC), 0.0
    for _ in range(times):
        following = next_time(expression, timezone, previous)
        longest, previous = max(longest, (following - previous).total_seconds()), following
    return longest


def _expression(text: str) -> str:
    expected = 'a cron expression of five fields such as "*/5 * * * *"'
    if len(text.split()) != _FIELDS:
        raise ValueError(expected)
    try:
        next_time(text, "UTC", datetime.now(UTC))
    except CronSimError as error:
        raise ValueError(f"{expected} ({error})") from error
    except StopIteration as error:
        raise ValueError(f"{expected} (this one has no next time)") from error
    return text


def _timezone(text: str) -> str:
    try:
        ZoneInfo(text)
    except (OSError, ValueError, KeyError) as error:  # a directory, a path, a name that is not there
        raise ValueError('a time zone such as "UTC" or "Europe/Berlin"') from error
    return text


CronExpression = Annotated[str, AfterValidator(_expression)]
TimeZone = Annotated[str, AfterValidator(_timezone)]
