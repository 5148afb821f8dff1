"""The ways to hurt the training side. Each is a context manager: it hurts, the agents work in its block, it heals.

What it yields is a list, to which it adds a word for each time that it struck. A way that never struck has measured
nothing, and its row says so.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from bench import poison
from bench.quota import NoQuota, Quotas

from hurt_training.rig import Rig

Struck = list[str]

_LOOK = 0.05
"""Seconds between two looks for the training side's next process."""
_GROUP_MEMORY = 24 * 2**20
"""Bytes in which the training side cannot start."""
_MEMORY_GROUPS = (Path("/sys/fs/cgroup/memory"), "memory.limit_in_bytes"), (Path("/sys/fs/cgroup"), "memory.max")
_POISONED = 12
"""Requests of each kind of poison; one in ten of all tasks is selected, and each of these."""


@dataclass(frozen=True, slots=True)
class Way:
    """One way to hurt it.

    Attributes:
        name: for the table.
        piped: the training side logs to a pipe.
    """

    name: str
    hurt: Callable[[Rig], AbstractContextManager[Struck]]
    piped: bool = False


class Unable(Exception):
    """It cannot be done on this machine, and the message says why."""


@contextlib.contextmanager
def _to_each_new_process(rig: Rig, act: Callable[[int], None]) -> Iterator[None]:
    """Do it to the training side's process, and to each that takes its place.

    Raises:
        Exception: what `act` raised.
    """
    over = threading.Event()

    def watch() -> None:
        done = 0
        while not over.wait(_LOOK):
            pid = rig.training()
            if pid is not None and pid != done:
                with contextlib.suppress(ProcessLookupError):
                    act(pid)
                    done = pid

    with ThreadPoolExecutor(1) as executor:
        watching = executor.submit(watch)
        try:
            yield
        finally:
            over.set()
        watching.result()


@contextlib.contextmanager
def killed(rig: Rig) -> Iterator[Struck]:
    """`kill -9`, and again as soon as it has been started again."""
    struck: Struck = []

    def kill(pid: int) -> None:
        os.kill(pid, signal.SIGKILL)
        struck.append("killed")

    with _to_each_new_process(rig, kill):
        yield struck


@contextlib.contextmanager
def stopped(rig: Rig) -> Iterator[Struck]:
    """`SIGSTOP` for the whole time."""
    struck: Struck = []
    held: set[int] = set()

    def hold(pid: int) -> None:
        os.kill(pid, signal.SIGSTOP)
        held.add(pid)
        struck.append("stopped")

    try:
        with _to_each_new_process(rig, hold):
            yield struck
    finally:
        for pid in held:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


@contextlib.contextmanager
def starved(rig: Rig) -> Iterator[Struck]:
    """A quota of a tenth of a core: 1 ms of each 10, and the kernel grants no less."""
    struck: Struck = []
    quotas = Quotas()

    def limit(pid: int) -> None:
        quotas.limit(pid, 0.1)
        struck.append("starved")

    try:
        with _to_each_new_process(rig, limit):
            yield struck
    except NoQuota as error:
        raise Unable(str(error)) from error
    finally:
        quotas.end()


@contextlib.contextmanager
def out_of_memory(rig: Rig) -> Iterator[Struck]:
    """Its processes get a control group in which they cannot start: the kernel kills each of them."""
    struck: Struck = []
    root, limit = next((each for each in _MEMORY_GROUPS if (each[0] / "cgroup.procs").exists()), (None, ""))
    if root is None:
        raise Unable("no control groups with a limit of memory")
    group = root / f"slipstream-hurt-{os.getpid()}"
    try:
        group.mkdir()
        (group / limit).write_text(str(_GROUP_MEMORY))
    except OSError as error:
        raise Unable(f"a control group with a limit of memory cannot be made: {error.strerror}") from error
    before = rig.training()

    def confine(pid: int) -> None:
        if pid == before:  # what it has already is charged elsewhere, so its successors are the ones to confine
            os.kill(pid, signal.SIGKILL)
        else:
            (group / "cgroup.procs").write_text(str(pid))
            struck.append("out of memory")

    try:
        with _to_each_new_process(rig, confine):
            yield struck
    finally:
        for pid in (group / "cgroup.procs").read_text().split():
            with contextlib.suppress(OSError):
                (root / "cgroup.procs").write_text(pid)
        _remove(group)


def _remove(group: Path) -> None:
    for _ in range(100):  # a process that has just ended leaves its group a moment later
        with contextlib.suppress(OSError):
            group.rmdir()
            return
        time.sleep(0.02)


@contextlib.contextmanager
def disk_full(rig: Rig) -> Iterator[Struck]:
    """Not a byte is left on the store's disk, which is a small one of its own."""
    if not os.path.ismount(rig.disk):
        raise Unable("a disk of its own cannot be mounted here")
    filler = rig.disk / "filler"
    with filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while file.write(bytes(1 << 16)):
            pass
    try:
        yield ["full"]
    finally:
        filler.unlink()


@contextlib.contextmanager
def log_full(rig: Rig) -> Iterator[Struck]:
    """The pipe that it logs to takes no byte more, and its death is to be logged."""
    assert rig.log_pipe is not None
    pipe = os.open(rig.log_pipe, os.O_RDWR | os.O_NONBLOCK)
    try:
        with contextlib.suppress(BlockingIOError):
            while os.write(pipe, bytes(4096)):
                pass
        with killed(rig) as struck:
            yield struck
    finally:
        with contextlib.suppress(BlockingIOError):
            while os.read(pipe, 1 << 16):
                pass
        os.close(pipe)


def _poison(kind: str) -> Callable[[Rig], AbstractContextManager[Struck]]:
    """Agents' requests of one kind of poison, before the others ask and while they do."""

    @contextlib.contextmanager
    def poisoned(rig: Rig) -> Iterator[Struck]:
        for number in range(_POISONED):
            rig.send(poison.request(kind, number))
        yield ["poisoned"] * _POISONED

    return poisoned


@contextlib.contextmanager
def _meanwhile(*acts: Callable[[], None]) -> Iterator[None]:
    """Do one thing after the other while the agents work."""

    def do() -> None:
        for act in acts:
            act()

    with ThreadPoolExecutor(1) as executor:
        doing = executor.submit(do)
        yield
        doing.result()


@contextlib.contextmanager
def container_killed(rig: Rig) -> Iterator[Struck]:
    """All of its processes are killed at once, and it is started again."""
    with _meanwhile(rig.kill_training, rig.start_training):
        yield ["killed"]


@contextlib.contextmanager
def restarted(rig: Rig) -> Iterator[Struck]:
    """It ends in order, and is started again."""
    with _meanwhile(rig.end_training, rig.start_training):
        yield ["restarted"]


@contextlib.contextmanager
def upgraded(rig: Rig) -> Iterator[Struck]:
    """Both halves are replaced in place, the proxy's too."""
    with _meanwhile(rig.upgrade):
        yield ["upgraded"]


WAYS = (
    Way("killed (`kill -9`), and again after each start", killed),
    Way("its container is killed, and started again", container_killed),
    Way("stopped (`SIGSTOP`)", stopped),
    Way("left a tenth of a core", starved),
    Way("killed by the kernel for want of memory, again and again", out_of_memory),
    Way("the store's disk is full", disk_full),
    Way("the pipe that it logs to is full, and it is killed", log_full, piped=True),
    *(Way(f"poison: {kind.what}", _poison(name)) for name, kind in poison.KINDS.items()),
    Way("restarted (`SIGTERM`)", restarted),
    Way("replaced in place, with the proxy (`slipstream upgrade`)", upgraded),
)
