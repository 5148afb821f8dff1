"""The decision on which calls `capture.rate` takes."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

from slipstream.dialects.form import dialect_of
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


_UNWANTED, _TAKEN, _LEFT_OUT = Draw.UNWANTED, Draw.TAKEN, Draw.LEFT_OUT
_WITHOUT_LOT = {
    NoLot.REFUSED: _UNWANTED,
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
        self._rate = rate
        self._lot_of = Lots(identity_headers).of

    def draw(
        self,
        method: str,
        path: str,
        headers: Headers,
        body: Sequence[bytes],
        whole: bool,
        tenant: str,
        key: str | None,
        capture: bool = True,
    ) -> Draw:
        """Return whether a call is taken. Of the body nothing is looked at where the rate is 0 or 1.

        Args:
            path: as it was sent, without the query.
            body: the pieces that there are of it. A single one is not copied.
            whole: nothing comes after them.
            tenant, key: whose call it is, and the name of its key of ours.
            capture: whether that key lets its calls be captured.
        """
        rate = self._rate
        if not rate or not capture or method != "POST" or (dialect := dialect_of(path)) is None:
            return _UNWANTED
        if rate >= 1:
            return _TAKEN if may_capture(headers) else _UNWANTED
        lot = self._lot_of(dialect, headers, b"".join(body), whole, tenant, key)
        if isinstance(lot, float):
            return _TAKEN if lot < rate else _LEFT_OUT
        return _WITHOUT_LOT[lot]
