"""A request of an agent, as far as it has arrived, and the agent to whom it is answered."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from slipstream.access.scope import LEAST, Scope
from slipstream.http.headers import Headers
from slipstream.proxy.refusal import Refusal


class Request:
    """A request, which may still be arriving.

    Attributes:
        target: as it stands in the request line.
        keep_alive: whether the agent wants to go on with this connection.
        scope: what its caller may reach, once that is known.
        refusal: why it is none, or cannot be passed on, where its head or its target says so.
        pieces: of the body, arrived and not yet sent on; without chunk framing.
        complete: its last byte is here, since `received_at` (`time.perf_counter()`).
    """

    __slots__ = (
        "complete",
        "headers",
        "http11",
        "keep_alive",
        "method",
        "pieces",
        "received_at",
        "refusal",
        "scope",
        "target",
    )

    def __init__(self, method: bytes, target: bytes, headers: Headers, *, http11: bool, keep_alive: bool) -> None:
        self.method = method
        self.target = target
        self.headers = headers
        self.http11 = http11
        self.keep_alive = keep_alive
        self.scope: Scope = LEAST
        self.refusal: Refusal | None = None
        self.pieces: list[bytes] = []
        self.complete = False
        self.received_at = 0.0


class Agent(Protocol):
    """The connection that a request came by."""

    def send(self, head: bytes, pieces: Sequence[bytes]) -> None:
        """Send a part of the answer; an agent that has gone swallows it, and `agent_gone` tells."""
        ...

    def reply(self, request: Request, status: int, body: bytes, fields: bytes = b"") -> None:
        """Send a whole answer of the proxy's own, in JSON; `fields` are further lines of its head."""
        ...

    def closing(self, request: Request) -> bytes:
        """The header field that tells the agent what becomes of its connection after this answer."""
        ...

    def peer(self) -> str:
        """The address at the other end of the connection."""
        ...

    def takes_request(self, takes: bool) -> None:
        """Read more of the request, or leave what comes in the kernel's hands for now."""
        ...

    def answered(self) -> None:
        """The answer has been sent to its end."""
        ...

    def cut(self) -> None:
        """Break off an answer that has started."""
        ...
