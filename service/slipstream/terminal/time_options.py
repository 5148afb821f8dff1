"""Moments that people give to commands: as an age, a time or Unix seconds."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import datetime

from pydantic import TypeAdapter, ValidationError

from slipstream.config.units import Duration
from slipstream.errors import SlipstreamError

_DURATION: TypeAdapter[float] = TypeAdapter(Duration)


def seconds_of(text: str | None, option: str, now: float) -> float | None:
    """The Unix seconds of a moment as people write it: an age (`2h`), a local time (`2026-11-26T18:00`), or Unix
    seconds; None for None.

    Args:
        option: that it was given by, for the error.
        now: Unix seconds that ages count from.

    Raises:
        SlipstreamError: it is none of them.
    """
    if text is None:
        return None
    readers: tuple[Callable[[str], float], ...] = (
        float,
        lambda age: now - _DURATION.validate_python(age),
        _local_time,
    )
    for read in readers:
        try:
            found = read(text.strip())
        except (ValueError, ValidationError, OverflowError, OSError):
            continue
        if math.isfinite(found):
            return found
    raise SlipstreamError(
        f"{option}: expected an age such as 2h or 7d, a time such as 2026-11-26T18:00, or Unix seconds; found {text!a}"
    )


def _local_time(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()
