"""Counters of users' requests under a share, by arm: a part of each worker's row in `metrics`."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import Literal, get_args

from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily

from slipstream.serving.question import Unfit
from slipstream.serving.served import Arm

Ineligible = Literal["opted_out", "not_captured", "dialect", "encoding", "too_large"] | Unfit
"""Reasons why a call is in no arm. All of them are known before it is assigned."""

FallbackCause = Literal["connect", "timeout", "closed", "protocol", "status", "refused", "breaker", "stopped"]
"""Reasons why production answered a request that was assigned to the version.

status: the lane answered, and with no 2xx.
refused: it answered that something is wrong with the request.
breaker: it was not asked, because it had failed several times in a row.
stopped: a kill, or another share, came while a connection was being opened.
"""

_FIRST_BYTE = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)

_ARMS: tuple[Arm, ...] = get_args(Arm)
_INELIGIBLE: tuple[Ineligible, ...] = tuple(name for part in get_args(Ineligible) for name in get_args(part) or (part,))
_CAUSES: tuple[FallbackCause, ...] = get_args(FallbackCause)

# Where in the cells each number is. A histogram has a cell for each bucket, one for what is beyond them, and its sum.
_BUCKETS = len(_FIRST_BYTE) + 2
_REQUESTS = 0
_FAILED = _REQUESTS + len(_ARMS)
_FALLBACKS = _FAILED + len(_ARMS)
_LEFT = _FALLBACKS + len(_CAUSES)
_WAITED = _LEFT + len(_INELIGIBLE)
CELLS = _WAITED + _BUCKETS * len(_ARMS)

LAYOUT = (_ARMS, _INELIGIBLE, _CAUSES, _FIRST_BYTE)

_COUNTERS: tuple[tuple[str, str, str, Sequence[str], int], ...] = (
    ("slipstream_serving_requests", "Requests of users that were assigned, by arm.", "arm", _ARMS, _REQUESTS),
    (
        "slipstream_serving_failures",
        "Assigned requests that fell back, or had no whole 2xx answer.",
        "arm",
        _ARMS,
        _FAILED,
    ),
    (
        "slipstream_serving_fallbacks",
        "Requests that were assigned to the version and answered by production, by cause.",
        "cause",
        _CAUSES,
        _FALLBACKS,
    ),
    (
        "slipstream_serving_ineligible",
        "Calls that were in no arm while a share was set, by reason.",
        "reason",
        _INELIGIBLE,
        _LEFT,
    ),
)
"""The name of each counter, its text, its label, the label's values, and the cell of the first of them."""


class ServingMetrics:
    """One worker's counters.

    Args:
        cells: `CELLS` of them.
    """

    __slots__ = ("_cells",)

    def __init__(self, cells: memoryview[float]) -> None:
        self._cells = cells

    def ended(self, arm: Arm, *, failed: bool, waited: float | None) -> None:
        """A request of this arm is over.

        Args:
            waited: seconds until its answer began; None where none did.
        """
        place = _ARMS.index(arm)
        cells = self._cells
        cells[_REQUESTS + place] += 1.0
        cells[_FAILED + place] += failed
        if waited is not None:
            first = _WAITED + _BUCKETS * place
            cells[first + bisect_left(_FIRST_BYTE, waited)] += 1.0
            cells[first + _BUCKETS - 1] += waited

    def fell_back(self, cause: FallbackCause) -> None:
        """Production answers a request that was assigned to the version."""
        self._cells[_FALLBACKS + _CAUSES.index(cause)] += 1.0

    def ineligible(self, reason: Ineligible) -> None:
        """A call is in no arm."""
        self._cells[_LEFT + _INELIGIBLE.index(reason)] += 1.0


def kept_from_lane(rows: Sequence[memoryview[float]]) -> int:
    """Return the requests that a breaker kept from the lane, of all workers since they were first started."""
    return int(sum(row[_FALLBACKS + _CAUSES.index("breaker")] for row in rows))


def collected(rows: Sequence[memoryview[float]]) -> Iterator[Metric]:
    """Yield the metrics of all workers for Prometheus."""

    def total(cell: int) -> float:
        return float(sum(row[cell] for row in rows))

    for name, text, label, values, first in _COUNTERS:
        family = CounterMetricFamily(name, text, labels=[label])
        for place, value in enumerate(values):
            family.add_metric([value], total(first + place))
        yield family
    waited = HistogramMetricFamily(
        "slipstream_serving_first_byte_seconds",
        "Time until the answer to an assigned request began, a lane that was tried in vain included.",
        labels=["arm"],
    )
    for place, arm in enumerate(_ARMS):
        buckets, count, first = [], 0.0, _WAITED + _BUCKETS * place
        for at, bound in enumerate((*map(str, _FIRST_BYTE), "+Inf")):
            count += total(first + at)
            buckets.append((bound, count))
        waited.add_metric([arm], buckets, total(first + _BUCKETS - 1))
    yield waited
