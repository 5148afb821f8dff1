"""Values that people write with a unit: durations and sizes.

| type               | in Python      | accepts                                              |
|--------------------|----------------|------------------------------------------------------|
| `Duration`         | float, seconds | 300, 0.5, "100ms", "300s", "5m", "24h", "7d"; from 0 |
| `PositiveDuration` | float, seconds | the same, above 0                                    |
| `ByteSize`         | int, bytes     | 65536, "64KiB", "8MiB", "1MB", "2GiB"; above 0       |

Both are written out as plain numbers of seconds and bytes, which they accept again.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Annotated, Any

from annotated_types import Gt
from pydantic import BeforeValidator

_QUANTITY = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]*)\s*")

_SECONDS = {"": 1.0, "ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_BYTES = {
    "": 1.0,
    "b": 1.0,
    **{f"{letter}b": 1000.0**power for power, letter in enumerate("kmgt", start=1)},
    **{f"{letter}ib": 1024.0**power for power, letter in enumerate("kmgt", start=1)},
}


def _quantity(value: Any, units: Mapping[str, float], expected: str) -> float:
    amount = None
    if isinstance(value, int | float) and not isinstance(value, bool):
        amount = float(str(value))  # by way of text: an int too large for a float becomes infinite instead of raising
    elif isinstance(value, str) and (match := _QUANTITY.fullmatch(value)):
        scale = units.get(match[2].lower())
        amount = None if scale is None else float(match[1]) * scale
    if amount is None or not math.isfinite(amount) or amount < 0:
        raise ValueError(expected)
    return amount


def _seconds(value: Any) -> float:
    return _quantity(value, _SECONDS, 'a duration from 0 such as 300, "100ms", "300s", "5m", "24h" or "7d"')


def _bytes(value: Any) -> int:
    return int(_quantity(value, _BYTES, 'a size in bytes such as 65536, "64KiB", "8MiB" or "1MB"'))


Duration = Annotated[float, BeforeValidator(_seconds)]
PositiveDuration = Annotated[Duration, Gt(0)]
ByteSize = Annotated[int, BeforeValidator(_bytes), Gt(0)]
