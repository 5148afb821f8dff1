"""The rights of a key: what ends them, and which requests they are for. The guard of a worker goes by them, and the
training side for the page's sessions."""

from __future__ import annotations

import time

from slipstream.access.keyring import Key
from slipstream.access.ledger import Book
from slipstream.access.roles import roles_for
from slipstream.proxy.refusal import Refusal, key_too_often

_EXPIRED = "Slipstream: this key (%s) expired at %s; ask the operator of the sidecar for a new one."


def expired(key: Key, now: float) -> str | None:
    """The word that a key has expired; None for one that has not.

    Args:
        now: Unix seconds.
    """
    if key.expires is None or now < key.expires:
        return None
    return _EXPIRED % (key.name, time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(key.expires)))


def role_missing(key: Key, method: bytes, path: str) -> Refusal | None:
    """The answer to a request that no role of the key may send; None for one that it may."""
    roles = roles_for(method, path)
    if not key.roles.isdisjoint(roles):
        return None
    text = f"Slipstream: this needs a key with the role {' or '.join(roles)}; this one ({key.name}) has "
    text += ", ".join(sorted(key.roles))
    return Refusal(403, "slipstream_role_missing", text, kind="permission_error")


def too_often(key: Key, book: Book) -> Refusal | None:
    """Count a request of the key. Returns the answer to one beyond its limit."""
    if key.requests_per_minute is None:
        return None
    wait = book.within(key.name, key.requests_per_minute)
    return None if wait is None else key_too_often(key.name, key.requests_per_minute, wait)
