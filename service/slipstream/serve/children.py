"""Children of a parent that forks: how each is started, watched, reaped and ended."""

from __future__ import annotations

import contextlib
import faulthandler
import mmap
import os
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import IO, NoReturn

import structlog

from slipstream.errors import SlipstreamError

_log = structlog.get_logger(__name__)

END = (signal.SIGTERM, signal.SIGINT)
REPLACE = (signal.SIGUSR2, signal.SIGHUP)
SIGNALS = (*END, *REPLACE, signal.SIGUSR1, signal.SIGCHLD, signal.SIGALRM, signal.SIGIO)

REPLACED = signal.SIGUSR1
"""A child ends, as another took its place: it has all the time that what is under way needs."""

_SAY_WHERE = signal.SIGUSR2
"""A child writes the stacks of its threads to a file that its parent reads."""

WRONG = 2
"""Exit code of a child that cannot do its work until somebody changes the configuration."""

_FIRST_DELAY = 0.2
SETTLED = 60.0
"""Seconds after which a child that ran counts as one that had started well."""

LOOK = 10.0
"""Seconds between two looks at the children's pulses."""

TWICE = 1.0
"""Seconds within which a second signal is the first one's echo: `timeout` tells a process and then its whole group."""


class Pulse:
    """Counter that a child increases as long as it does not hang, in memory that its parent sees."""

    def __init__(self) -> None:
        self._cell = memoryview(mmap.mmap(-1, 8)).cast("Q")

    def beat(self) -> None:
        self._cell[0] += 1

    @property
    def beats(self) -> int:
        return self._cell[0]


class Flag:
    """A child's word that it serves, in memory that its parent sees."""

    def __init__(self) -> None:
        self._cell = memoryview(mmap.mmap(-1, 1))

    def set(self) -> None:
        self._cell[0] = 1

    def clear(self) -> None:
        self._cell[0] = 0

    @property
    def is_set(self) -> bool:
        return bool(self._cell[0])


@dataclass(frozen=True, slots=True)
class Program:
    """Program of one child.

    Attributes:
        name: for the log and, behind `slip-`, for the list of processes, which shows 15 characters in all.
        main: runs in the child, with the descriptor whose end of file says that the parent is gone; returns once
            SIGTERM has come and it has ended in order. SIGINT does not reach it.
        grace: seconds between SIGTERM and SIGKILL.
        longest_delay: seconds until the next start that each failure in a row doubles the wait to.
        serving: set by the child once it does its work; None for one that need not be waited for.
        alone: there is one at a time of it, so that a successor's waits for the end of its predecessor's.
        pulse: of one that is to be ended if it hangs once it serves, and which beats far more often than it is looked
            at.
        patience: looks of the parent in a row without a beat until it counts as hung. They are not seconds, so that no
            child is ended because the whole machine stood still.
    """

    name: str
    main: Callable[[int], None]
    grace: float
    longest_delay: float
    serving: Flag | None = None
    alone: bool = False
    pulse: Pulse | None = None
    patience: int = 6


@dataclass(slots=True)
class Life:
    program: Program
    leaving: bool = False
    killed_at: float | None = None
    pid: int = 0
    started_at: float = 0.0
    failures: int = 0
    due_at: float | None = None
    beats: int = 0
    silent: int = 0
    stacks: IO[str] = field(default_factory=partial(tempfile.TemporaryFile, "w+"))

    @property
    def serves(self) -> bool:
        flag = self.program.serving
        return flag is None or flag.is_set


def start(life: Life, held: int, end: int) -> None:
    life.due_at, life.killed_at, life.started_at, life.silent = None, None, time.monotonic(), 0
    if life.program.serving is not None:
        life.program.serving.clear()
    try:
        life.pid = os.fork()
    except OSError as error:  # no memory or no process left on this machine: the others go on
        start_later(life, "process_not_started", reason=str(error))
        return
    if not life.pid:
        os.close(end)
        _live(life.program, held, life.stacks)


def look(life: Life) -> None:
    """End a child that has hung for long; before that, have it say where."""
    program, pulse = life.program, life.program.pulse
    if pulse is None or not life.pid or not life.serves:
        return
    life.silent = life.silent + 1 if pulse.beats == life.beats else 0
    life.beats = pulse.beats
    if life.silent == program.patience - 1:
        os.kill(life.pid, _SAY_WHERE)
    elif life.silent == program.patience:
        os.kill(life.pid, signal.SIGKILL)
        seconds = program.patience * LOOK
        _log.error("process_hung", process=program.name, seconds=seconds, stack=_where(life.stacks))


def _where(stacks: IO[str]) -> str | None:
    """Read and empty the file in which a child has said where it hangs; one that was stopped could not."""
    stacks.seek(0)
    said = stacks.read()
    stacks.seek(0)
    stacks.truncate()
    return said or None


def start_later(life: Life, event: str, **details: object) -> None:
    """Start it again, the later the more often it failed."""
    now, program = time.monotonic(), life.program
    life.failures = 1 if now - life.started_at >= SETTLED else life.failures + 1
    delay = min(_FIRST_DELAY * 2.0 ** min(life.failures - 1, 16), program.longest_delay)
    life.due_at = now + delay
    _log.error(event, process=program.name, **details, started_again_in=delay)


def _live(program: Program, held: int, stacks: IO[str]) -> NoReturn:
    """The child's whole life."""
    code = 1
    with contextlib.suppress(OSError):
        Path("/proc/self/comm").write_text(f"slip-{program.name}")
    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all of the group: the parent stops us in order
        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # so does the end of a terminal
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        faulthandler.register(_SAY_WHERE, file=stacks)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
        program.main(held)
        code = 0
    except SlipstreamError as error:
        print(f"slipstream: {error}", file=sys.stderr)
        code = WRONG
    except BaseException:  # noqa: BLE001 - nothing of the parent's is run by a child
        traceback.print_exc()
    finally:
        try:
            sys.stdout.flush()
            sys.stderr.flush()
        finally:  # whoever read them may be gone
            os._exit(code)


def reaped(life: Life) -> int | None:
    """The exit status of a child that has ended and was not known to have."""
    if not life.pid:
        return None
    pid, status = os.waitpid(life.pid, os.WNOHANG)
    if not pid:
        return None
    life.pid = 0
    return status


def reap_others(known: Collection[int]) -> None:
    """Wait for orphans that the system gave to this process, where it is a container's first one or their subreaper.

    None of its own processes is waited for here, as that can be done once. SIGCHLD tells of one that ends meanwhile.

    Args:
        known: process ids of those that are asked about elsewhere.
    """
    if sys.platform != "linux":  # orphans are the system's first process's elsewhere
        return
    with contextlib.suppress(ChildProcessError):
        while (ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)) and ended.si_pid not in known:
            os.waitpid(ended.si_pid, 0)


def leave(lives: Sequence[Life]) -> None:
    """Have children end, as others take their places."""
    for life in lives:
        life.leaving, life.due_at = True, None
        life.killed_at = time.monotonic() + life.program.grace
        if life.pid:
            os.kill(life.pid, REPLACED)


def stop(lives: Sequence[Life], hurried_from: float, *, hurry: bool) -> bool:
    """End children: SIGTERM, and SIGKILL once their grace is over or when somebody is in a hurry.

    Args:
        hurried_from: `time.monotonic()` after which another signal says so.

    Returns:
        Whether somebody is.
    """
    running = [life for life in lives if life.pid]
    for life in running:
        os.kill(life.pid, signal.SIGTERM)
    ends_at = time.monotonic() + max((life.program.grace for life in running), default=0.0)
    while running := [life for life in running if reaped(life) is None]:
        left = ends_at - time.monotonic()
        if hurry or left <= 0:
            break
        signal.setitimer(signal.ITIMER_REAL, left)
        number = signal.sigwait(SIGNALS)
        hurry = number in END and time.monotonic() > hurried_from
    for life in running:
        os.kill(life.pid, signal.SIGKILL)
        _log.warning("process_killed", process=life.program.name, hurry=hurry)
        os.waitpid(life.pid, 0)
        life.pid = 0
    return hurry
