"""The decision on which calls `capture.rate` takes."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

from slipstream.dialects.form import Dialect
from slipstream.http.headers import Headers
from slipstream.proxy.consent import may_capture
from slipstream.proxy.lot import Lots, NoLot


class Draw(Enum):
    """The answer to whether a call is taken.

    UNWANTED: it is none that capture could read, or its caller refuses.
    LATER: more of the request's body is needed.
    COMPRESSED: it can be told once the body is decompressed.
    HELD: it is taken if the answer is that it goes on from, which the provider holds.
    """

    UNWANTED = "unwanted"
    TAKEN = "taken"
    LEFT_OUT = "left_out"
    LATER = "later"
    COMPRESSED = "compressed"
    HELD = "held"


_TAKEN, _LEFT_OUT = Draw.TAKEN, Draw.LEFT_OUT
_WITHOUT_LOT = {
    NoLot.REFUSED: Draw.UNWANTED,
    NoLot.MORE: Draw.LATER,
    NoLot.COMPRESSED: Draw.COMPRESSED,
    NoLot.HELD: Draw.HELD,
}


class Sample:
    """The calls that are taken: those whose lot is below the rate. So conversations are taken whole or not at all.

    Args:
        rate: share of the conversations, `capture.rate`.
        identity_headers: by which users are told apart, in lower case.
    """

    def __init__(self, rate: float, identity_headers: Sequence[str] = ()) -> None:
        self.rate = rate
        self._lots = Lots(identity_headers)

    def draw(self, dialect: Dialect, headers: Headers, body: bytes, whole: bool, tenant: str, key: str | None) -> Draw:
        """Return whether a call is taken. With a rate of 1 nothing but the caller's consent is looked at.

        Args:
            body: what there is of it.
            whole: nothing comes after it.
            tenant, key: whose call it is, and the name of its key of ours.
        """
        if self.rate >= 1:
            return _TAKEN if may_capture(headers) else Draw.UNWANTED
        lot = self._lots.of(dialect, headers, body, whole, tenant, key)
        if isinstance(lot, float):
            return _TAKEN if lot < self.rate else _LEFT_OUT
        return _WITHOUT_LOT[lot]
