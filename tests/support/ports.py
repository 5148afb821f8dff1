"""Ports for servers that start later, or again: nobody else's meanwhile."""

from __future__ import annotations

import itertools
import os
import random
import socket

_SYSTEMS = 32768
"""From here on Linux gives ports to whoever asks for any, so to each connection and each other test's server."""
_BLOCK = 4000
"""Ports for each process that runs tests beside others."""


def _ours() -> range:
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    first = _SYSTEMS - _BLOCK * (1 + worker % 4)
    return range(first, first + _BLOCK)


_ports = itertools.cycle(random.sample(_ours(), _BLOCK))


def free_port() -> int:
    """A port of 127.0.0.1 that nobody listens on, and that nobody else is given before it is bound."""
    while True:
        port = next(_ports)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
