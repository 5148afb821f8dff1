"""The paths of the production model's API that requests may be for: `production.paths`.

Servers differ in how they read a path: some decode `%2e` and `%2f` before they resolve dots, some after, some twice.
So a path passes only if each way to read it is allowed. What is left is sent as it came.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from urllib.parse import unquote_to_bytes

from slipstream.proxy.refusal import Refusal

_MOST_DECODINGS = 4
"""Layers of percent-encoding that are taken off; a path with more of them is not one that a client makes."""

_UNREADABLE = re.compile(rb"[\x00-\x20\x7f]|%u[0-9a-f]{4}", re.IGNORECASE)
"""Characters at which servers end a path, and an encoding that only some know."""

_LONGEST_REMEMBERED = 512
"""Bytes of a method and a path whose answer is kept, so that many long ones take no memory."""

_LONGEST_SHOWN = 200
"""Characters of a path that an answer quotes."""

_AZURE = re.compile(rb"/openai/(?:deployments/[^/]*/|v1/)?")
_VERSION = re.compile(rb"(?:/v1(?=/|$))+/*")
"""A client with one `/v1` too many is told so elsewhere; where it is passed on, the API's paths begin behind it."""


class AllowedPaths:
    """
    Args:
        paths: as `production.paths` has them.
    """

    def __init__(self, paths: Sequence[str]) -> None:
        split = [path.rpartition(" ") for path in paths]
        self._allowed = [(method.encode(), path.encode()) for method, _, path in split]
        self._said = ", ".join(paths)
        self._remembered = lru_cache(maxsize=1024)(self._refusal)

    def refusal(self, method: bytes, path: bytes) -> Refusal | None:
        """The answer to a request for this path, which is not let through; None if it is.

        Args:
            path: as it came, without the query.
        """
        short = len(method) + len(path) <= _LONGEST_REMEMBERED
        return self._remembered(method, path) if short else self._refusal(method, path)

    def _refusal(self, method: bytes, path: bytes) -> Refusal | None:
        if all(each is not None and self._allows(method, each) for each in _readings(path)):
            return None
        shown = f"{method.decode('ascii')} {path[:_LONGEST_SHOWN].decode('latin-1')}"
        text = f"Slipstream: {shown} is not among production.paths, the paths of the production model that callers may "
        text += f"use here: {self._said}."
        return Refusal(403, "slipstream_path_forbidden", text, kind="permission_error")

    def _allows(self, method: bytes, path: bytes) -> bool:
        asked = b"GET" if method == b"HEAD" else method
        for only, allowed in self._allowed:
            if only not in (b"", asked):
                continue
            if allowed == b"*" or path == allowed:
                return True
            if allowed.endswith(b"/*") and path.startswith(allowed[:-1]) and len(path) >= len(allowed):
                return True
        return False


def _readings(path: bytes) -> Iterator[bytes | None]:
    """The paths below `/v1/` that servers can read in this; None for one that no client makes."""
    for _ in range(_MOST_DECODINGS):
        if _UNREADABLE.search(path) or path.startswith(b"//") or not _is_text(path):
            yield None
            return
        yield _below(path)
        yield _below(_resolved(path))
        decoded = unquote_to_bytes(path)
        if decoded == path:
            return
        path = decoded
    yield None


def _is_text(path: bytes) -> bool:
    """Return whether it is UTF-8; what is not may be read as dots and slashes (`%c0%ae`)."""
    try:
        path.decode()
    except UnicodeDecodeError:
        return False
    return True


def _resolved(path: bytes) -> bytes:
    """The path without dot segments, `..;x` (which Java's servers read as `..`) and doubled slashes among them."""
    left: list[bytes] = []
    for segment in path.replace(b"\\", b"/").split(b"/"):
        name = segment.partition(b";")[0]
        if name == b"..":
            left[-1:] = []
        elif name not in (b"", b"."):
            left.append(segment)
    return b"/" + b"/".join(left)


def _below(path: bytes) -> bytes:
    """The path below the API's root, without doubled slashes."""
    path = re.sub(rb"/+", b"/", path)
    root = _VERSION.match(path) or _AZURE.match(path)
    return path[root.end() :] if root else path
