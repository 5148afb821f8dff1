"""Redirects of an upstream that would take Slipstream's key to another host.

Agents' HTTP clients follow redirects, and of the headers that a request was made with they leave out `Authorization`
and `Cookie` alone when the host is another one: httpx, Node's fetch and curl send `x-slipstream-key` along.
"""

from __future__ import annotations

import re

from slipstream.access.carried import HEADER as KEY_HEADER
from slipstream.http.headers import Headers, has

REDIRECTS = frozenset({300, 301, 302, 303, 307, 308})

_IGNORED = bytes(range(0x21))
"""Stripped at the ends of an address by some clients, tabs and line breaks in its middle too."""

_ABSOLUTE = re.compile(rb"([a-z][a-z0-9+.-]*:)?[/\\]{2,}([^/\\?#]*)", re.IGNORECASE)
"""An address with an authority. A backslash is a slash to browsers and to Node."""

_SCHEME = re.compile(rb"[^/\\?#]*:")
"""Anything else that does not stay at the host, or cannot be known to."""


_LURES = (
    "it redirects to %s, where the agent's client would send Slipstream's key too. If that is the right address, "
    "production.base_url has to be it"
)


def lures_away(answer: Headers, request: Headers, *, keyed: bool) -> str | None:
    """The reason why a redirect is not passed on: the agent would send Slipstream's key to another host.

    Args:
        keyed: the request came with a key, which is not in it any more.
    """
    place = leads_away(answer, request) if keyed or has(request, KEY_HEADER) else None
    return None if place is None else _LURES % place


def leads_away(answer: Headers, request: Headers) -> str | None:
    """The place that a redirect leads to, where that is not the host which the request was sent to.

    Args:
        answer: the fields of the redirect.
        request: those of the request that the agent sent, with its `Host`.
    """
    host = next((value.strip().lower() for name, value in request if name.lower() == b"host"), None)
    for name, value in answer:
        if name.lower() != b"location":
            continue
        place = value.translate(None, _IGNORED)
        absolute = _ABSOLUTE.match(place)
        if absolute is not None:
            if absolute[2].lower() != host:
                return _shown(absolute[0])
        elif _SCHEME.match(place):
            return _shown(place)
    return None


def _shown(place: bytes) -> str:
    """An address without what it may hold of credentials, for people."""
    return place.rpartition(b"@")[2][:200].decode("ascii", "replace")
