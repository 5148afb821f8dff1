"""The copies of a worker's exchanges: of which one is made, and the way of the finished ones to the tap."""

from __future__ import annotations

import asyncio
import time

import structlog

from slipstream.dialects.beginning import ENOUGH
from slipstream.dialects.form import dialect_of
from slipstream.proxy.consent import may_capture
from slipstream.proxy.guard import Admitted
from slipstream.proxy.metrics import ProxyMetrics
from slipstream.proxy.request import Request
from slipstream.proxy.sample import Draw
from slipstream.proxy.tap import ExchangeHead, Recording, Room, Tap
from slipstream.proxy.uncaptured import UncapturedRoute, uncaptured_route
from slipstream.serving.served import Served
from slipstream.tenants import DEFAULT
from slipstream.tracing.context import Traced, TraceSample

_LEFT_OUT = Draw.LEFT_OUT

_log = structlog.get_logger(__name__)


class Copies:
    """
    Args:
        max_body: bytes of a body that are copied.
        room: bytes that copies of exchanges under way may take together.
        traces: says which calls are traced; None where none are.
    """

    def __init__(
        self, tap: Tap, metrics: ProxyMetrics, max_body: int, room: int, traces: TraceSample | None = None
    ) -> None:
        self._tap = tap
        self._metrics = metrics
        self._max_body = max_body
        self._room = Room(room)
        self._traces = traces
        self._finished: list[Recording] = []

    def begin(self, request: Request, admitted: Admitted) -> Recording | UncapturedRoute | None:
        """The copy that is to be made of a request to production and its answer; or the route by which a call is
        counted that capture cannot read; or None."""
        method, path = request.method.decode("ascii"), request.target.partition(b"?")[0].decode("latin-1")
        tenant, whole = admitted.scope.tenant or DEFAULT, request.complete
        try:
            body = request.pieces if whole else ()  # else it is looked at once it is sent on
            draw = self._tap.draw(
                method, path, request.headers, body, whole, tenant, admitted.key, admitted.capture
            )  # fmt: skip
            trace = None if self._traces is None else _traced(self._traces, method, path, request, admitted)
        except Exception:  # noqa: BLE001 - whatever is wrong with capture, production goes on
            self._failed()
            return None
        left_out = draw is _LEFT_OUT
        if left_out:
            self._metrics.left_out()
        if trace is None and (left_out or draw is Draw.UNWANTED):
            return None if left_out else _uncaptured(request, admitted)
        head = ExchangeHead(method, path, request.headers, time.time(), admitted.key, tenant)
        head.drawn = draw is Draw.TAKEN
        head.trace = trace
        recording = Recording(head, self._max_body, self._room)
        if left_out or draw is Draw.UNWANTED:
            recording.leave_out()
            return recording
        recording.draw_at = ENOUGH if draw is Draw.LATER else 0
        return recording

    def outcome(self, request: Request, admitted: Admitted, served: Served) -> Recording:
        """A copy without bodies, of a call that `capture.rate` leaves out: it takes along how the call went alone."""
        method, path = request.method.decode("ascii"), request.target.partition(b"?")[0].decode("latin-1")
        tenant = admitted.scope.tenant or DEFAULT
        head = ExchangeHead(method, path, [], time.time(), admitted.key, tenant, drawn=True, served=served)
        return Recording(head, 0, self._room)

    def leaves_out(self, recording: Recording, *, whole: bool) -> bool:
        """Return whether no copy is to be made after all, now that more of the request's body is there.

        Until that is known, the body's pieces are held and not copied. They are looked at each time that there are
        twice as many bytes, so the work grows with the body's length alone.

        Args:
            whole: all of it is there.
        """
        head, request = recording.head, recording.request
        if request.pieces is None:  # too long, or no room: it is counted as that
            recording.draw_at = 0
        if not recording.draw_at or (request.size < recording.draw_at and not whole):
            return False
        about, pieces = (head.method, head.path, head.request_headers), request.pieces or ()
        try:
            draw = self._tap.draw(*about, pieces, whole, head.tenant, head.key)
        except Exception:  # noqa: BLE001 - as above
            self._failed()
            request.let_go()
            recording.response.let_go()  # it may have begun
            return True
        if draw is Draw.LEFT_OUT:
            self._metrics.left_out()
            if head.trace is not None:
                recording.leave_out()
                return False
            request.let_go()
            recording.response.let_go()  # it may have begun
            return True
        head.drawn = draw is Draw.TAKEN
        recording.draw_at = 2 * request.size if draw is Draw.LATER else 0
        return False

    def record(self, recording: Recording) -> None:
        """An exchange is over. In the loop's next round: by then the answer's last bytes have left."""
        if not self._finished:
            asyncio.get_running_loop().call_soon(self._hand_on)
        self._finished.append(recording)

    def _hand_on(self) -> None:
        finished, self._finished = self._finished, []
        for recording in finished:
            try:
                self._tap.record(recording)
            except Exception:  # noqa: BLE001 - as above
                self._failed()

    def _failed(self) -> None:
        self._metrics.tap_failed()
        _log.exception("tap_failed")


def _traced(traces: TraceSample, method: str, path: str, request: Request, admitted: Admitted) -> Traced | None:
    """The word that a request is a call that is traced; None for one that must not be captured."""
    if method != "POST" or dialect_of(path) is None or not may_capture(request.headers, key=admitted.capture):
        return None
    return traces.draw(request.headers)


def _uncaptured(request: Request, admitted: Admitted) -> UncapturedRoute | None:
    """The route by which a call is counted of which no copy is made; None where its caller wishes that, or where it is
    no call of a model."""
    if request.method != b"POST" or not may_capture(request.headers, key=admitted.capture):
        return None
    return uncaptured_route(request.target)
