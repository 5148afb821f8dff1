"""The part of the store that a request may reach: decided by a worker from the caller's key, and told to the training
side in a header that no caller can set, because workers take it out of every request and alone reach the socket."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from slipstream.tenants import DEFAULT

HEADER = "x-slipstream-scope"
FIELD = HEADER.encode()


class Scope(msgspec.Struct, frozen=True):
    """
    Attributes:
        tenant: whose sessions, tasks, answers and feedback it reaches; None for those of all tenants.
        content: whether it sees what users, agents and models said, and not only ids, states, times and rewards.
        reasons: whether it sees why runs and groups failed, which can quote what was said.
        key: the name of the caller's key, which the audit names; None if no key is asked for.
        digest: the hash of that key in hexadecimal digits, which tells it from another one of its name. Only for the
            routes that sign in.
        session: the hash of the token that the page's cookie holds, not looked up yet; None without such a cookie.
    """

    tenant: str | None
    content: bool
    reasons: bool = False
    key: str | None = None
    digest: str | None = None
    session: str | None = None

    @property
    def to_be_resolved(self) -> bool:
        """Return whether a session is all that speaks for the caller: whose it is, the training side finds out."""
        return self.session is not None and self.key is None


EVERYTHING = Scope(None, content=True, reasons=True)
"""The scope of an admin key without a tenant, and of each caller if no keys are configured."""

FACADE = "(facade)"
"""The name of `facade.api_key` in the audit: none that a key of ours may have."""

LEAST = Scope(DEFAULT, content=False)
"""The scope of a caller without a key on a route that needs none, and of one that nothing is known about."""

BY_SESSION = "/by-session"
"""Prefix that a worker gives the path of a request whose scope is to be resolved. A training side of a release that
knows no sessions has no such route, and does not take the request for one that may do what it asks for."""

encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Scope).decode


def read_scope(values: Sequence[str]) -> Scope:
    """The scope that the header says; the least one unless it stands there once and can be read."""
    try:
        return _decode(values[0]) if len(values) == 1 else LEAST
    except msgspec.MsgspecError:
        return LEAST
