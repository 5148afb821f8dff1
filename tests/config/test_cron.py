"""Cron expressions are read as cron reads them."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from pydantic import TypeAdapter, ValidationError

from slipstream.config.cron import CronExpression, TimeZone, longest_gap, next_time


def following(expression: str, after: str, timezone: str = "UTC") -> str:
    return next_time(expression, timezone, datetime.fromisoformat(after)).isoformat()


@pytest.mark.parametrize(
    ("expression", "after", "expected"),
    [
        ("*/5 * * * *", "2026-11-24T10:01:00+00:00", "2026-11-24T10:05:00+00:00"),
        ("*/5 * * * *", "2026-11-24T10:05:00+00:00", "2026-11-24T10:10:00+00:00"),
        ("0 3 * * 0", "2026-11-24T10:01:00+00:00", "2026-11-29T03:00:00+00:00"),  # a Sunday, and so is 7
        ("0 3 * * 7", "2026-11-24T10:01:00+00:00", "2026-11-29T03:00:00+00:00"),
        ("0 3 * * 1-5", "2026-11-28T10:01:00+00:00", "2026-11-30T03:00:00+00:00"),
        ("0 3 1 * mon", "2026-11-24T10:01:00+00:00", "2026-11-30T03:00:00+00:00"),  # one of the two is enough
    ],
)
def test_the_next_time(expression: str, after: str, expected: str) -> None:
    assert following(expression, after) == expected


def test_a_change_of_the_clocks_loses_no_time_and_repeats_none() -> None:
    berlin = "Europe/Berlin"
    assert following("30 2 * * *", "2026-03-28T12:00:00+01:00", berlin) == "2026-03-29T03:00:00+02:00"
    twice = following("30 2 * * *", "2026-10-24T12:00:00+02:00", berlin)
    assert twice == "2026-10-25T02:30:00+02:00"
    assert following("30 2 * * *", twice, berlin) == "2026-10-26T02:30:00+01:00"


def test_the_longest_gap() -> None:
    assert longest_gap("*/5 * * * *", "UTC") == 300
    assert longest_gap("0 3 * * 1-5", "UTC") == 3 * 86400


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", ""),
        ("@daily", ""),
        ("*/5 * * * * *", ""),  # seconds are no part of it
        ("61 * * * *", "Bad minute"),
        ("0 0 30 2 *", "Bad day-of-month"),
    ],
)
def test_what_is_no_expression(text: str, why: str) -> None:
    with pytest.raises(ValidationError, match="a cron expression of five fields such as .*" + why):
        TypeAdapter(CronExpression).validate_python(text)


@pytest.mark.parametrize("text", ["", "Mars/Olympus", "../../etc/passwd", "Europe", "CET+1"])
def test_what_is_no_time_zone(text: str) -> None:
    with pytest.raises(ValidationError, match="a time zone such as"):
        TypeAdapter(TimeZone).validate_python(text)


def test_the_time_may_be_given_in_any_zone() -> None:
    assert next_time("0 12 * * *", "Asia/Shanghai", datetime(2026, 11, 24, 3, 59, tzinfo=UTC)).utcoffset() is not None
    assert following("0 12 * * *", "2026-11-24T03:59:00+00:00", "Asia/Shanghai") == "2026-11-24T12:00:00+08:00"
