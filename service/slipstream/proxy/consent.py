"""The one place that decides on consent: may a call be stored."""

from __future__ import annotations

from slipstream.http.headers import Headers, own_fields

CONSENT = (b"x-slipstream-capture", b"x-slipstream-select")
"""Headers in which a caller refuses, in lower case."""


def may_capture(headers: Headers, *, key: bool = True) -> bool:
    """Return whether the caller lets this call be stored; asked before anything is copied.

    A call with a header `x-slipstream-capture` is not kept, whatever its value: a word that we misread must not have a
    conversation stored. `x-slipstream-select: never` says the same.

    Args:
        key: what the caller's API key says, `capture` of `access.keys`.
    """
    if not key:
        return False
    capture, select = CONSENT
    for name, value in own_fields(headers):
        if name == capture or (name == select and value.strip().lower() == b"never"):
            return False
    return True
