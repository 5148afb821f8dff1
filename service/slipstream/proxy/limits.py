"""What the agents of one worker may take of it, and what is said to those that want more."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

from slipstream.config.settings import Limits

Limit = Literal[
    "connections",
    "streams",
    "request_body",
    "control_body",
    "header_bytes",
    "headers",
    "header_timeout",
    "body_timeout",
    "answer_timeout",
]
"""A key of `limits` that was reached; a label of the metrics."""

RETRY_AFTER = b"retry-after: 1\r\n"
"""With each 503: what is full now has room again as soon as an exchange ends, and SDKs spread their further tries."""

PROGRESS = 16 * 1024
"""Bytes of a body that are to arrive within each `body_timeout`: some 270 a second at its default, less than the
slowest line brings. A limit on the whole would refuse long uploads; one on the silence, let a byte a minute pass."""

RESERVED = 32
"""A part in so many of the connections stands open above `connections`, to those that are to be told, and to
operators."""


class Refusal(NamedTuple):
    """An answer of the proxy's own to a request that it does not take.

    Attributes:
        limit: that was reached, if one was.
        fields: further lines of the answer's head.
    """

    status: int
    code: str
    message: str
    limit: Limit | None = None
    kind: str = "invalid_request_error"
    fields: bytes = b""


@dataclass(frozen=True, slots=True)
class AgentLimits:
    """The section `limits` for one worker: connections and streams are divided by their number.

    Attributes:
        chat_body: bytes of a chat on a control route, which `facade.max_body` bounds.
        most_connections: with those that are to be told that it is full.
    """

    connections: int
    streams: int
    request_body: int
    control_body: int
    chat_body: int
    header_bytes: int
    headers: int
    header_timeout: float
    body_timeout: float
    answer_timeout: float
    keep_alive: float

    @classmethod
    def share(cls, limits: Limits, *, workers: int = 1, chat_body: int = 0) -> AgentLimits:
        """A worker's part, rounded up."""
        return cls(
            connections=-(-limits.connections // workers),
            streams=-(-limits.streams // workers),
            request_body=limits.request_body,
            control_body=limits.control_body,
            chat_body=max(chat_body, limits.control_body),
            header_bytes=limits.header_bytes,
            headers=limits.headers,
            header_timeout=limits.header_timeout,
            body_timeout=limits.body_timeout,
            answer_timeout=limits.answer_timeout,
            keep_alive=limits.keep_alive,
        )

    @property
    def most_connections(self) -> int:
        return self.connections + max(4, self.connections // RESERVED)
