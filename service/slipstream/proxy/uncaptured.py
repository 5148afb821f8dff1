"""Calls of a model that capture cannot read, by route: everything that is sent to production in no known dialect."""

from __future__ import annotations

from typing import Literal, get_args

from slipstream.dialects.form import dialect_of

UncapturedRoute = Literal["completions", "threads", "embeddings", "audio", "images", "files", "other"]
"""The route of a call, as a metric label: few, whatever the callers ask for."""

_BY_NAME: dict[bytes, UncapturedRoute] = {name.encode(): name for name in get_args(UncapturedRoute)}
_CALLS = frozenset({b"completions", b"embeddings"})
"""Routes whose calls are sent to the very path; what lies below it is about a call, such as its token count."""
_FOLDERS = frozenset({b"threads", b"audio", b"images", b"files"})
"""Routes whose calls are sent to paths below them."""


def uncaptured_route(target: bytes) -> UncapturedRoute | None:
    """The route of a POST to this target; None for a call in a dialect that capture reads."""
    path = target.partition(b"?")[0]
    if dialect_of(path.decode("latin-1")) is not None:
        return None
    segments = path.strip(b"/").split(b"/")
    for segment in segments:
        if segment in _FOLDERS:
            return _BY_NAME[segment]
    return _BY_NAME[segments[-1]] if segments[-1] in _CALLS else "other"
