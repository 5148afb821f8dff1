"""Times and spans of time as people say them."""

from __future__ import annotations

import time


def span(seconds: float) -> str:
    """One number of the largest unit that is there at least twice: 90 s, 12 min, 48 h."""
    for unit, size in (("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


def moment(at: float | None) -> str:
    """Unix seconds as the local time, to the second; empty for None."""
    return "" if at is None else time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))
