"""The proxy: production traffic to the production model and back, everything else to the control API.

A raw ASGI callable: what a web framework does for each request would be the larger part of the sidecar's latency.
Nothing is parsed; bodies go through in the pieces in which they arrive.
"""

from __future__ import annotations

import asyncio
import json
import time

import structlog
from starlette.types import ASGIApp, Receive, Scope, Send

from slipstream.config.settings import Capture, Production
from slipstream.errors import error_body
from slipstream.proxy.caller import Caller, CallerGone
from slipstream.proxy.headers import asks_upgrade_with_body, response_headers
from slipstream.proxy.http1 import UpstreamError
from slipstream.proxy.metrics import ProxyMetrics
from slipstream.proxy.tap import Recording, Tap
from slipstream.proxy.upstream import HttpUpstream, Response, Upstream

_log = structlog.get_logger(__name__)

_ROOT = b"/v1"


class Proxy:
    """Sends `/v1/...` to production and hands all other requests, and the lifespan, to `control`.

    The control application's lifespan calls `close` at its end.

    Args:
        tap: takes copies of what it wants.
        upstream: production; by default over HTTP as `production` says.

    Raises:
        ConfigError: `production.api_key` cannot be sent as a header.
    """

    def __init__(
        self,
        control: ASGIApp,
        production: Production,
        capture: Capture,
        tap: Tap,
        metrics: ProxyMetrics,
        upstream: Upstream | None = None,
    ) -> None:
        self._control = control
        self._max_body = capture.max_body
        self._tap = tap
        self._metrics = metrics
        self._upstream: Upstream = HttpUpstream(production) if upstream is None else upstream

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan" or not _is_production(scope["raw_path"]):
            await self._control(scope, receive, send)
        elif scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.close", "code": 1008, "reason": _NO_WEBSOCKET})
        elif (b"upgrade", b"websocket") in scope["headers"]:
            await self._refuse(send, 403, "websocket_unsupported", None, _NO_WEBSOCKET)
        elif asks_upgrade_with_body(scope["headers"]):
            # The server in front takes such a body for another protocol's bytes: production would wait for it and
            # take the connection's next request, another user's, for it.
            await self._refuse(send, 400, "upgrade_unsupported", None, _NO_UPGRADE, (b"connection", b"close"))
        else:
            await self._forward(scope, receive, send)

    def close(self) -> None:
        """Close the idle connections to production."""
        self._upstream.close()

    async def _forward(self, scope: Scope, receive: Receive, send: Send) -> None:
        recording = None
        if self._wants(scope):
            recording = Recording(scope["method"], scope["path"], scope["headers"], self._max_body)
        caller = Caller(receive, recording.request.add if recording is not None else None)
        error: str | None = "failed"
        self._metrics.in_flight.inc()
        try:
            error = await self._exchange(scope, caller, send, recording)
        except asyncio.CancelledError:
            error = "cancelled"
            raise
        finally:
            self._metrics.in_flight.dec()
            if recording is not None:
                # In the loop's next round: by then the answer's last bytes have left, however long the tap takes.
                asyncio.get_running_loop().call_soon(self._record, recording, error, caller.received_at > 0)

    async def _exchange(self, scope: Scope, caller: Caller, send: Send, recording: Recording | None) -> str | None:
        """Carry one exchange; returns why it did not come to its end, or None."""
        target = scope["raw_path"][len(_ROOT) :]
        if scope["query_string"]:
            target += b"?" + scope["query_string"]
        try:
            async with caller:
                try:
                    response = await self._upstream.send(scope["method"], target, scope["headers"], caller.body)
                except UpstreamError as error:
                    self._upstream_failed(error, scope)
                    if error.timed_out:
                        await self._refuse(
                            send, 504, "upstream_timeout", error.cause, f"The production model: {error}."
                        )
                    else:
                        await self._refuse(
                            send, 502, "upstream_unreachable", error.cause, f"The production model: {error}."
                        )
                    return error.cause
                try:
                    await self._answer(response, caller, send, recording)
                except UpstreamError as error:
                    # The answer has started: returning without its end makes the server break the connection off,
                    # so that the caller cannot take what it has for the whole.
                    self._upstream_failed(error, scope)
                    return error.cause
                finally:
                    response.close()
        except CallerGone:
            self._metrics.caller_gone.inc()
            return "caller_gone"
        return None

    async def _answer(self, response: Response, caller: Caller, send: Send, recording: Recording | None) -> None:
        self._metrics.answered(response.status)
        if recording is not None:
            recording.answer_starts(response.status, response.headers)
        headers = response_headers(response.status, response.headers)
        await send({"type": "http.response.start", "status": response.status, "headers": headers})
        self._note_added(response, caller)
        more = True
        while more:
            piece = await response.read()
            if recording is not None:
                recording.answer_piece(piece)
            more = not response.at_end
            await send({"type": "http.response.body", "body": piece, "more_body": more})

    def _note_added(self, response: Response, caller: Caller) -> None:
        connecting = response.connecting
        if connecting is not None:
            self._metrics.connect.observe(connecting)
        if response.sent_at:  # else production answered before it had the whole request
            there = response.sent_at - caller.received_at - (connecting or 0.0)
            self._metrics.added.observe(there + time.perf_counter() - response.head_at)

    async def _refuse(
        self, send: Send, status: int, kind: str, code: str | None, message: str, *more: tuple[bytes, bytes]
    ) -> None:
        self._metrics.answered(status)
        body = json.dumps(error_body(message, kind=kind, code=code)).encode()
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode()), *more]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    def _upstream_failed(self, error: UpstreamError, scope: Scope) -> None:
        self._metrics.upstream_failed(error.cause)
        _log.warning("production_failed", cause=error.cause, detail=str(error), path=scope["path"])

    def _wants(self, scope: Scope) -> bool:
        try:
            return self._tap.wants(scope["method"], scope["path"], scope["headers"])
        except Exception:  # noqa: BLE001 - whatever is wrong with capture, production goes on
            self._tap_failed()
            return False

    def _record(self, recording: Recording, error: str | None, request_whole: bool) -> None:
        try:
            self._tap.record(recording.end(error, request_whole))
        except Exception:  # noqa: BLE001 - as above
            self._tap_failed()

    def _tap_failed(self) -> None:
        self._metrics.tap_failures.inc()
        _log.exception("tap_failed")


_NO_WEBSOCKET = "Websockets are not passed on to the production model; connect to it directly."

_NO_UPGRADE = "A request with a body cannot ask for an upgrade (with Java's HttpClient: set version(HTTP_1_1))."


def _is_production(raw_path: bytes) -> bool:
    return raw_path.startswith(b"/v1/") or raw_path == _ROOT
