"""HTTP clients whose calls carry the context to the sidecar.

The hooks see the request alone, and use nothing of it but its URL and headers. So they fit each dialect, and both httpx
and httpx2, which newer SDKs of OpenAI and Anthropic are built on.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any
from urllib.parse import unquote, urlsplit

import httpx

from slipstream_client.config import settings
from slipstream_client.context import Context, Replay, current
from slipstream_client.errors import SlipstreamError

logger = logging.getLogger("slipstream_client")

MAX_HEADER = 4096
"""Bytes of metadata, and of labels, in a header: servers and gateways refuse headers of 8 or 16 KiB."""

_LOOPBACK = {"localhost", "127.0.0.1", "::1"}
_HEADERS = tuple(b"x-slipstream-" + name for name in (b"task-id", b"session-id", b"mark", b"metadata", b"select"))
_ROOT = re.compile(r"(?:/v1|/openai(?:/v1|/deployments/[^/]+)?)(?=/|$)")
"""Roots below which the sidecar passes calls on to production: its own, and those of clients of Azure OpenAI."""
_LOOKUPS = {"/embeddings", "/moderations", "/rerank", "/messages/count_tokens", "/responses/input_tokens"}
"""Paths for which a replay asks production, as it runs tools that only read: the policy model cannot answer them."""

_OURS = "slipstream_client"
"""The request extension that names the headers which the hook has set: redirects take them along."""

_warned = False


def http_client(**options: Any) -> httpx.Client:
    """An `httpx.Client` whose requests to the sidecar carry the context; for any framework that takes one.

    Args:
        options: of `httpx.Client`. Timeout, limits and redirects are as in the openai SDK unless they are given;
            hooks of your own are called after ours.
    """
    return httpx.Client(**_as_the_sdk(options, [before_request]))


def async_http_client(**options: Any) -> httpx.AsyncClient:
    """The asynchronous twin of `http_client`; several event loops may use it.

    Args:
        options: of `httpx.AsyncClient`; `transport`, and what `mounts` holds, are functions that make a transport,
            because each event loop needs its own.

    Raises:
        ValueError: a transport is given in place of a function.
    """
    from slipstream_client.per_loop import per_loop

    client: httpx.AsyncClient = per_loop(httpx.AsyncClient)(**_as_the_sdk(options, [before_async_request]))
    return client


def _as_the_sdk(options: dict[str, Any], hooks: list[Callable[..., Any]]) -> dict[str, Any]:
    own = options.get("event_hooks") or {}
    return {
        "timeout": httpx.Timeout(600, connect=5),  # httpx' own 5 seconds are too few for a model
        "limits": httpx.Limits(max_connections=1000, max_keepalive_connections=100),
        "follow_redirects": True,
        **options,
        "event_hooks": {**own, "request": [*hooks, *own.get("request", [])]},
    }


async def before_async_request(request: Any) -> None:
    """The hook for asynchronous clients, of httpx or httpx2."""
    before_request(request)


def before_request(request: Any) -> None:
    """The hook for synchronous clients: whatever goes wrong in it, the request goes as it was.

    In a replay it raises instead: an agent that runs for training may fail, and must not call the production model.
    """
    global _warned
    context = current()
    try:
        _carry(request, context)
    except Exception as error:
        if context.replay is not None:
            if context.ended:
                logger.error("%s", error)
            raise
        if not _warned:
            _warned = True
            logger.warning("a call goes without its marks (said once)", exc_info=True)


def _carry(request: Any, context: Context) -> None:
    before = request.extensions.pop(_OURS, ())  # redirected: what was right for the sidecar goes nowhere else
    if before:
        _replace_headers(request, before, {})
    below = path_at_sidecar(request.url)
    if below is None:
        return
    if context.ended and context.replay is not None:
        run = context.replay
        raise SlipstreamError(
            f"run {run.run_id} of task {run.task_id} has ended, and something that it left behind called a model. "
            "Start workers that serve several calls outside of replays: 'Threads and tasks' in docs/client.md"
        )
    headers = {name.encode(): value.encode() for name, value in settings().call_headers.items()}
    root = _ROOT.match(below)
    if root is None:
        if context.replay is not None:
            _expect_own(context.replay, below)
        _set_headers(request, headers)
        return
    path = below[root.end() :]
    if context.replay is not None:
        _set_headers(request, headers, instead_of=_HEADERS)
        if path in _LOOKUPS:
            return
        query = request.url.query
        target = f"{urlsplit(settings().url).path}{context.replay.path}{path}".encode("ascii")
        request.url = request.url.copy_with(raw_path=target + b"?" + query if query else target)
        return
    _set_headers(request, headers | headers_of(context))
    if context.block is not None:
        context.block.carried_by(context.task_id)


def _expect_own(run: Replay, path: str) -> None:
    """Raise SlipstreamError for a path of the sidecar that is not below the run's own."""
    if not unquote(path).startswith(f"/runs/{run.task_id}/{run.run_id}/"):
        raise SlipstreamError(
            f"run {run.run_id} of task {run.task_id} asked the sidecar for {path}, which is no part of a replay: its "
            "calls of a model go to /v1 or to Azure's paths. Ask slipstream.is_replay() before any other request"
        )


def _set_headers(request: Any, headers: Mapping[bytes, bytes], *, instead_of: Iterable[bytes] = ()) -> None:
    if headers or instead_of:
        _replace_headers(request, {*headers, *instead_of}, headers)
    if headers:
        request.extensions = {**request.extensions, _OURS: tuple(headers)}


def _replace_headers(request: Any, names: Iterable[bytes], headers: Mapping[bytes, bytes]) -> None:
    """Make the headers anew: httpx decides once how those of a request are encoded, and ours may be any text."""
    others = [(name, value) for name, value in request.headers.raw if name.lower() not in names]
    request.headers = type(request.headers)([*others, *headers.items()])


def headers_of(context: Context) -> dict[bytes, bytes]:
    """Return the headers that the sidecar reads in front of a call. Values too long for a header are left out."""
    said = (
        context.task_id or "",
        context.session_id or "",
        ",".join(context.labels) if fits_header(context.labels) else "",
        _as_json(dict(context.metadata)) if context.metadata and fits_header(context.metadata) else "",
        "never" if context.never else "",
    )
    return {name: value.encode() for name, value in zip(_HEADERS, said, strict=True) if value}


def fits_header(value: Mapping[str, Any] | tuple[str, ...]) -> bool:
    """Return whether metadata, or labels, are short enough to go with a call."""
    return len(_as_json(value if isinstance(value, tuple) else dict(value))) <= MAX_HEADER


def _as_json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))  # in ASCII


def path_at_sidecar(url: Any) -> str | None:
    """Return the part of a URL behind the sidecar's address, percent-encoded as it is; None for other URLs."""
    sidecar = urlsplit(settings().url)
    port = sidecar.port or (443 if sidecar.scheme == "https" else 80)
    if url.scheme != sidecar.scheme or (url.port or (443 if url.scheme == "https" else 80)) != port:
        return None
    if url.host != sidecar.hostname and not {url.host, sidecar.hostname} <= _LOOPBACK:
        return None
    path: str = url.raw_path.split(b"?", 1)[0].decode("ascii")
    return path.removeprefix(sidecar.path) if path.startswith(f"{sidecar.path}/") else None
