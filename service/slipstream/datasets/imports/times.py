"""Times as exports write them, in Unix seconds."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from slipstream.datasets.imports.conversation import Unfit, found

_LATEST = 253402300800.0
"""Year 10000: what is later is no time in seconds."""

_UNITS = (1, 1000, 1000**2, 1000**3)
"""Parts of a second in which programs count."""


def seconds(value: Any, at: str) -> float | None:
    """Return a time in Unix seconds: of text in ISO 8601 (without a zone it is UTC), or of a number of seconds,
    milliseconds, microseconds or nanoseconds; None for none.

    Raises:
        Unfit: it is no time.
    """
    if value is None or value == "":
        return None
    if isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) <= 20:
        value = int(value)
    if isinstance(value, int | float) and not isinstance(value, bool) and value >= 0:
        unit = next((unit for unit in _UNITS if value < _LATEST * unit), None)
        if unit is not None:
            return value / unit
    try:
        read = datetime.fromisoformat(value)
        number = (read if read.tzinfo is not None else read.replace(tzinfo=UTC)).timestamp()
    except (TypeError, ValueError):
        number = -1.0
    if not 0 <= number < _LATEST:
        raise Unfit(at, f"expected a time, found {found(value)}")
    return number
