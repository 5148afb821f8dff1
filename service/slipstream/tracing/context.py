"""The trace that a call belongs to: the caller's `traceparent`, and the decision whether the call is traced.

This is all that a worker of the proxy knows of traces: it imports nothing of OpenTelemetry, and changes no header.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable

import msgspec

from slipstream.http.headers import Headers

HEADER = b"traceparent"

_TRACEPARENT = re.compile(rb"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?", re.DOTALL)
_NO_TRACE, _NO_SPAN = "0" * 32, "0" * 16
_SAMPLED = 0x01


class TraceParent(msgspec.Struct, array_like=True, frozen=True):
    """A span of another program, as its `traceparent` names it.

    Attributes:
        trace_id: 32 hexadecimal digits.
        span_id: 16 hexadecimal digits.
        sampled: its program records it.
    """

    trace_id: str
    span_id: str
    sampled: bool


class Traced(msgspec.Struct, array_like=True):
    """The word that a call is traced, which goes along with its copy.

    Attributes:
        parent: the span of the agent that made the call; None if it has named none.
        alone: nothing of the exchange is to be kept, because `capture.rate` leaves it out: the copy has no bodies and
            none of the request's headers.
    """

    parent: TraceParent | None = None
    alone: bool = False


def trace_parent(value: bytes) -> TraceParent | None:
    """Read the value of a `traceparent` header, by W3C's Trace Context; None if it is invalid: as if absent."""
    found = _TRACEPARENT.fullmatch(value.strip())
    if found is None or found[1] == b"ff" or (found[1] == b"00" and found[5] is not None):
        return None
    trace_id, span_id = found[2].decode(), found[3].decode()
    if trace_id == _NO_TRACE or span_id == _NO_SPAN:
        return None
    return TraceParent(trace_id, span_id, bool(int(found[4], 16) & _SAMPLED))


class TraceSample:
    """The calls that are traced: those whose agent traces them, and a share of those that come without a trace.

    Args:
        ratio: that share, `otel.ratio`.
        draw: a number from 0 to below 1, evenly spread.
    """

    def __init__(self, ratio: float, draw: Callable[[], float] = random.random) -> None:
        self._ratio = ratio
        self._draw = draw

    def draw(self, headers: Headers) -> Traced | None:
        """Decide on a call with these request headers; None if it is not traced."""
        for name, value in headers:
            if len(name) == len(HEADER) and name.lower() == HEADER and (parent := trace_parent(value)) is not None:
                return Traced(parent) if parent.sampled else None
        return Traced() if self._draw() < self._ratio else None
