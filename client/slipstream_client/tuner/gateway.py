"""HTTP server on 127.0.0.1 in the tuner's process, through which a workflow's model calls go.

It puts the run's msg_ids down, fills in the model's defaults, and waits where the engine is busy. A server and not
hooks of one SDK's client, so that whatever a workflow calls its model with, sync or async, is seen the same way.
"""

from __future__ import annotations

import contextlib
import json
import logging
import secrets
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any

import httpx

from slipstream_client.tuner.calls import Answer, Call, Calls
from slipstream_client.tuner.explorer import DIRECT

logger = logging.getLogger(__name__)

_RETRY_FOR = 120.0  # seconds: Trinity answers 500 while it loads a new version, and engines 429 while they are full
_LONGEST_PAUSE = 5.0  # seconds between two tries


@dataclass(frozen=True)
class Upstream:
    """Address of a model, and the default fields of its requests.

    Attributes:
        base_url: with `/v1`, and without credentials, which the log would show.
        model: the name that it is served by; requests may say another.
        defaults: of requests, such as top_p.
    """

    base_url: str
    model: str
    defaults: Mapping[str, Any] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)

    def request(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the request that is sent: `given` with the defaults. Null is the same as absent."""
        said = {name: value for name, value in given.items() if value is not None}
        defaults = dict(self.defaults)
        if "max_completion_tokens" in said:
            defaults.pop("max_tokens", None)
        if isinstance(kwargs := said.get("chat_template_kwargs"), dict):
            said["chat_template_kwargs"] = {**defaults.get("chat_template_kwargs", {}), **kwargs}
        return {**defaults, **said, "model": self.model}


@dataclass(frozen=True)
class _Route:
    upstream: Upstream
    calls: Calls | None


class Gateway:
    """Serves while it is entered.

    Args:
        timeout: seconds that an answer may take.
    """

    def __init__(self, timeout: float) -> None:
        self._routes: dict[str, _Route] = {}
        self._client = httpx.Client(
            timeout=httpx.Timeout(timeout, connect=10, pool=None),
            limits=httpx.Limits(max_connections=None),
            mounts=DIRECT,
        )
        self._server = _Server(self)

    def __enter__(self) -> Gateway:
        threading.Thread(target=self._server.serve_forever, args=(0.05,), name="gateway", daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._client.close()

    @contextlib.contextmanager
    def route(self, upstream: Upstream, calls: Calls | None = None) -> Iterator[str]:
        """The `base_url` under which the model is reached; with `calls`, answers are put down there."""
        name = secrets.token_urlsafe(12)  # others on this machine cannot guess it
        self._routes[name] = _Route(upstream, calls)
        try:
            yield f"http://127.0.0.1:{self._server.server_address[1]}/{name}/v1"
        finally:
            del self._routes[name]

    def found(self, path: str) -> tuple[_Route | None, str]:
        """The route of a path, and what follows its `/v1`."""
        name, _, rest = path.partition("?")[0].strip("/").partition("/v1/")
        return self._routes.get(name), rest

    def send(self, route: _Route, body: dict[str, Any]) -> httpx.Response:
        """The upstream's answer, begun: the first that is neither busy nor broken, or the last there is time for.

        Raises:
            httpx.TransportError: it could not be reached.
        """
        upstream = route.upstream
        deadline, pause = time.monotonic() + _RETRY_FOR, 0.25
        while True:
            request = self._client.build_request(
                "POST", f"{upstream.base_url}/chat/completions", json=body, headers=dict(upstream.headers)
            )
            over = time.monotonic() + pause > deadline or (route.calls is not None and route.calls.closed)
            try:
                response = self._client.send(request, stream=True)
            except httpx.TransportError as error:
                if over or isinstance(error, httpx.ReadTimeout):
                    raise
            else:
                if over or not (response.status_code == 429 or response.status_code >= 500):
                    return response
                response.close()
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 1024  # every run of a step may begin at once

    def __init__(self, gateway: Gateway) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.gateway = gateway

    def handle_error(self, request: Any, client_address: Any) -> None:
        logger.debug("a connection broke", exc_info=True)


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    _began = False  # with a stream, which nothing can be said in front of any more

    def do_GET(self) -> None:
        route, path = self.server.gateway.found(self.path)
        if route is None or path != "models":
            return self._say(404, "no such route")
        self._answer(200, {"object": "list", "data": [{"id": route.upstream.model, "object": "model"}]})
        return None

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        route, path = self.server.gateway.found(self.path)
        if route is None:
            return self._say(410, "this run is over")
        if path != "chat/completions":
            return self._say(404, "no such route: only chat completions are answered")
        try:
            given = json.loads(body)
            request = route.upstream.request(given)
        except (ValueError, AttributeError):
            return self._say(400, "body: expected a JSON object")
        call = Call() if route.calls is None else route.calls.begin()
        if call is None:
            return self._say(410, "this run is over")
        try:
            self._pass_on(route, request, call)
        except httpx.HTTPError as error:
            call.error = f"the model could not be asked: {type(error).__name__}: {error}"
            self.close_connection = True
            if not self._began:
                self._say(502, call.error)
        except OSError as error:
            call.error = f"the answer could not be handed over: {error}"
            self.close_connection = True
        return None

    def _pass_on(self, route: _Route, request: dict[str, Any], call: Call) -> None:
        answer = Answer(choices=request.get("n") or 1, kept=call.answer)
        response = self.server.gateway.send(route, request)
        with contextlib.closing(response):
            if response.status_code != 200:
                content = response.read()
                call.error = f"status {response.status_code}: {content[:300].decode(errors='replace')}"
                self._send(response.status_code, content, retry=False)
            elif request.get("stream"):
                self._stream(response, answer, call)
            else:
                content = response.read()
                answer.read(content)
                if self._left():
                    call.error = "whoever asked did not wait for the answer"
                    self.close_connection = True
                    return
                if answer.msg_id is None:
                    call.error = "the answer is not whole"
                call.msg_id = answer.msg_id  # before it is sent: the run may end right behind it
                self._send(200, content)

    def _stream(self, response: httpx.Response, answer: Answer, call: Call) -> None:
        self._began = True
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        rest = b""
        for piece in response.iter_bytes():
            *lines, rest = (rest + piece).split(b"\n")
            for line in lines:
                if line.startswith(b"data:"):
                    answer.read(line[5:])
            if answer.ended and not self._left():
                call.msg_id = answer.msg_id  # before [DONE] is sent: the run may end right behind it
            if piece:
                self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
        if call.msg_id is None:
            call.error = "the answer was cut off"
            self.close_connection = True  # without the last chunk: who asked is to know
            return
        self.wfile.write(b"0\r\n\r\n")

    def _left(self) -> bool:
        self.connection.setblocking(False)  # Windows has no MSG_DONTWAIT, and select() no descriptors above 1,023
        try:
            return not self.connection.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return False
        except OSError:
            return True
        finally:
            self.connection.setblocking(True)

    def _say(self, status: int, message: str) -> None:
        self._answer(status, {"error": {"message": message, "type": "invalid_request_error", "code": None}})

    def _answer(self, status: int, body: Any) -> None:
        self._send(status, json.dumps(body).encode(), retry=False)

    def _send(self, status: int, content: bytes, retry: bool = True) -> None:
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(content)))
        if not retry:
            self.send_header("x-should-retry", "false")  # the openai SDK's: it was tried again here
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
        logger.debug(format, *args)
