"""A request of an agent, as far as it has arrived."""

from __future__ import annotations

from slipstream.proxy.headers import Headers
from slipstream.proxy.limits import Refusal


class Request:
    """A request, which may still be arriving.

    Attributes:
        target: as it stands in the request line.
        keep_alive: whether the agent wants to go on with this connection.
        odd: it asks for another protocol, or is in a version of HTTP that is not spoken here, or is no request at all.
        refusal: why it is none, or not taken.
        pieces: of the body, arrived and not yet sent on; without chunk framing.
        complete: its last byte is here, since `received_at` (`time.perf_counter()`).
    """

    __slots__ = (
        "complete",
        "headers",
        "http11",
        "keep_alive",
        "method",
        "odd",
        "pieces",
        "received_at",
        "refusal",
        "target",
    )

    def __init__(
        self, method: bytes, target: bytes, headers: Headers, *, http11: bool, keep_alive: bool, odd: bool
    ) -> None:
        self.method = method
        self.target = target
        self.headers = headers
        self.http11 = http11
        self.keep_alive = keep_alive
        self.odd = odd
        self.refusal: Refusal | None = None
        self.pieces: list[bytes] = []
        self.complete = False
        self.received_at = 0.0
