"""Limits of what the agents of one worker may use."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

from slipstream.settings.sidecar import Limits

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
    "address_requests",
    "address_failures",
    "websocket",
]
"""A key of `limits` that was reached, or `websocket`, for which there is no key: none is carried. A label of the
metrics."""

PROGRESS = 16 * 1024
"""Bytes of a body that are to arrive within each `body_timeout`: some 270 a second at its default, less than the
slowest line brings. A limit on the whole would refuse long uploads; one on the silence, let a byte a minute pass."""

RESERVED = 32
"""A part in so many of the connections stands open above `connections`, to those that are to be told, and to
operators."""

EVENTS = "/events"
"""Path of the control API whose answers go on for as long as they are read. Nothing waits for their end."""

EVENT_STREAMS = 1_000
"""The most of these that are open at a time: pages in as many tabs."""

_OF_AGENTS = 4
"""Divisor of the connections, and of the answers under way: event streams take no more than that part of either."""


class BodyLimit(NamedTuple):
    """Limit of a body's length.

    Attributes:
        most: bytes.
        limit: as it is counted.
        key: of the setting that says so.
    """

    most: int
    limit: Limit
    key: str


@dataclass(frozen=True, slots=True)
class AgentLimits:
    """The section `limits` for one worker: connections and streams are divided by their number.

    Attributes:
        control_body, chat_body: on a control route; that of a chat is bounded by `facade.max_body`.
        most_connections: with those that are to be told that it is full.
    """

    connections: int
    streams: int
    request_body: BodyLimit
    control_body: BodyLimit
    chat_body: BodyLimit
    header_bytes: int
    headers: int
    header_timeout: float
    body_timeout: float
    answer_timeout: float
    keep_alive: float

    @classmethod
    def share(cls, limits: Limits, *, workers: int = 1, chat_body: int = 0) -> AgentLimits:
        """A worker's part, rounded up; `chat_body`: `facade.max_body`."""
        control_body = BodyLimit(limits.control_body, "control_body", "limits.control_body")
        longer = chat_body > limits.control_body
        return cls(
            connections=-(-limits.connections // workers),
            streams=-(-limits.streams // workers),
            request_body=BodyLimit(limits.request_body, "request_body", "limits.request_body"),
            control_body=control_body,
            chat_body=BodyLimit(chat_body, "control_body", "facade.max_body") if longer else control_body,
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


def event_streams(limits: Limits) -> int:
    """Return how many streams of GET /events may be open at a time, of all workers together."""
    return max(1, min(EVENT_STREAMS, limits.connections // _OF_AGENTS, limits.streams // _OF_AGENTS))
