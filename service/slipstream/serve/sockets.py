"""The sockets on which agents are listened for, and those on which the proxy and the training side meet."""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from slipstream.access.settings import Access, problem_of_exposure
from slipstream.errors import ConfigError
from slipstream.proxy.server import BACKLOG
from slipstream.serve.handover import Half, Handover
from slipstream.settings.listen import Listen
from slipstream.settings.sidecar import Settings

CONTROL, CAPTURES = "control", "captures"
"""Names of the Unix sockets in their folder."""

_LONGEST_TMPDIR = 78
"""Bytes: a Unix socket's path has 107, of which `/slipstream-12345678/captures` takes 29."""

_FIRST_PASSED = 3
"""Descriptor of the first socket that systemd passes (sd_listen_fds(3))."""


@dataclass(frozen=True, slots=True)
class Sockets:
    """Sockets of one program of the sidecar.

    Attributes:
        agents: listening for agents; none without the proxy.
        listen: the address in the configuration; None if a socket unit of systemd has it.
        folder: of the Unix sockets; this user alone can enter it.
        temporary: the folder is removed at the end.
        control, captures: bound at `folder/control` and `folder/captures`; None without the training side.
        locks: descriptors that say that this program has the folder; none where it is temporary, or the predecessor's.
    """

    agents: tuple[socket.socket, ...]
    listen: str | None
    folder: Path
    temporary: bool
    control: socket.socket | None
    captures: socket.socket | None
    locks: tuple[int, ...] = ()

    def of_worker(self, number: int, workers: int) -> tuple[socket.socket, ...]:
        """Return the sockets that a worker listens on: together the workers listen on all of them."""
        return self.agents[number::workers] or (self.agents[number % len(self.agents)],)

    def refuse_agents(self) -> None:
        """Stop listening for agents in this process."""
        for listener in self.agents:
            listener.close()

    def leave_folder(self) -> None:
        """Let go of the folder in a child: the next program may have it once the parent is gone, though a worker still
        ends its answers."""
        for lock in self.locks:
            os.close(lock)


@contextlib.contextmanager
def open_sockets(settings: Settings, half: Half = Half.SERVE, handover: Handover | None = None) -> Iterator[Sockets]:
    """Bind everything, or take it from the predecessor.

    Raises:
        ConfigError: the address is not free, there is no place for the Unix sockets, another program has them, what
            the predecessor listens on is not what is configured now, or others reach it without a key.
    """
    folder = settings.proxy.sockets
    if folder is None and half is not Half.SERVE:
        raise ConfigError(f"proxy.sockets: expected a folder, which `slipstream {half}` shares; found none")
    with contextlib.ExitStack() as stack:
        if handover is not None:
            yield _passed(settings, handover, stack)
            return
        agents: tuple[socket.socket, ...] = ()
        unit = False
        if half.proxies:
            agents = tuple(stack.enter_context(passed) for passed in _of_systemd())
            unit = bool(agents)
            _expect_not_open_to_everybody(settings.access, agents)
            agents = agents or _agents(settings.listen, settings.proxy.workers, (), stack)
        home, locks = stack.enter_context(_folder(folder, half))
        control, captures = _bound(home, folder is None, stack) if half.trains else (None, None)
        yield Sockets(agents, None if unit else str(settings.listen), home, folder is None, control, captures, locks)


def _passed(settings: Settings, handover: Handover, stack: contextlib.ExitStack) -> Sockets:
    """The sockets of the predecessor, and those that more workers need. Beside those of systemd, which may be another
    user's, none can be bound: workers share them."""

    def opened(descriptor: int) -> socket.socket:
        return stack.enter_context(socket.socket(fileno=descriptor))

    _expect_same(settings, handover)
    agents = tuple(map(opened, handover.agents))
    if handover.listen is None:
        _expect_not_open_to_everybody(settings.access, agents)
    elif agents:
        agents = _agents(settings.listen, settings.proxy.workers, agents, stack)
    control, captures = (None if one is None else opened(one) for one in (handover.control, handover.captures))
    return Sockets(agents, handover.listen, handover.folder, handover.temporary, control, captures)


def _agents(
    listen: Listen, workers: int, passed: Sequence[socket.socket], stack: contextlib.ExitStack
) -> tuple[socket.socket, ...]:
    """A queue of connections for each worker, among which the kernel shares out; those that were passed first."""
    agents = list(passed) or [stack.enter_context(_listening(listen.host, listen.port, shared=False))]
    if workers > 1:  # of this sidecar's, as the first is its
        agents[0].setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    port = agents[0].getsockname()[1]
    while len(agents) < workers:
        agents.append(stack.enter_context(_listening(listen.host, port, shared=True)))
    return tuple(agents)


def _of_systemd() -> list[socket.socket]:
    """The listening sockets that a socket unit passes to this process.

    Raises:
        ConfigError: one of them cannot be used.
    """
    count = os.environ.get("LISTEN_FDS", "")
    if os.environ.get("LISTEN_PID") != str(os.getpid()) or not count.isdecimal():
        return []
    for name in ("LISTEN_FDS", "LISTEN_PID", "LISTEN_FDNAMES"):
        os.environ.pop(name, None)
    found = []
    for descriptor in range(_FIRST_PASSED, _FIRST_PASSED + int(count)):
        try:
            os.set_inheritable(descriptor, False)
            passed = socket.socket(fileno=descriptor)
            family, listens = passed.family, passed.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
        except OSError as error:
            raise ConfigError(f"LISTEN_FDS: expected sockets, found descriptor {descriptor} ({error})") from error
        if family not in (socket.AF_INET, socket.AF_INET6) or passed.type != socket.SOCK_STREAM or not listens:
            raise ConfigError(
                f"LISTEN_FDS: expected TCP sockets that listen (ListenStream= with a port, Accept=no), found {passed}"
            )
        found.append(passed)
    return found


def _expect_not_open_to_everybody(access: Access, of_unit: Sequence[socket.socket]) -> None:
    """Refuse sockets of a unit as an address in `listen` is refused, which they take the place of.

    Raises:
        ConfigError: others reach one of them, and there are no keys.
    """
    hosts = dict.fromkeys(one.getsockname()[0] for one in of_unit)
    problems = (problem_of_exposure(access, host, "ListenStream= of the socket unit") for host in hosts)
    if found := [f"access: expected {problem}" for problem in problems if problem is not None]:
        raise ConfigError(*found)


def _expect_same(settings: Settings, handover: Handover) -> None:
    """Refuse what only a restart can change.

    Raises:
        ConfigError: what the predecessor listens on is not what is configured now.
    """
    listen, folder = settings.listen, settings.proxy.sockets
    problems = []
    if handover.listen not in (None, str(listen)):
        problems.append(f"listen: expected {handover.listen}, as it runs now, found {listen}; this needs a restart")
    before = None if handover.temporary else handover.folder
    if folder != before:
        now, found = before or "null", folder or "null"
        problems.append(f"proxy.sockets: expected {now}, as it runs now, found {found}; this needs a restart")
    if problems:
        raise ConfigError(*problems)


@contextlib.contextmanager
def _folder(folder: Path | None, half: Half) -> Iterator[tuple[Path, tuple[int, ...]]]:
    """The folder of the Unix sockets, which this program alone has, or shares with the other half; and its locks."""
    locks = []
    with contextlib.ExitStack() as stack:
        try:
            if folder is None:
                folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="slipstream-")))
            else:
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                for one in Half if half is Half.SERVE else (half,):
                    locks.append(claimed(folder, one))
                    stack.callback(os.close, locks[-1])
        except OSError as error:
            raise _no_place(folder, error) from error
        yield folder, tuple(locks)


def claimed(folder: Path, half: Half) -> int:
    """The lock that says that this half runs on this folder; closing it, or a kill, releases it.

    Raises:
        ConfigError: it runs already.
        OSError: there can be no file.
    """
    lock = os.open(folder / f"{half}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        raise ConfigError(
            f"proxy.sockets: expected a folder of one sidecar alone, found {folder}, on which another "
            f"`slipstream {half}` or `slipstream serve` runs"
        ) from None
    return lock


def _bound(folder: Path, temporary: bool, stack: contextlib.ExitStack) -> tuple[socket.socket, socket.socket]:
    inner = []
    before = os.umask(0o077)  # whoever could connect would need no key
    try:
        for name in (CONTROL, CAPTURES):
            (folder / name).unlink(missing_ok=True)  # of one that was killed
            inner.append(stack.enter_context(socket.socket(socket.AF_UNIX)))
            inner[-1].bind(str(folder / name))
            inner[-1].listen(BACKLOG)
    except OSError as error:
        raise _no_place(None if temporary else folder, error) from error
    finally:
        os.umask(before)
    return inner[0], inner[1]


def _no_place(folder: Path | None, error: OSError) -> ConfigError:
    return ConfigError(
        f"TMPDIR: expected a folder that can be written to and has a path of at most {_LONGEST_TMPDIR} bytes, "
        f"for Unix sockets, found {os.environ.get('TMPDIR', 'none')} ({error})"
        if folder is None
        else f"proxy.sockets: expected a folder that can be written to, for Unix sockets, found {folder} ({error})"
    )


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
