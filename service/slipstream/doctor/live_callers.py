"""Problems that the running sidecar sees with its callers: keys that expire, and feedback unlike the others'."""

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

FEEDBACK_STANDS_OUT = Problem(
    "live.feedback_stands_out",
    "warning",
    why="Whoever gives rewards decides what the policy learns. The rewards of this key differ strongly from those of "
    "the others: it may judge by another measure, or try to mislead.",
    fix="Look at its feedback (`slipstream audit --by NAME`). Until that is understood, lower its `weight` in "
    "`feedback.keys`; 0 takes its effect.",
)

PROBLEMS = (KEY_EXPIRES, FEEDBACK_STANDS_OUT)


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


def feedback(moment: Moment) -> Iterator[Finding]:
    """Keys whose mean reward is far from that of the others."""
    told = [
        f"{each.key} gives {each.mean:.2f} on average ({each.posts} posts), others {each.usual:.2f}"
        for each in moment.feedback
        if each.state == "stands_out"
    ]
    if told:
        yield FEEDBACK_STANDS_OUT.at("feedback.keys", "; ".join(told))
