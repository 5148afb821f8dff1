"""The keys that a request carries, and the request without them.

Whatever leaves a worker, for production or for the training side, leaves without a key of ours: the fields that carry
one are taken out here, before anything else looks at the request.
"""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass

from slipstream.access.keys import KEY, PREFIX
from slipstream.proxy.headers import Headers

HEADER = b"x-slipstream-key"

CREDENTIALS = frozenset({b"authorization", b"api-key", b"x-api-key", b"x-goog-api-key", b"proxy-authorization"})
"""Where OpenAI's, Azure's, Anthropic's and Google's clients put the key of a model, and ours where that is easier."""


@dataclass(frozen=True, slots=True)
class Carried:
    """
    Attributes:
        keys: what is said to be a key of ours, each once.
        headers: the request's fields without those that carry one.
        replaced: a key of ours stood where production's is looked for, and nothing else stands there now.
    """

    keys: frozenset[bytes]
    headers: Headers
    replaced: bool


def carried(headers: Headers) -> Carried | None:
    """What the fields carry; None where that is nothing, as is found out without a copy."""
    places = [
        place
        for place, (name, value) in enumerate(headers)
        if PREFIX in value or (len(name) == 16 and name.lower() == HEADER) or (len(name) == 13 and _basic(value))
    ]
    if not places:
        return None
    keys, taken, credentials = set(), set(), False
    for place in places:
        name, value = headers[place][0].lower(), headers[place][1].strip()
        if name == HEADER:
            keys.add(value)
        elif name in CREDENTIALS:
            key = _credential(value)
            if not key.startswith(PREFIX) and not KEY.search(key):
                continue
            keys.add(key)
            credentials = True
        elif not KEY.search(value):
            continue
        taken.add(place)
    left = [field for place, field in enumerate(headers) if place not in taken]
    return Carried(
        keys=frozenset(keys),
        headers=left,
        replaced=credentials and not any(name.lower() in CREDENTIALS for name, _ in left),
    )


def bearer(value: bytes) -> bytes | None:
    """The token of an `authorization: Bearer ...`; None for another scheme."""
    scheme, _, token = value.strip().partition(b" ")
    return token.strip() if scheme.lower() == b"bearer" else None


def password(value: bytes) -> bytes | None:
    """The password of an `authorization: Basic ...`; None for another scheme, and for what is none."""
    value = value.strip()
    if not _basic(value):
        return None
    try:
        return base64.b64decode(value[5:].strip(), validate=True).partition(b":")[2]
    except binascii.Error:
        return None


def _basic(value: bytes) -> bool:
    return value[:5].lower() == b"basic"


def _credential(value: bytes) -> bytes:
    """The token in a field's value, whatever its scheme."""
    found = password(value) if _basic(value) else bearer(value)
    return value if found is None else found
