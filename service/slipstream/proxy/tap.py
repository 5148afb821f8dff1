"""The tap: copies finished exchanges of production's traffic for capture, in bounded memory, without delaying them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import chain
from typing import Protocol

import msgspec

from slipstream.http.headers import Headers
from slipstream.http.remainder import tail_of
from slipstream.proxy.sample import Draw
from slipstream.serving.served import Served
from slipstream.tenants import DEFAULT
from slipstream.tracing.context import Traced


class ExchangeHead(msgspec.Struct, array_like=True):
    """One request that went through the proxy, and its answer, without their bodies.

    A worker fills it in while the exchange passes, and it goes to the training side as it is.

    Attributes:
        path: as it was sent, without the query: `/v1/chat/completions`.
        request_headers: as the caller sent them, `x-slipstream-*` and secrets included.
        started_at: Unix seconds.
        key: the name of the caller's key of ours; None where none was asked for.
        tenant: whose call it is.
        status: of the answer; None where there was none.
        first_byte_after: seconds from the start to the first byte of the answer's body; None where none came.
        duration: seconds from the start to the end.
        error: `caller_gone`, or a cause of `UpstreamError`; None exactly where the exchange is complete. The answer can
            be whole all the same, in ways that only its JSON tells.
        drawn: `capture.rate` takes this call. False leaves that to the training side.
        served: who answered it; None where no share was set. The other half may be of a release that has no such
            field: it reads what comes without it, and sends none.
        trace: set where the call is traced. As with `served`, the other half may not know it.
    """

    method: str
    path: str
    request_headers: Headers
    started_at: float
    key: str | None = None
    tenant: str = DEFAULT
    status: int | None = None
    response_headers: Headers = []
    first_byte_after: float | None = None
    duration: float = 0.0
    error: str | None = None
    drawn: bool = False
    served: Served | None = None
    trace: Traced | None = None

    @property
    def complete(self) -> bool:
        """True if the whole answer came and was handed to a caller who was still there, or who left
        with the last event of a stream."""
        return self.error is None


class Exchange(ExchangeHead, kw_only=True):
    """One request that went through the proxy, with its answer.

    Attributes:
        request_body: None where it was longer than `capture.max_body` or did not arrive whole.
        response_body: as it passed, content encoding and SSE framing included; None where it was too long.
    """

    request_body: bytes | None
    response_body: bytes | None


def with_bodies(head: ExchangeHead, request_body: bytes | None, response_body: bytes | None) -> Exchange:
    """Return the exchange of this head."""
    return Exchange(*msgspec.structs.astuple(head), request_body=request_body, response_body=response_body)


class Room:
    """Bytes that the copies of all exchanges under way may take together: a thousand long streams are no leak."""

    __slots__ = ("left",)

    def __init__(self, left: int) -> None:
        self.left = left


_PIECE = 64
"""Bytes of memory that a piece takes beside its own: whoever sends a body in chunks of two would be given thirty times
as much as was counted."""


class BodyCopy:
    """The pieces of a body as they passed, up to `limit` bytes; longer ones are let go at once.

    The pieces are the very objects that the parsers made: nothing is copied in the way of traffic.

    Attributes:
        pieces: None once the body was too long, or there was no room.
        size: bytes that are kept.
        held: what they take of the room until the exchange is over, and of memory after that.
        crowded_out: there was no room.
    """

    __slots__ = ("_limit", "_room", "crowded_out", "held", "pieces", "size")

    def __init__(self, limit: int, room: Room) -> None:
        self._limit = limit
        self._room = room
        self.size = self.held = 0
        self.pieces: list[bytes] | None = []
        self.crowded_out = False

    def add(self, pieces: list[bytes]) -> None:
        if self.pieces is None:
            return
        more = len(pieces[0]) if len(pieces) == 1 else sum(map(len, pieces))
        held = more + _PIECE * len(pieces)
        if self.size + more > self._limit:
            self.let_go()
        elif held > self._room.left:
            self.crowded_out = True
            self.let_go()
        else:
            self.size += more
            self.held += held
            self._room.left -= held
            self.pieces += pieces

    def whole(self) -> bytes | None:
        """The body in one piece; None where it is not kept."""
        return None if self.pieces is None else b"".join(self.pieces)

    def tail(self, size: int) -> bytes:
        """The last bytes of what is kept: at least so many, where there are."""
        pieces = list[bytes]()
        for piece in reversed(self.pieces or ()):
            pieces.append(piece)
            size -= len(piece)
            if size <= 0:
                break
        return b"".join(reversed(pieces))

    def let_go(self) -> None:
        """Keep nothing of this body."""
        self.pieces = None
        self._room.left += self.held
        self.size = self.held = 0


class _Tail(BodyCopy):
    """The end of a body of which no copy is made: whether a stream has ended is told by it."""

    __slots__ = ("_tail",)

    def __init__(self, room: Room) -> None:
        super().__init__(0, room)
        self.pieces = None
        self._tail = b""

    def add(self, pieces: list[bytes]) -> None:
        self._tail = tail_of(self._tail, pieces)

    def tail(self, size: int) -> bytes:
        return self._tail

    def let_go(self) -> None:
        """Forget the end too."""
        self._tail = b""


class Recording:
    """The copy of an exchange that is passing by.

    Attributes:
        head: what is known of it by now.
        draw_at: bytes of the request from which on it is asked again whether this call is taken; 0 once that is known.
        size: bytes of memory that both bodies and heads take, once it is over.
        crowded_out: a part of it is missing because there was no room; known once it is over.
    """

    __slots__ = ("_room", "_started", "crowded_out", "draw_at", "head", "request", "response", "size")

    def __init__(self, head: ExchangeHead, max_body: int, room: Room) -> None:
        self.head = head
        self.request = BodyCopy(max_body, room)
        self.response = BodyCopy(max_body, room)
        self.draw_at = 0
        self.size = 0
        self.crowded_out = False
        self._room = room
        self._started = time.perf_counter()

    @property
    def one_choice(self) -> bool:
        """Return whether the request asks for one choice for certain. Of several, others may still be on their way when
        one has finished."""
        return b'"n"' not in (self.request.whole() or b'"n"')

    def leave_out(self) -> None:
        """Keep nothing of what is said, and tell only how the exchange goes: `capture.rate` leaves it out, and it is
        traced."""
        head, room = self.head, self._room
        assert head.trace is not None  # else there is no recording
        head.trace.alone, head.drawn, head.request_headers = True, True, []
        self.request.let_go()
        self.response.let_go()
        self.response = _Tail(room)
        self.draw_at = 0

    def answer_starts(self, status: int, headers: Headers) -> None:
        self.head.status = status
        self.head.response_headers = headers

    def answer_pieces(self, pieces: list[bytes]) -> None:
        if self.head.first_byte_after is None:
            self.head.first_byte_after = time.perf_counter() - self._started
        self.response.add(pieces)

    def end(self, error: str | None, request_whole: bool) -> None:
        """The exchange is over."""
        self.head.duration = time.perf_counter() - self._started
        self.head.error = error
        request, response = self.request, self.response
        if not request_whole:
            request.let_go()
        if response.pieces is None:
            response.let_go()
        bodies = request.held + response.held
        self._room.left += bodies
        heads = chain.from_iterable(chain(self.head.request_headers, self.head.response_headers))
        self.size = bodies + sum(map(len, heads))
        self.crowded_out = request.crowded_out or response.crowded_out

    def exchange(self) -> Exchange:
        """The whole, its bodies in one piece each."""
        return with_bodies(self.head, self.request.whole(), self.response.whole())


class Tap(Protocol):
    """Takes copies of exchanges. All calls are made on the event loop of production's traffic: none may block."""

    def draw(
        self,
        method: str,
        path: str,
        headers: Headers,
        body: Sequence[bytes],
        whole: bool,
        tenant: str,
        key: str | None,
        capture: bool = True,
    ) -> Draw:
        """Return whether to copy this exchange, as `Sample.draw` does."""
        ...

    def record(self, recording: Recording) -> None:
        """Take the copy; called once, after the answer has left."""
        ...
