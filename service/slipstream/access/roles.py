"""Roles, and the requests that each may send. A request without a line here is for `admin` alone."""

from __future__ import annotations

import re
from urllib.parse import unquote

import httptools

from slipstream.access.page_session import PATH as SESSION
from slipstream.access.settings import Role

OPEN = frozenset({"/healthz", "/readyz"})
"""Paths that orchestrators ask without a key. They only tell that the sidecar's parts are there."""

_ANNOTATORS = frozenset({(b"GET", "/preferences/next"), (b"POST", "/preferences")})

_FINISH = re.compile(r"/runs/.+/[0-9]+/finish", re.DOTALL)

_OPERATED = re.compile(
    r"POST /(?:rollouts|experiments|evaluations|serving/(?:share|kill|revive)"
    r"|rollouts/[^/]+/(?:pause|resume|advance|promote|approve|abort)|experiments/[^/]+/stop)"
    r"|(?:POST|DELETE) /versions/[^/]+/keep"
    r"|(?:PUT|DELETE) /aliases/[^/]+"
)
"""Requests that decide which version answers users, is kept, or is evaluated. One that is added to such a route is for
`admin` alone until it stands here."""

_EVERY: tuple[Role, ...] = ("proxy", "feedback", "runs", "annotator", "metrics", "viewer", "operator", "admin")

_READERS: tuple[Role, ...] = ("metrics", "viewer", "operator", "admin")


_READ = (
    "/tasks", "/costs", "/rollouts", "/experiments", "/versions", "/aliases", "/evaluations", "/learning",
)  # fmt: skip
"""Paths that readers may get, and, but for the first two, what is below them."""


def roles_for(method: bytes, path: str) -> tuple[Role, ...]:
    """The roles that may send this request, `admin` last: it may send any."""
    if path.startswith("/v1/") or path == "/v1":
        return "proxy", "admin"
    if path.startswith("/runs/"):
        if method == b"POST" and _FINISH.fullmatch(path):
            return "proxy", "feedback", "runs", "admin"
        return "proxy", "runs", "admin"
    if path == SESSION:
        return _EVERY
    if path == "/commit" and method == b"POST":
        return "runs", "admin"
    if path in ("/feedback", "/marks") or path.startswith("/feedback/"):
        return "feedback", "admin"
    if (method, path) in _ANNOTATORS:
        return "annotator", "admin"
    if path in ("/metrics", "/status", "/events", "/serving", "/preferences") and method in (b"GET", b"HEAD"):
        return _READERS
    if method == b"GET" and (
        path in _READ or path.startswith(tuple(f"{each}/" for each in _READ if each not in ("/tasks", "/costs")))
    ):
        return _READERS
    if method == b"GET" and path.startswith(("/tasks/", "/calls/")):
        return "feedback", *_READERS
    if method == b"GET" and (path == "/datasets" or path.startswith("/datasets/")):
        return "operator", "admin"  # a data set is made of all tenants' conversations, and a reader's key is of one
    if _OPERATED.fullmatch(f"{method.decode('latin-1')} {path}"):
        return "operator", "admin"
    return ("admin",)


def needs_no_key(method: bytes, path: str) -> bool:
    """Return whether anybody may ask: for the page with its files, and for who is signed in. A sign-out needs no more
    than its session."""
    if path == SESSION:
        return method in (b"GET", b"DELETE")
    return method in (b"GET", b"HEAD") and (path == "/" or path.startswith("/ui/"))


def takes_sessions(method: bytes, path: str) -> bool:
    """Return whether the page may send this in its session. What agents send needs a key, and so does a sign-in; the
    page's files need neither, with whichever role somebody is signed in."""
    if path == SESSION:
        return method != b"POST"
    if needs_no_key(method, path):
        return False
    return path != "/v1" and not path.startswith(("/v1/", "/runs/", "/explorer/"))


def is_facade(path: str) -> bool:
    """Return whether this is one of the routes of Trinity's own HTTP."""
    return path.startswith("/explorer/")


def control_path(target: bytes) -> str:
    """The path by which the control API will choose a route: read as uvicorn reads it, so that both see the same."""
    try:
        path = httptools.parse_url(target).path or b""
    except httptools.HttpParserInvalidURLError:
        return ""
    text = path.decode("latin-1")
    return unquote(text) if "%" in text else text
