"""Open files: how many the section `limits` needs, how many a process may have, and the limits that fit into those.

A connection beyond what the system allows is not refused but broken: the socket cannot be taken, and whoever is served
has no descriptor for production. So a worker keeps to limits within which each request finds its descriptors.
"""

from __future__ import annotations

import resource

from slipstream.proxy.limits import AgentLimits
from slipstream.settings.sidecar import Limits

_OTHERS = 256
"""Descriptors of a worker that are no agent's and no request's, and some to spare."""

_FEW = 1000
"""Connections. Of the default limits nothing is said while at least so many fit."""

FIX = (
    "Raise the limit of open files (`ulimit -Hn`, `LimitNOFILE=` of systemd, `ulimits.nofile` of docker compose), or "
    "lower `limits.connections` and `limits.streams`."
)
"""Advice to the operator about a shortage of open files."""


def allowed() -> int | None:
    """Return how many files a process may open after `raise_limit`; None for no limit."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    return None if most == resource.RLIM_INFINITY else most


def raise_limit() -> None:
    """Take all that the system lets this process have, where that is a number; many give it 1024 unless it asks."""
    if (most := allowed()) is not None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def needed(limits: Limits, workers: int) -> int:
    """Descriptors of a worker whose limits are all reached: one a connection, and one a request on the way to
    production and to the control API each, of which there are no more than connections."""
    worker = AgentLimits.share(limits, workers=workers)
    return worker.most_connections + min(2 * worker.streams, worker.most_connections) + _OTHERS


def fitted(limits: Limits, workers: int, most: int | None) -> Limits:
    """The limits, or smaller ones where a worker may not open as many files as they need."""
    if most is None or needed(limits, workers) <= most:
        return limits
    worker = AgentLimits.share(limits, workers=workers)
    room = most - min(_OTHERS, most // 4)
    streams = max(1, min(worker.streams, room // 4))
    connections = max(1, min(worker.connections, (room - 2 * streams - 4) * 32 // 33))
    return limits.model_copy(update={"connections": connections * workers, "streams": streams * workers})


def shortage(limits: Limits, workers: int, most: int | None) -> str | None:
    """The figures where the limits do not fit, for people; None where they do, or where defaults still leave enough."""
    fits = fitted(limits, workers, most)
    chosen = (limits.connections, limits.streams) != (Limits().connections, Limits().streams)
    if fits is limits or (fits.connections >= _FEW and not chosen):
        return None
    return (
        f"a process may open {most} files, and a worker needs {needed(limits, workers)} for limits.connections "
        f"{limits.connections} and limits.streams {limits.streams}: it keeps to {fits.connections} and {fits.streams}"
    )
