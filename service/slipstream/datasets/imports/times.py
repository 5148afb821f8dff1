"""Times as exports write them, in Unix seconds."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from slipstream.datasets.imports.conversation import Unfit, found

_LATEST = 253402300800.0
"""Year 10000: what is later is no time in seconds."""


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
        number = float(value)
        while number >= _LATEST:  # a thousand times as fine each time
            number /= 1000
        return number
    try:
        read = datetime.fromisoformat(value)
    except (TypeError, ValueError):
        raise Unfit(at, f"expected a time, found {found(value)}") from None
    return (read if read.tzinfo is not None else read.replace(tzinfo=UTC)).timestamp()
