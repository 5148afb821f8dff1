"""The sockets on which agents are listened for, and those on which the processes of one sidecar meet."""

from __future__ import annotations

import contextlib
import os
import socket
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from slipstream.access.ledger import Ledger
from slipstream.cluster.registration import Registration
from slipstream.errors import ConfigError
from slipstream.proxy.server import BACKLOG
from slipstream.settings.sidecar import Listen

CONTROL, CAPTURES = "control", "captures"
"""Names of the Unix sockets in their folder."""

_LONGEST_TMPDIR = 78
"""Bytes: a Unix socket's path has 107, of which `/slipstream-12345678/captures` takes 29."""


@dataclass(frozen=True, slots=True)
class Sockets:
    """Sockets on which the parts of one sidecar meet.

    Attributes:
        agents: one for each worker, listening on the same address.
        folder: of the Unix sockets; this user alone can enter it.
        control, captures: bound at `folder/control` and `folder/captures`.
        ledger: what each API key has used, in memory that they share.
        registered: what the training side is registered as, which its next process reads.
    """

    agents: tuple[socket.socket, ...]
    folder: Path
    control: socket.socket
    captures: socket.socket
    ledger: Ledger
    registered: Registration

    def refuse_agents(self) -> None:
        """In this process nobody listens for them any more."""
        for listener in self.agents:
            listener.close()


@contextlib.contextmanager
def open_sockets(listen: Listen, workers: int) -> Iterator[Sockets]:
    """Bind everything.

    Raises:
        ConfigError: the address is not free, or there is no place for the Unix sockets.
    """
    with contextlib.ExitStack() as stack:
        agents = [stack.enter_context(_listening(listen.host, listen.port, shared=False))]
        if workers > 1:  # a queue for each, among which the kernel shares out; of this sidecar's, as the first is its
            agents[0].setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            port = agents[0].getsockname()[1]
            agents += [stack.enter_context(_listening(listen.host, port, shared=True)) for _ in range(workers - 1)]
        inner = []
        try:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="slipstream-")))
            for name in (CONTROL, CAPTURES):
                inner.append(stack.enter_context(socket.socket(socket.AF_UNIX)))
                inner[-1].bind(str(folder / name))
                inner[-1].listen(BACKLOG)
        except OSError as error:
            raise ConfigError(
                f"TMPDIR: expected a folder that can be written to and has a path of at most {_LONGEST_TMPDIR} bytes, "
                f"for Unix sockets, found {os.environ.get('TMPDIR', 'none')} ({error})"
            ) from error
        control, captures = inner
        yield Sockets(tuple(agents), folder, control, captures, Ledger(workers), Registration())


def _listening(host: str, port: int, *, shared: bool) -> socket.socket:
    ipv6 = ":" in host
    listener = socket.socket(socket.AF_INET6 if ipv6 else socket.AF_INET)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if ipv6:  # `[::]` is no way in for IPv4
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        if shared:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        listener.bind((host, port))
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise ConfigError(
            f"listen: expected an address that is free on this machine, found {host}:{port} ({error.strerror or error})"
        ) from error
    return listener
