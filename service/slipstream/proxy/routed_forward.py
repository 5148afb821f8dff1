"""A request where `serving.mode` is on: by the lane where a version answers, and to production if that fails."""

from __future__ import annotations

import time

import structlog

from slipstream.http.connection import Connection
from slipstream.http.errors import UpstreamError
from slipstream.proxy.forward import Forward
from slipstream.proxy.gateway import Gateway
from slipstream.proxy.guard import Admitted
from slipstream.proxy.lane import LaneAttempt
from slipstream.proxy.request import Agent, Request
from slipstream.proxy.routing import HEADER, Assigned, Routing, wish
from slipstream.proxy.serving_metrics import FallbackCause, Ineligible
from slipstream.proxy.tap import Recording
from slipstream.serving.page import PRODUCTION, Split, variant_of
from slipstream.serving.served import Served

_log = structlog.get_logger(__name__)

_KILLED = b'{"killed":true,"noted":false}'
"""Answer to a kill while the control API is away: this host's workers go by it, and the store does not know yet."""


_NO_FAULT = ("refused", "stopped")
"""Causes that say nothing about the lane: one caller who repeats a faulty request must not take it from all others."""


class RoutedForward(Forward):
    """The way of one request, by the lane or not.

    While no share is set it is a `Forward`. The body of a request that may go to the lane is kept until an answer has
    begun, and what the agent sent goes to production byte for byte if the lane has none.
    """

    _served: Served | None = None
    """Filled in as it goes, for a call while a share is set."""
    _admitted: Admitted | None = None
    """Rights of the caller, while the request waits for its whole body."""
    _seen = 0
    """Pieces of the body that have come by then."""
    _attempt: LaneAttempt | None = None
    _tells = False
    """The caller asked who answers."""
    _kill = False
    """The request is a kill, which holds here already."""
    _by_lane = False
    """The lane answers."""
    _decided_at = 0.0
    _waited: float | None = None
    """Seconds until the first byte of the answer's body."""
    _status = 0
    _outcome: Recording | None = None
    """Takes along how it went, where no copy is made."""

    def __init__(self, agent: Agent, request: Request, gateway: Gateway) -> None:
        super().__init__(agent, request, gateway)
        assert gateway.routing is not None  # else a `Forward` is made
        self._routing: Routing = gateway.routing

    # The agent's connection says

    def more(self) -> None:
        """More of the request is there."""
        admitted, upload = self._admitted, self.upload
        if admitted is None or upload is None:
            super().more()
            return
        pieces = self.request.pieces
        came, self._seen = pieces[self._seen :], len(pieces)
        if (refusal := upload.refuses(came)) is not None:
            self.refuse(refusal)
        elif self.request.complete:
            self._admitted = None
            self._decide(admitted)

    # The upstream's connection says

    def answer(self, starts: bool, pieces: list[bytes], ends: bool) -> None:
        connection = self._connection
        if starts and connection is not None:
            self._status = connection.status
            if self._tells:
                others = [field for field in connection.headers if field[0].lower() != HEADER]
                connection.headers = [*others, (HEADER, self._variant().encode())]
        if self._waited is None and (pieces or ends):
            self._waited = time.perf_counter() - self._decided_at
        super().answer(starts, pieces, ends)

    def failed(self, error: UpstreamError) -> None:
        if self._by_lane:
            self._connection = None
            _log.warning("lane_failed", cause=error.cause, detail=str(error), answer="cut")
            self._end(error.cause)
            self._agent.cut()
        elif self._kill and not self._started:
            self._connection = None
            _log.warning("kill_not_noted", cause=error.cause, detail=str(error))
            self._end(error.cause)
            self._agent.reply(self.request, 202, _KILLED)
            self._agent.answered()
        else:
            super().failed(error)

    # The lane's attempt says

    def may_ask(self) -> bool:
        return self._served is not None and self._routing.serves(self._served.version)

    def lane_answers(self, connection: Connection, pieces: list[bytes], ends: bool) -> None:
        self._attempt = None
        self._by_lane = self.sent = True
        self._route = self._routing.lane.route
        self._connection = connection
        asked, self.request.pieces = self.request.pieces, []
        if self._recording is not None:
            self._recording.request.add(asked)  # what the agent sent, with the model that it named
        if self._served is not None:
            self._served.variant = variant_of(self._served.version)
        self.answer(True, pieces, ends)

    def lane_failed(self, cause: FallbackCause, detail: str) -> None:
        self._attempt = None
        if cause not in _NO_FAULT and self._routing.breaker.failed(time.monotonic()):
            _log.error("lane_left_alone", cause=cause, detail=detail)
        _log.debug("lane_failed", cause=cause, detail=detail, answer="by production")
        self._fall_back(cause)

    # On the way there

    def _depart(self, admitted: Admitted) -> None:
        if not self._route.tapped:
            if self._routing.kills(self.request, admitted):
                self._kill = True
                self._routing.page.stop(noted=False)
                _log.warning("serving_killed", key=admitted.key)
            super()._depart(admitted)
            return
        request = self.request
        self._tells = wish(request.headers) == "tell"
        split = self._routing.split()
        if split is not None and not request.complete and self._routing.waits_for(request):
            self._admitted, self._seen = admitted, len(request.pieces)
        elif split is None:
            super()._depart(admitted)
        else:
            self._assign(admitted, split)

    def _decide(self, admitted: Admitted) -> None:
        """Go on with a request whose body has come."""
        split = self._routing.split()
        if split is None:
            super()._depart(admitted)
        else:
            self._assign(admitted, split)

    def _assign(self, admitted: Admitted, split: Split) -> None:
        """Decide who answers, and send the request there."""
        request, routing = self.request, self._routing
        self._decided_at = time.perf_counter()
        counts = self._route.metrics.serving
        assigned: Assigned | Ineligible | None = None
        try:
            assigned = routing.assign(request, admitted, split)
        except Exception:  # noqa: BLE001 - whatever is wrong with the choice, production answers
            _log.exception("not_assigned")
        self._copy(admitted)
        body = None
        if isinstance(assigned, Assigned):
            self._served, body = assigned
            if self._recording is None and routing.outcomes:
                self._served.alone = True
                self._outcome = self._gateway.copies.outcome(request, admitted, self._served)
        elif assigned is not None:
            counts.ineligible(assigned)
            self._served = Served(PRODUCTION, opted_out=assigned == "opted_out")
        if self._recording is not None:
            self._recording.head.served = self._served
        if body is None:
            self._connect()
        elif routing.breaker.allows(time.monotonic()):
            self._attempt = LaneAttempt(routing.lane, self, routing.lane.head(request.headers, len(body)), body)
            self._attempt.start()
        else:
            self._fall_back("breaker")

    def _fall_back(self, cause: FallbackCause) -> None:
        self._route.metrics.serving.fell_back(cause)
        if self._served is not None:
            self._served.fell_back = True
        self.request.received_at = time.perf_counter()  # what the lane took is no time of the proxy's own
        self._connect()

    def _variant(self) -> str:
        return PRODUCTION if self._served is None else self._served.variant

    # The end

    def _break_off(self, error: str | None) -> None:
        if self._attempt is not None:
            self._attempt.cancel()
            self._attempt = None
        super()._break_off(error)

    def _end(self, error: str | None) -> None:
        served = self._served
        if served is not None and served.arm is not None:
            cut = error not in (None, "caller_gone")
            served.failed = served.fell_back or cut or not 200 <= self._status < 300
            served.waited = time.perf_counter() - self._decided_at if self._waited is None else self._waited
            self._route.metrics.serving.ended(served.arm, failed=served.failed, waited=self._waited)
            if self._by_lane:
                if cut:
                    self._routing.breaker.failed(time.monotonic())
                elif error is None:
                    self._routing.breaker.succeeded()
        if self._outcome is not None:
            self._recording = self._outcome
        super()._end(error)
