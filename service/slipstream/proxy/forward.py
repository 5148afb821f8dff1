"""One exchange: a request of an agent sent on to an upstream, and its answer brought back."""

from __future__ import annotations

import asyncio
import time

import structlog

from slipstream.access.roles import control_path
from slipstream.http.connection import Connection
from slipstream.http.errors import UpstreamError
from slipstream.http.headers import has
from slipstream.http.remainder import TAIL, has_ended, has_finished, tail_of
from slipstream.http.writing import chunks
from slipstream.proxy.admission import admit, departure
from slipstream.proxy.answer_head import answer_head
from slipstream.proxy.gateway import Gateway
from slipstream.proxy.guard import Admitted
from slipstream.proxy.limits import EVENTS
from slipstream.proxy.redirects import REDIRECTS, lures_away
from slipstream.proxy.refusal import Refusal
from slipstream.proxy.request import Agent, Request
from slipstream.proxy.route import Route
from slipstream.proxy.tap import Recording
from slipstream.proxy.uncaptured import UncapturedRoute
from slipstream.proxy.upload import Upload

_log = structlog.get_logger(__name__)

_IDEMPOTENT = frozenset({b"GET", b"HEAD", b"OPTIONS", b"PUT", b"DELETE", b"TRACE"})


class Forward:
    """The way of one request, in callbacks of the two connections that it joins.

    Attributes:
        sent: the whole request was handed to the upstream's connection.
        upload: the request's body, where it was not here in full with its head.
    """

    # Defaults of the class, not assignments in __init__: most requests never touch most of them.
    sent = False
    upload: Upload | None = None
    _recording: Recording | None = None
    _uncaptured: UncapturedRoute | None = None
    """The route by which this call is counted, where capture cannot read it."""
    _connection: Connection | None = None
    _opening: asyncio.Task[None] | None = None
    _connecting = 0.0
    _sent_at = 0.0
    _again: list[bytes] | None = None
    """The body, where it was sent in one piece and may be sent once more."""
    _kept = False
    """The connection was used before, and may be closing."""
    _request_head = b""
    """As it leaves."""
    _chunked = False
    """The request's body leaves in chunks."""
    _framed = False
    """The answer's body leaves in chunks."""
    _stuck = False
    """The upstream takes no more of the request at the moment."""
    _started = False
    """The answer has started."""
    _tail = b""
    """The end of what came of the answer's body, where no copy is made of it."""
    _keyed = False
    """The request came with a key of ours, which is not in it any more."""
    _counted = False
    """It is one of the exchanges that the metrics know to be under way."""
    _over = False

    def __init__(self, agent: Agent, request: Request, gateway: Gateway) -> None:
        self.request = request
        self._agent = agent
        self._gateway = gateway
        self._route: Route = gateway.route(request)

    def start(self) -> None:
        """Send what there is of the request, or refuse it."""
        request, route = self.request, self._route
        admitted = admit(request, route, self._gateway, self._agent)
        if isinstance(admitted, Refusal):
            self._decline(admitted)
            return
        request.scope = admitted.scope
        if route.paths is not None:
            refusal = route.paths.refusal(request.method, request.target.partition(b"?")[0])
            if refusal is not None:
                self._decline(refusal)
                return
        self._keyed = admitted.key is not None
        if route.own and request.target in route.own:
            self._over = True
            self._agent.reply(request, 200, route.own[request.target])
            self._agent.answered()
            return
        way = departure(request, route, self._gateway)
        if isinstance(way, Refusal):
            self._decline(way)
            return
        self._request_head, self._chunked, self.upload = way
        route.metrics.begins()
        self._counted = True
        self._depart(admitted)
        if not request.complete and request.http11 and has(request.headers, b"expect"):
            self._agent.send(b"HTTP/1.1 100 Continue\r\n\r\n", ())

    def _depart(self, admitted: Admitted) -> None:
        """Begin a copy, and send what there is of the request."""
        if self._route.tapped:
            self._copy(admitted)
        self._connect()

    def _copy(self, admitted: Admitted) -> None:
        copied = self._gateway.copies.begin(self.request, admitted)
        if isinstance(copied, Recording):
            self._recording = copied
        else:
            self._uncaptured = copied

    def _connect(self) -> None:
        connection = self._route.pool.kept()
        if connection is None:
            self._open()
        else:
            self._kept = True
            self._begin(connection)

    def more(self) -> None:
        """More of the request is there."""
        connection, upload = self._connection, self.upload
        if connection is None or upload is None:
            return
        if (refusal := upload.refuses(self.request.pieces)) is not None:
            self.refuse(refusal)
            return
        connection.send(b"", self._pieces())
        if self.sent:
            self._all_sent(connection)

    def refuse(self, refusal: Refusal) -> None:
        """Take no more of a request that is on its way."""
        self._break_off("caller_gone")
        if self._started:
            self._count(refusal)
            self._agent.cut()
        else:
            self._decline(refusal)

    # The agent's connection says

    def agent_takes(self, takes: bool) -> None:
        """The agent does not keep up with its answer, or does so again."""
        if self._connection is not None:
            if takes:
                self._connection.go_on()
            else:
                self._connection.hold()

    def agent_gone(self) -> None:
        """The agent closed its connection. Where it had the whole answer, that was all; else the call is cancelled."""
        if self._over:
            return
        recording = self._recording
        tail = self._tail if recording is None else recording.response.tail(TAIL)
        ended = has_ended(tail)
        if (
            self._connection is not None
            and self.sent
            and (ended or (recording is not None and has_finished(tail) and recording.one_choice))
        ):
            connection, self._connection = self._connection, None
            self._route.pool.read_on(connection)
        if not ended:
            self._route.metrics.caller_gone()
        self._break_off(None if ended else "caller_gone")

    def abandon(self) -> bool:
        """The request turns out to be none. Returns whether its answer has started."""
        self._break_off("caller_gone")
        return self._started

    @property
    def endless(self) -> bool:
        """Return whether its answer has no end of its own."""
        return not self._route.tapped and control_path(self.request.target) == EVENTS

    def end_here(self) -> None:
        """End an answer here that the upstream would go on with."""
        self._break_off(None)
        if self._framed:
            self._agent.send(b"", chunks([], last=True))
        self._agent.cut()

    # The upstream's connection says

    def answer(self, starts: bool, pieces: list[bytes], ends: bool) -> None:
        connection, recording = self._connection, self._recording
        assert connection is not None  # it is the one that calls
        head = b""
        if starts:
            if connection.status in REDIRECTS and (
                danger := lures_away(connection.headers, self.request.headers, keyed=self._keyed)
            ):
                connection.close()
                self.failed(UpstreamError("redirect", danger))
                return
            self._started = True
            self._route.metrics.answered(connection.status)
            if not self._route.tapped and self.request.scope.to_be_resolved and self._gateway.guard is not None:
                self._gateway.guard.answered(self.request, connection.status, self._agent.peer)
            head, self._framed = answer_head(self.request, connection, self._agent)
            if recording is not None:
                recording.answer_starts(connection.status, connection.headers)
            elif self._uncaptured is not None and connection.status < 300:
                self._route.metrics.uncaptured(self._uncaptured)
        if pieces:
            if recording is not None:
                recording.answer_pieces(pieces)
            elif not ends:
                self._tail = tail_of(self._tail, pieces)
        if self._framed:
            pieces = chunks(pieces, last=ends)
        if ends:
            self._connection = None
            if not self.sent:
                connection.close()  # it waits for the rest of a request that it has answered
        self._agent.send(head, pieces)
        if starts and self._sent_at:  # else the upstream answered before it had the whole request
            there = self._sent_at - self.request.received_at - self._connecting
            self._route.metrics.added(there + time.perf_counter() - connection.head_at)
        if ends:
            self._end(None)
            self._agent.answered()

    def failed(self, error: UpstreamError) -> None:
        connection, self._connection = self._connection, None
        if (
            self._kept
            and self._again is not None
            and error.cause == "closed"
            and connection is not None
            and not connection.answered
        ):  # closed without a byte, as connections are that stood idle
            self._kept = self._stuck = False
            self.request.pieces = self._again
            self._open()
            return
        route = self._route
        route.metrics.upstream_failed(error.cause)
        _log.warning("upstream_failed", upstream=route.name, cause=error.cause, detail=str(error))
        self._end(error.cause)
        if self._started:
            self._agent.cut()
            return
        status, kind = (504, "upstream_timeout") if error.timed_out else (502, "upstream_unreachable")
        self._tell(Refusal(status, error.cause, f"{route.name}: {error}.", kind=kind))

    def may_send(self, may: bool) -> None:
        self._stuck = not may
        connection = self._connection
        if connection is None:
            return
        if not self.sent or may:
            self._agent.takes_request(may)
        if self._started:
            return
        limits = self._route.limits
        if not may:
            connection.within(limits.idle_timeout, "idle_timeout")
        elif self.sent:
            connection.within(limits.first_byte_timeout, "first_byte_timeout")
        else:
            connection.no_limit()  # a slow agent has all the time it wants

    # On the way there

    def _decline(self, refusal: Refusal) -> None:
        """Answer that the request is not taken. Where it is not here in full, nothing follows it."""
        request = self.request
        self._over = True
        request.keep_alive = request.keep_alive and request.complete
        self._count(refusal)
        self._tell(refusal)

    def _count(self, refusal: Refusal) -> None:
        if refusal.limit is not None:
            self._gateway.refused(refusal.limit)

    def _tell(self, refusal: Refusal) -> None:
        self._route.metrics.answered(refusal.status)
        self._agent.reply(self.request, refusal.status, refusal.body(), refusal.fields)
        self._agent.answered()

    def _open(self) -> None:
        if not self.request.complete:
            self._agent.takes_request(False)
        self._opening = asyncio.get_running_loop().create_task(self._opened())

    async def _opened(self) -> None:
        before = time.perf_counter()
        try:
            connection = await self._route.pool.opened()
        except UpstreamError as error:
            self._opening = None
            self.failed(error)
            return
        self._opening = None
        self._connecting = time.perf_counter() - before
        self._route.metrics.connected(self._connecting)
        self._agent.takes_request(True)
        self._begin(connection)

    def _begin(self, connection: Connection) -> None:
        request = self.request
        self._connection = connection
        connection.begin(self, bodiless=request.method == b"HEAD")
        body = request.pieces
        connection.send(self._request_head, self._pieces())
        if self._kept and self.sent and request.method in _IDEMPOTENT:
            self._again = body
        if self.sent:
            self._all_sent(connection)

    def _pieces(self) -> list[bytes]:
        """Return the received part of the body, in the form in which it leaves."""
        request = self.request
        pieces = request.pieces
        self.sent = request.complete
        if pieces:
            request.pieces = []
            if self._recording is not None and self._again is None:
                self._recording.request.add(pieces)
        recording = self._recording
        if recording is not None and recording.draw_at and self._gateway.copies.leaves_out(recording, whole=self.sent):
            self._recording = None
        if self._chunked:
            return chunks(pieces, last=request.complete)
        return pieces

    def _all_sent(self, connection: Connection) -> None:
        self._sent_at = time.perf_counter()
        if not self._stuck and not self._started:
            connection.within(self._route.limits.first_byte_timeout, "first_byte_timeout")

    # The end

    def _break_off(self, error: str | None) -> None:
        if self._opening is not None:
            self._opening.cancel()
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        self._end(error)

    def _end(self, error: str | None) -> None:
        self._over = True
        if self._counted:  # else an error struck before
            self._route.metrics.ends()
            self._counted = False
        if self._recording is not None:
            self._recording.end(error, self.request.complete)
            self._gateway.copies.record(self._recording)
