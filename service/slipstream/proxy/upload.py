"""A request's body that was not here in full with its head: whether more of it comes than may, or too little."""

from __future__ import annotations

from slipstream.proxy.limits import PROGRESS, BodyLimit
from slipstream.proxy.refusal import Refusal, body_too_large


class Upload:
    """
    Args:
        here: bytes that came with the head.
        longest: that it may be.
    """

    __slots__ = ("_arrived", "_judged", "_longest")

    def __init__(self, here: int, longest: BodyLimit) -> None:
        self._arrived = here
        self._judged = 0
        self._longest = longest

    def refuses(self, pieces: list[bytes]) -> Refusal | None:
        """Count what came; says why no more of it is taken, where that is so."""
        self._arrived += len(pieces[0]) if len(pieces) == 1 else sum(map(len, pieces))
        return body_too_large(self._longest) if self._arrived > self._longest.most else None

    def goes_on(self) -> bool:
        """Return whether enough bytes came since the last call."""
        came, self._judged = self._arrived - self._judged, self._arrived
        return came >= PROGRESS
