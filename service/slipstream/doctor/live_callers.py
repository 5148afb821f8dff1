"""Problems that the running sidecar sees with its callers: keys that expire."""

from __future__ import annotations

from collections.abc import Iterator

from slipstream.doctor.findings import Finding, Problem
from slipstream.doctor.moment import Moment
from slipstream.terminal.spans import span

KEY_EXPIRES = Problem(
    "live.key_expires",
    "warning",
    why="A key is refused once it has expired, and so are the calls of whoever holds it.",
    fix="Add a new key, hand it out, and take the old one out of `access.keys` or `access.keys_file`: docs/access.md.",
)

PROBLEMS = (KEY_EXPIRES,)


def keys(moment: Moment) -> Iterator[Finding]:
    """Keys that expire soon, or have expired."""
    told = [
        f"{key.name} expires in {span(key.at - moment.now)}"
        if key.at > moment.now
        else f"{key.name} expired {span(moment.now - key.at)} ago"
        for key in moment.expiring
    ]
    if told:
        yield KEY_EXPIRES.at("access.keys", "; ".join(told))
