"""The interface to those who get an answer from a connection to an upstream."""

from __future__ import annotations

from typing import Protocol

from slipstream.http.errors import UpstreamError


class Receiver(Protocol):
    """Receiver of the answer of one exchange."""

    def answer(self, starts: bool, pieces: list[bytes], ends: bool) -> None:
        """Bytes came: the answer's head (`starts`; it is in the connection's attributes), pieces of its body, its end.

        With `ends` the exchange is over, and the connection is the receiver's no more.
        """
        ...

    def failed(self, error: UpstreamError) -> None:
        """The answer will not come to its end. The connection is closed."""
        ...

    def may_send(self, may: bool) -> None:
        """The upstream takes no more of the request for now, or takes it again."""
        ...
