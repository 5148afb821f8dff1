"""Problems that the running sidecar sees with the receivers of its webhooks."""

from __future__ import annotations

from collections.abc import Iterator

from slipstream.doctor.findings import Finding, Problem
from slipstream.doctor.moment import Moment
from slipstream.terminal.spans import span

_LONG = 600.0
"""Seconds for which an event may be tried before it is a problem: longer than a restart of a receiver takes."""

RECEIVER_FAILS = Problem(
    "live.webhook_receiver_fails",
    "warning",
    why="A receiver of webhooks does not take an event. It is tried for a day, then it is dropped.",
    fix="Look into the receiver's log, and compare its `url` and `secret` in `webhooks.receivers`.",
)

PROBLEMS = (RECEIVER_FAILS,)


def receivers(moment: Moment) -> Iterator[Finding]:
    """Receivers that have not taken an event for long, although they were told."""
    for each in moment.receivers:
        if each.failing_since is not None and (age := moment.now - each.failing_since) >= _LONG:
            found = f"{each.receiver}: {each.count} events wait, one for {span(age)}; its last try: {each.error}"
            yield RECEIVER_FAILS.at("webhooks.receivers", found)
