"""The keys that a request carries, and the request without them.

Whatever leaves a worker, for production or for the training side, leaves without a key of ours: the fields that carry
one are taken out here, before anything else looks at the request.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import NamedTuple

from slipstream.access.keys import KEY, PREFIX
from slipstream.access.page_session import taken_apart
from slipstream.http.headers import Headers

HEADER = b"x-slipstream-key"
_BASIC = b"basic"
_ONE_ALPHABET = bytes.maketrans(b"-_", b"+/")

CREDENTIALS = frozenset({b"authorization", b"api-key", b"x-api-key", b"x-goog-api-key", b"proxy-authorization"})
"""Headers in which the clients of OpenAI, Azure, Anthropic and Google send a model's key, or one of ours if that is
easier."""


class Carried(NamedTuple):
    """Credentials and tenant that a request carries.

    Attributes:
        keys: what is said to be a key of ours, each once.
        headers: the request's fields without those that carry one.
        replaced: a key of ours stood where production's is looked for, and nothing else stands there now.
        sessions: the tokens of sidecars' pages, by the names of their cookies.
        basic: a key of ours came as `Basic`, which a browser may have kept, and sends for pages of other sites too.
    """

    keys: frozenset[bytes]
    headers: Headers
    replaced: bool
    sessions: Mapping[bytes, bytes]
    basic: bool


def carried(headers: Headers) -> Carried | None:
    """Return the credentials that the fields carry, or None if there are none; that case needs no copy."""
    suspects = [  # `find`, because `in` takes what it looks for for a number first, and is twice as slow
        field
        for field in headers
        if field[1].find(PREFIX) >= 0
        or (size := len(field[0])) == 16
        or (size == 13 and field[1][:5].lower() == _BASIC)
    ]
    if not suspects:
        return None
    keys, taken, credentials, basic = [], [], False, False
    cookies: Headers = []
    sessions: dict[bytes, bytes] = {}
    for field in suspects:
        name, value = field[0].lower(), field[1].strip()
        if name == HEADER:
            keys.append(value)
        elif name in CREDENTIALS:
            key = _credential(value)
            if not key.startswith(PREFIX) and not KEY.search(key):
                continue
            keys.append(key)
            credentials = True
            basic = basic or _basic(value)
        elif not KEY.search(value):
            continue
        elif name == b"cookie":
            found, rest = taken_apart(value)
            sessions = {**found, **sessions}
            if rest and not KEY.search(rest):
                cookies.append((field[0], rest))
        taken.append(field)
    if not taken:
        return None
    left = [field for field in headers if field not in taken] + cookies
    replaced = credentials and not any(name.lower() in CREDENTIALS for name, _ in left)
    return Carried(frozenset(keys), left, replaced, sessions, basic)


def bearer(value: bytes) -> bytes | None:
    """The token of an `authorization: Bearer ...`; None for another scheme."""
    scheme, _, token = value.strip().partition(b" ")
    return token.strip() if scheme.lower() == b"bearer" else None


def password(value: bytes) -> bytes | None:
    """The password of an `authorization: Basic ...`; None for another scheme."""
    value = value.strip()
    return _decoded(value).partition(b":")[2] if _basic(value) else None


def _basic(value: bytes) -> bool:
    return value[:5].lower() == _BASIC


def _decoded(value: bytes) -> bytes:
    """Decode a `Basic ...` value, in either alphabet of base64; empty if it is not base64."""
    try:
        return base64.b64decode(value[5:].strip().translate(_ONE_ALPHABET) + b"==")
    except binascii.Error:
        return b""


def _credential(value: bytes) -> bytes:
    """The token in a field's value, whatever its scheme. A key of ours may stand in a Basic's user name as well."""
    if _basic(value):
        text = _decoded(value)
        ours = KEY.search(text)
        return ours[0] if ours else text.partition(b":")[2]
    token = bearer(value)
    return value if token is None else token
