"""How uvicorn must be set up for the proxy to stay unnoticed."""

from __future__ import annotations

import re
from typing import Any

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

_OFFER_OF_HTTP2 = re.compile(rb"\r\nupgrade:[ \t]*h2c[ \t]*(?=\r\n)", re.IGNORECASE)


class Http11Protocol(HttpToolsProtocol):
    """uvicorn's protocol, deaf to the offer of HTTP/2 that Java's HttpClient makes with each request by default.

    RFC 9110, section 7.8, lets a server ignore an offer to upgrade. llhttp cannot: it ends the request at its head,
    and the body is lost. So the offer is taken out of a head before it is parsed. A head that comes in several pieces
    keeps it, and is refused by the proxy.
    """

    def data_received(self, data: bytes) -> None:
        # `more_body`: these are bytes of a request's body, which stay as they are
        if b"h2c" in data and not (self.cycle is not None and self.cycle.more_body):
            head, end, rest = data.partition(b"\r\n\r\n")
            data = _OFFER_OF_HTTP2.sub(b"", head + end) + rest
        super().data_received(data)


UVICORN_OPTIONS: dict[str, Any] = {
    "http": Http11Protocol,
    "loop": "uvloop",
    "ws": "none",  # production refuses websockets in words and the control API has none
    "server_header": False,  # production's own headers go through, no others
    "date_header": False,
    "access_log": False,  # a quarter of the throughput; the metrics count instead
    "proxy_headers": False,  # nothing here reads the client's address, and headers must stay as they are
    "log_config": None,  # the sidecar sets up logging itself
    "timeout_keep_alive": 75,  # longer than agents keep idle connections, so that none sends into a closing one
    "backlog": 4096,
    "timeout_graceful_shutdown": 20,  # seconds for answers under way; without it one endless stream prevents the end
}


def server_config(app: ASGIApp, host: str, port: int, **overrides: Any) -> uvicorn.Config:
    """uvicorn's configuration for `app` on `host:port`; `overrides` are further options of uvicorn."""
    return uvicorn.Config(app, host=host, port=port, **{**UVICORN_OPTIONS, **overrides})
