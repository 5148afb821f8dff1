"""State that the connections of one worker share: routes, counters, copies."""

from __future__ import annotations

import asyncio
from heapq import nsmallest
from typing import Protocol

import httptools

from slipstream.dialects.form import dialect_of
from slipstream.proxy.copies import Copies
from slipstream.proxy.guard import Guard
from slipstream.proxy.limits import AgentLimits, BodyLimit, Limit
from slipstream.proxy.metrics import ProxyMetrics
from slipstream.proxy.misdirected import doubled, misdirected
from slipstream.proxy.refusal import NO_PATH
from slipstream.proxy.request import Request
from slipstream.proxy.route import Route
from slipstream.proxy.routing import Routing
from slipstream.proxy.tap import Tap
from slipstream.tracing.context import TraceSample

_NEVER = float("inf")

_READ = 32 * 1024
"""Bytes that are read of a connection at once: more than most requests have, and so few that a row of the shortest
requests, which are parsed before any of them is answered, holds nobody else up."""

_PART = 64
"""Divisor of the connection limit: that part is closed at once if it is idle while new connections wait; searching
costs a microsecond for each ten or so."""

_LOOK = 0.1
"""Seconds until idle ones are looked for again where there was none."""

ROOT = b"/v1"
"""Prefix of production's paths, ..."""

PRODUCTIONS = (ROOT + b"/", ROOT + b"?")
"""... and goes on like this, where it goes on."""

_DOUBLED = ROOT + ROOT + b"/"
_ANTHROPIC_DOUBLED = _DOUBLED + b"messages"


class OpenConnection(Protocol):
    """A connection of an agent."""

    @property
    def idle_until(self) -> float:
        """Return when it is closed for being idle, by the loop's clock; infinite if it is not."""
        ...

    def stop(self) -> None:
        """Close it as soon as nothing is under way on it."""
        ...

    def end_stream(self) -> None:
        """End an answer that has no end of its own."""
        ...

    def abort(self) -> None:
        """Close it now."""
        ...


class Gateway:
    """The middle of a worker.

    Args:
        max_body: bytes of a body that are copied.
        room: bytes that copies of exchanges under way may take together.
        traces: says which calls are traced; None where none are.

    Attributes:
        copies: what is copied of production's exchanges.
        limits: what agents may take of this worker.
        guard: says who may use it; None where everybody may.
        routing: says which users a lane answers; None where production answers all of them.
        agents: the open connections.
        read_into: what comes on any of them, until the call that tells of it returns.
        draining: each answer from now on is the last one of its connection, and says so.
        stopping: each connection is closed after the answer that is under way on it.
    """

    def __init__(
        self,
        production: Route,
        control: Route,
        tap: Tap,
        metrics: ProxyMetrics,
        *,
        max_body: int,
        room: int,
        limits: AgentLimits,
        guard: Guard | None = None,
        routing: Routing | None = None,
        traces: TraceSample | None = None,
    ) -> None:
        self.guard = guard
        self.routing = routing
        self.limits = limits
        self._full_until = 0.0
        self._production = production
        self._productions = production.prefixes
        self._doubled = _DOUBLED if production.versioned else b"\0"
        self._control = control
        self._metrics = metrics
        self.copies = Copies(tap, metrics, max_body, room, traces)
        self._deserted: asyncio.Event | None = None
        self.agents: set[OpenConnection] = set()
        self.read_into = memoryview(bytearray(_READ))
        self.draining = False
        self.stopping = False

    def route(self, request: Request) -> Route:
        """Return where a request goes; from here on its target is in origin form."""
        target = request.target
        if target[:1] != b"/":
            path = _origin_form(target)
            if path is None and request.method != b"CONNECT":
                request.refusal, request.keep_alive = NO_PATH, False
            target = request.target = path or b"/"
        if target.startswith(self._productions) or target == ROOT:
            if target.startswith(_ANTHROPIC_DOUBLED):
                request.target = target[len(ROOT) :]  # its client adds /v1 to a base URL that may have it
            elif target.startswith(self._doubled):
                request.refusal = request.refusal or doubled(target, request.headers)
                request.keep_alive = False
            return self._production
        if request.refusal is None:
            request.refusal = misdirected(request.method, target, request.headers)
            request.keep_alive = request.keep_alive and request.refusal is None
        return self._control

    def is_productions(self, request: Request) -> bool:
        """Return whether the request goes to production, and not to the control API."""
        return self.route(request) is self._production

    def longest_body(self, route: Route, target: bytes) -> BodyLimit:
        """Return how long a request's body may be."""
        if route is self._production:
            return self.limits.request_body
        asks = dialect_of(target.partition(b"?")[0].decode("latin-1")) is not None
        return self.limits.chat_body if asks else self.limits.control_body

    def refused(self, limit: Limit) -> None:
        """A limit ended a request, or a connection."""
        self._metrics.refused(limit)

    def admits(self, agent: OpenConnection) -> bool | None:
        """Take a new connection in. Returns False where there are too many, so that it is to be told, and None where
        there are far too many, so that it is not taken in.

        Connections that stand idle make room for it, those first that have for longest.
        """
        agents, limits = self.agents, self.limits
        crowded = len(agents) >= limits.connections and not self._make_room()
        if len(agents) >= limits.most_connections:
            return None
        agents.add(agent)
        self._metrics.connections(len(agents))
        return not crowded

    def _make_room(self) -> bool:
        now = asyncio.get_running_loop().time()
        if now < self._full_until:
            return False
        idle = [agent for agent in self.agents if agent.idle_until < _NEVER]
        for agent in nsmallest(max(1, self.limits.connections // _PART), idle, key=lambda agent: agent.idle_until):
            agent.stop()
        if not idle:
            self._full_until = now + _LOOK
        return bool(idle)

    def gone(self, agent: OpenConnection) -> None:
        """This connection is no more."""
        self.agents.discard(agent)
        self._metrics.connections(len(self.agents))
        if self._deserted is not None and not self.agents:
            self._deserted.set()

    async def deserted(self) -> None:
        """Wait until no connection is open."""
        if self.agents:
            self._deserted = asyncio.Event()
            await self._deserted.wait()

    def close(self) -> None:
        """Close the idle connections to the upstreams."""
        for route in (self._production, self._control):
            route.pool.close()
        if self.routing is not None:
            self.routing.close()


def _origin_form(target: bytes) -> bytes | None:
    """The path and query of an absolute URL, which a server must take as well (RFC 9112, section 3.2.2)."""
    try:
        url = httptools.parse_url(target)
    except httptools.HttpParserInvalidURLError:
        return None
    if url.schema is None or url.schema.lower() not in (b"http", b"https"):
        return None
    return (url.path or b"/") + (b"?" + url.query if url.query else b"")
