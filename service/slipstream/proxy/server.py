"""How uvicorn must be set up for the proxy to stay unnoticed."""

from __future__ import annotations

from typing import Any

import uvicorn
from starlette.types import ASGIApp

UVICORN_OPTIONS: dict[str, Any] = {
    "http": "httptools",
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
