"""The two upstreams of the proxy: the production model over the network, the control API over a Unix socket."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar
from urllib.parse import urlsplit

from pydantic import AnyHttpUrl

from slipstream.access.carried import CREDENTIALS
from slipstream.access.scope import BY_SESSION, FIELD, encode
from slipstream.errors import ConfigError
from slipstream.http.connect import Connector
from slipstream.http.errors import UpstreamError
from slipstream.http.headers import request_fields
from slipstream.http.pool import Pool
from slipstream.proxy.gateway import PRODUCTIONS, ROOT
from slipstream.proxy.metrics import ProxyMetrics, SharedCounters
from slipstream.proxy.paths import AllowedPaths
from slipstream.proxy.request import Request
from slipstream.proxy.route import Route
from slipstream.settings.production import Production

P = TypeVar("P", bound=asyncio.Protocol)

_AZURE = b"/openai/"
"""Prefix of Azure's paths: `/openai/deployments/{deployment}/chat/completions?api-version=...`."""

_OWN = {b"/healthz": b'{"status":"ok"}'}
"""Answers of the worker itself: production's traffic must not depend on a training side that is away, and orchestrators
end a container that does not answer."""


def production_route(production: Production, environment: Mapping[str, str], metrics: ProxyMetrics) -> Route:
    """`/v1/x?q` of the sidecar is `production.base_url` + `/x?q`; `/openai/x?q` is the same there, where it is an
    endpoint of Azure's. `production.api_key` goes in the header that the provider reads it from.

    Raises:
        ConfigError: `production.api_key` cannot be sent as a header, or the environment names a proxy that cannot be
            used.
    """
    connector = Connector(production.base_url, production.connect_timeout, environment)
    url = urlsplit(str(AnyHttpUrl(production.base_url)))  # by way of pydantic: all ASCII, however it was written
    host, path = url.netloc.encode("ascii"), url.path.rstrip("/").encode("ascii")
    origin = b"http://" + host if connector.absolute_form else b""
    key = production.api_key
    authorization = None if key is None else _bearer(key.get_secret_value())
    azure = _is_azure(host, path)
    anthropic = _is_anthropic(host)
    proxy_authorization = connector.proxy_authorization
    root = len(ROOT)

    def head(request: Request) -> tuple[bytes, bool]:
        if azure and request.target.startswith(_AZURE):
            return keyed_head(request, b"api-key", request.target)
        target = path + request.target[root:]
        if anthropic:
            return keyed_head(request, b"x-api-key", target)
        if not path and not target.startswith(b"/"):  # `base_url` is a bare host and the request was for /v1
            target = b"/" + target
        fields, chunked = request_fields(request.headers, host=host, authorization=authorization, own=False)
        if proxy_authorization is not None:
            fields += (b"proxy-authorization: ", proxy_authorization, b"\r\n")
        line = (request.method, b" ", origin, target, b" HTTP/1.1\r\n")
        return b"".join((*line, *fields, b"\r\n")), chunked

    def keyed_head(request: Request, name: bytes, target: bytes) -> tuple[bytes, bool]:
        headers = request.headers
        if key is not None:  # a key is no token there, and has a header of its own
            headers = [field for field in headers if field[0].lower() not in CREDENTIALS]
            headers.append((name, key.get_secret_value().encode("ascii")))
        fields, chunked = request_fields(headers, host=host, authorization=None, own=False)
        if proxy_authorization is not None:
            fields += (b"proxy-authorization: ", proxy_authorization, b"\r\n")
        line = (request.method, b" ", origin, target, b" HTTP/1.1\r\n")
        return b"".join((*line, *fields, b"\r\n")), chunked

    return Route(
        "The production model",
        Pool(connector, production.idle_timeout),
        production,
        head,
        metrics,
        tapped=True,
        own={},
        prefixes=(*PRODUCTIONS, _AZURE) if azure else PRODUCTIONS,
        versioned=path.endswith(ROOT),
        paths=None if (paths := production.allowed_paths) is None else AllowedPaths(paths),
    )


def _is_azure(host: bytes, path: bytes) -> bool:
    """Return whether this is an endpoint of Azure OpenAI, or of a gateway with its paths."""
    name = host.rpartition(b":")[0] or host
    return name.endswith(b".azure.com") or path == b"/openai" or path.startswith(_AZURE)


def _is_anthropic(host: bytes) -> bool:
    """Return whether this is Anthropic's own API."""
    name = host.rpartition(b":")[0] or host
    return name == b"anthropic.com" or name.endswith(b".anthropic.com")


@dataclass(frozen=True, slots=True)
class _ControlLimits:
    """Long: a chat of the facade waits for the policy. Whoever asks has a limit of its own."""

    first_byte_timeout: float = 3600.0
    idle_timeout: float = 3600.0


def control_route(path: Path) -> Route:
    """The control API behind the Unix socket at `path`; what goes there is not production's and is not counted."""
    limits = _ControlLimits()
    not_passed_on, by_session = CREDENTIALS | {FIELD}, BY_SESSION.encode()

    def head(request: Request) -> tuple[bytes, bool]:
        # the caller's own keys are production's, and nothing behind this socket has a use for them
        headers = [field for field in request.headers if field[0].lower() not in not_passed_on]
        fields, chunked = request_fields(headers, host=None, authorization=None, own=True)
        fields += (FIELD, b": ", encode(request.scope), b"\r\n")  # after those that `connection` may name away
        prefix = by_session if request.scope.to_be_resolved else b""
        return b"".join((request.method, b" ", prefix, request.target, b" HTTP/1.1\r\n", *fields, b"\r\n")), chunked

    # A connection for each request: the queue of the socket outlives a training side that is replaced, but a kept
    # connection that it closes as it ends takes a request along that it has not read.
    pool = Pool(_UnixConnector(path), limits.idle_timeout, keeps=False)
    return Route("The control API", pool, limits, head, SharedCounters(1).row(0), tapped=False, own=_OWN)


class _UnixConnector:
    def __init__(self, path: Path) -> None:
        self._path = path

    async def open(self, protocol: Callable[[], P]) -> P:
        try:
            _, connected = await asyncio.get_running_loop().create_unix_connection(protocol, str(self._path))
        except OSError as error:
            raise UpstreamError("connect", f"no connection: {error.strerror or error}") from error
        return connected


def _bearer(key: str) -> bytes:
    if not (key.isascii() and key.isprintable()):
        raise ConfigError("production.api_key: printable ASCII characters without a line break; found others")
    return f"Bearer {key}".encode("ascii")
