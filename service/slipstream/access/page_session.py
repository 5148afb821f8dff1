"""The cookie by which the page is signed in.

A session has a random token of 32 bytes. The browser alone holds it; the store has its SHA-256. The token has the form
of our keys, so that whatever takes a key out of a request, a log or a body takes it out too.

Browsers do not keep cookies of one host's ports apart. The cookie's name therefore holds the port, so that two sidecars
of one host do not sign each other out, and a worker takes the cookies of all sidecars out of a request. The cookie has
no `Path`: a browser then sends it to the folder of the address that set it (RFC 6265, section 5.1.4), which is the
folder of the page below the base path of any proxy.
"""

from __future__ import annotations

import re
import secrets
from typing import NamedTuple

from slipstream.access.keys import PREFIX, digest

PATH = "/session"
"""Route that signs in and out, and tells who is signed in."""

COOKIE = b"slipstream_session"
_NAME = re.compile(rb"slipstream_session(?:_[0-9]{1,5})?")
_PORT = re.compile(rb":([0-9]{1,5})$")
_TOKEN = re.compile(rb"slp_session_[A-Za-z0-9_-]{43}")


class Cookies(NamedTuple):
    """A `cookie` field, taken apart.

    Attributes:
        sessions: the tokens of sidecars' pages, by the cookie's name.
        rest: the field's value without them; empty if nothing is left.
    """

    sessions: dict[bytes, bytes]
    rest: bytes


def new_token() -> bytes:
    """Make the secret of a new session."""
    return PREFIX + b"session_" + secrets.token_urlsafe(32).encode()


def hash_of(token: bytes) -> str:
    """Return what the store has of a token: 64 hexadecimal digits."""
    return digest(token).hex()


def cookie_name(host: bytes) -> bytes:
    """Return the name of the cookie of a sidecar that is called by this `Host`."""
    port = _PORT.search(host.strip())
    return COOKIE if port is None else COOKIE + b"_" + port[1]


def taken_apart(value: bytes) -> Cookies:
    """Tell the sessions in a `cookie` field's value from the other cookies, which stay as they came.

    Of two cookies with one name the first counts: browsers send that of the longer path first.
    """
    sessions: dict[bytes, bytes] = {}
    others = []
    for pair in value.split(b";"):
        name, _, content = pair.strip().partition(b"=")
        if not _NAME.fullmatch(name):
            others.append(pair)
        elif _TOKEN.fullmatch(content):
            sessions.setdefault(name, content)
    return Cookies(sessions, b";".join(others).strip())
