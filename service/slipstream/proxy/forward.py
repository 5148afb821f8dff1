"""One exchange: a request of an agent sent on to an upstream, and its answer brought back."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Sequence
from typing import Protocol

import structlog

from slipstream.errors import error_body
from slipstream.proxy.connection import JOINED, Connection
from slipstream.proxy.errors import UpstreamError
from slipstream.proxy.gateway import Gateway, Route
from slipstream.proxy.headers import UnknownCoding, answer_fields, content_length, has, has_body
from slipstream.proxy.limits import PROGRESS, RETRY_AFTER, Refusal
from slipstream.proxy.request import Request
from slipstream.proxy.tap import Recording

_log = structlog.get_logger(__name__)

_IDEMPOTENT = frozenset({b"GET", b"HEAD", b"OPTIONS", b"PUT", b"DELETE", b"TRACE"})

_NO_WEBSOCKET = "Websockets are not passed on; connect to the production model directly."
_NO_UPGRADE = "A request with a body cannot ask for an upgrade (with Java's HttpClient: set version(HTTP_1_1))."
_UNKNOWN_CODING = Refusal(501, "unknown_coding", "A body may be sent in chunks, and in no other transfer coding.")
_CHUNKS_OF_OLD = Refusal(400, "invalid_request", "HTTP/1.0 knows no transfer-encoding.")


class Agent(Protocol):
    """The connection of the agent whose request this is."""

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


class Forward:
    """The way of one request, in callbacks of the two connections that it joins.

    Attributes:
        sent: the whole request was handed to the upstream's connection.
    """

    # Defaults of the class, not assignments in __init__: most requests never touch most of them.
    sent = False
    _recording: Recording | None = None
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
    _arrived = 0
    """Bytes of a body that was not here in full with its head, ..."""
    _longest = 0
    """... of those that it may have, ..."""
    _judged = 0
    """... and how many there were when its progress was last looked at."""
    _over = False

    def __init__(self, agent: Agent, request: Request, gateway: Gateway) -> None:
        self.request = request
        self._agent = agent
        self._gateway = gateway
        self._route: Route = gateway.route(request)

    def start(self) -> None:
        """Send what there is of the request, or refuse it."""
        request, route = self.request, self._route
        if request.odd and self._refused():
            return
        guard, kept = self._gateway.guard, True
        if guard is not None:
            answer = guard.admit(request, route.tapped, self._agent.peer)
            if isinstance(answer, Refusal):
                self._decline(answer)
                return
            kept = answer.capture
        if route.own and request.target in route.own:
            self._over = True
            self._agent.reply(request, 200, route.own[request.target])
            self._agent.answered()
            return
        if (refusal := self._too_much()) is not None:
            self._decline(refusal)
            return
        try:
            self._request_head, self._chunked = route.head(request)
        except UnknownCoding:
            request.keep_alive = False  # others may see another end of this request
            self._decline(_UNKNOWN_CODING)
            return
        if self._chunked and not request.http11:
            request.keep_alive = False
            self._decline(_CHUNKS_OF_OLD)
            return
        route.metrics.begins()
        self._recording = self._gateway.recording(route, request, kept)
        connection = route.pool.kept()
        if connection is None:
            self._open()
        else:
            self._kept = True
            self._begin(connection)
        if not request.complete and request.http11 and has(request.headers, b"expect"):
            self._agent.send(b"HTTP/1.1 100 Continue\r\n\r\n", ())

    def more(self) -> None:
        """More of the request is there."""
        connection = self._connection
        if connection is not None:
            pieces = self.request.pieces
            self._arrived += len(pieces[0]) if len(pieces) == 1 else sum(map(len, pieces))
            if self._arrived > self._longest:
                self.refuse(self._too_long())
                return
            connection.send(b"", self._pieces())
            self._sent_or_waits(connection)

    def goes_on(self) -> bool:
        """Whether enough of the body came since this was asked last."""
        came, self._judged = self._arrived - self._judged, self._arrived
        return came >= PROGRESS

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
        """The agent closed its connection."""
        if not self._over:
            self._route.metrics.caller_gone()
            self._break_off("caller_gone")

    def abandon(self) -> bool:
        """The request turns out to be none. Returns whether its answer has started."""
        self._break_off("caller_gone")
        return self._started

    # The upstream's connection says

    def answer(self, starts: bool, pieces: list[bytes], ends: bool) -> None:
        connection, recording = self._connection, self._recording
        assert connection is not None  # it is the one that calls
        head = b""
        if starts:
            self._started = True
            self._route.metrics.answered(connection.status)
            head = self._head(connection)
            if recording is not None:
                recording.answer_starts(connection.status, connection.headers)
        if recording is not None and pieces:
            recording.answer_pieces(pieces)
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
            self._kept = False
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
        status = 504 if error.timed_out else 502
        kind = "upstream_timeout" if error.timed_out else "upstream_unreachable"
        self._refuse(status, kind, error.cause, f"{route.name}: {error}.")

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

    def _refused(self) -> bool:
        request = self.request
        request_error = "invalid_request_error"
        if request.refusal is not None:
            self._decline(request.refusal)
            return True
        if request.method == b"CONNECT":
            status, kind, message = 405, request_error, "This is no HTTP proxy."
        elif any(name.lower() == b"upgrade" and value.lower() == b"websocket" for name, value in request.headers):
            status, kind, message = 403, "websocket_unsupported", _NO_WEBSOCKET
        elif has_body(request.headers):
            # The parser takes such a body for another protocol's bytes: production would wait for it and take the
            # connection's next request, another user's, for it.
            status, kind, message = 400, "upgrade_unsupported", _NO_UPGRADE
        else:
            return False
        self._over = True
        request.keep_alive = False
        self._refuse(status, kind, None, message)
        return True

    def _too_much(self) -> Refusal | None:
        """What this request is more of than there may be, by its head."""
        request, route, gateway = self.request, self._route, self._gateway
        if route.metrics.in_flight >= gateway.limits.streams:
            text = "The sidecar carries as many requests as it may (limits.streams); try again."
            return Refusal(503, "too_many_streams", text, "streams", "server_error")
        longest, _ = gateway.longest_body(route, request.target)
        pieces = request.pieces
        here = 0 if not pieces else len(pieces[0]) if len(pieces) == 1 else sum(map(len, pieces))
        if not request.complete:
            self._arrived, self._longest = here, longest
            here = max(here, content_length(request.headers))
        return self._too_long() if here > longest else None

    def _too_long(self) -> Refusal:
        longest, limit = self._gateway.longest_body(self._route, self.request.target)
        key = "facade.max_body" if longest > self._gateway.limits.control_body and limit == "control_body" else ""
        text = f"The request's body is longer than {longest} bytes ({key or f'limits.{limit}'})."
        return Refusal(413, "too_large", text, limit)

    def _decline(self, refusal: Refusal) -> None:
        """Answer that the request is not taken. Where it is not here in full, nothing follows it."""
        request = self.request
        self._over = True
        request.keep_alive = request.keep_alive and request.complete
        self._count(refusal)
        fields = RETRY_AFTER if refusal.status == 503 else refusal.fields
        self._refuse(refusal.status, refusal.kind, refusal.code, refusal.message, fields)

    def _count(self, refusal: Refusal) -> None:
        if refusal.limit is not None:
            self._gateway.refused(refusal.limit)

    def _refuse(self, status: int, kind: str, code: str | None, message: str, fields: bytes = b"") -> None:
        """Answer with an error in OpenAI's format."""
        self._route.metrics.answered(status)
        body = json.dumps(error_body(message, kind=kind, code=code)).encode()
        self._agent.reply(self.request, status, body, fields)
        self._agent.answered()

    def _open(self) -> None:
        if not self.request.complete:
            self._agent.takes_request(False)
        self._opening = asyncio.get_running_loop().create_task(self._opened())

    async def _opened(self) -> None:
        before = time.perf_counter()
        try:
            connection = await self._route.pool.opened()
        except Exception as error:  # noqa: BLE001 - whatever it is, the agent must not wait for ever
            self._opening = None
            if not isinstance(error, UpstreamError):
                _log.exception("connection_not_opened", upstream=self._route.name)
                error = UpstreamError("connect", f"no connection: {error}")
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
        self._sent_or_waits(connection)

    def _pieces(self) -> list[bytes]:
        """What has arrived of the body, as it leaves."""
        request = self.request
        pieces = request.pieces
        self.sent = request.complete
        if pieces:
            request.pieces = []
            if self._recording is not None and self._again is None:
                self._recording.request.add(pieces)
        if self._chunked:
            return chunks(pieces, last=request.complete)
        return pieces

    def _sent_or_waits(self, connection: Connection) -> None:
        if self.sent:
            self._sent_at = time.perf_counter()
            if not self._stuck and not self._started:
                connection.within(self._route.limits.first_byte_timeout, "first_byte_timeout")

    # On the way back

    def _head(self, connection: Connection) -> bytes:
        """The answer's head; decides how the agent learns where the body ends."""
        request, status = self.request, connection.status
        fields, sized = answer_fields(connection.headers, length=status != 204)
        bodiless = request.method == b"HEAD" or status in (204, 304)
        if not sized and not bodiless:
            if request.http11:
                self._framed = True
                fields.append(b"transfer-encoding: chunked\r\n")
            else:
                request.keep_alive = False  # the end of the connection is the end of the body
        line = b"HTTP/1.1 %d %b\r\n" % (status, connection.reason)
        return b"".join((line, *fields, self._agent.closing(request), b"\r\n"))

    def _break_off(self, error: str) -> None:
        if self._opening is not None:
            self._opening.cancel()
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        self._end(error)

    def _end(self, error: str | None) -> None:
        self._over = True
        self._route.metrics.ends()
        if self._recording is not None:
            self._recording.end(error, self.request.complete)
            self._gateway.record(self._recording)


def chunks(pieces: list[bytes], *, last: bool) -> list[bytes]:
    """Pieces of a body in HTTP/1.1's chunks, each with its frame; small ones in one buffer each."""
    framed: list[bytes] = []
    for piece in pieces:
        if len(piece) <= JOINED:
            framed.append(b"%x\r\n%b\r\n" % (len(piece), piece))
        else:
            framed += (b"%x\r\n" % len(piece), piece, b"\r\n")
    if last:
        if framed:
            framed[-1] += b"0\r\n\r\n"
        else:
            framed.append(b"0\r\n\r\n")
    return framed
