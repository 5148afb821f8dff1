"""Several processes as one program: forked from a parent that does nothing but look after them.

    starting ──▶ running ──dies, or hangs──▶ waiting ──delay──▶ starting
                    ├──SIGTERM to the parent──▶ stopped, those named first before the others
                    └──SIGUSR2 or SIGHUP to the parent──▶ replaced by those of a successor (`succession.py`)

The parent opens sockets and shared memory, forks, and waits for signals; it runs no thread and no event loop, so that
it can fork again at any time. A child that dies is started again while the others go on. When the parent is killed,
its children see the end of a pipe that it alone can write to. `top` and `ps -o comm` show each child by its name.
"""

from __future__ import annotations

import contextlib
import faulthandler
import mmap
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import NoReturn, Protocol

import structlog

from slipstream.errors import SlipstreamError

_log = structlog.get_logger(__name__)

_END = (signal.SIGTERM, signal.SIGINT)
_REPLACE = (signal.SIGUSR2, signal.SIGHUP)
_SIGNALS = (*_END, *_REPLACE, signal.SIGUSR1, signal.SIGCHLD, signal.SIGALRM, signal.SIGIO)

REPLACED = signal.SIGUSR1
"""A child ends, as another took its place: it has all the time that what is under way needs."""

_SAY_WHERE = signal.SIGUSR2
"""A child writes the stacks of its threads to stderr."""

_WRONG = 2
"""Exit code of a child that cannot do its work until somebody changes the configuration."""

_FIRST_DELAY = 0.2
_SETTLED = 60.0
"""Seconds after which a child that ran counts as one that had started well."""

_LOOK = 10.0
"""Seconds between two looks at the children's pulses."""

_SILENT = 6
"""Looks in a row without a beat until a child counts as hung. They are looks of this process, and not seconds, so that
nobody is ended because the whole machine stood still."""

_LOOK_OFTEN = 0.05
"""Seconds between two looks at what starts, which has no other way to say that it serves."""

_TWICE = 1.0
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


class Relay(Protocol):
    """Replacement of this program by a successor, or of a predecessor by this program."""

    @property
    def succeeds(self) -> bool:
        """Return whether a predecessor waits for this program to serve."""
        ...

    @property
    def watches(self) -> bool:
        """Return whether a successor starts."""
        ...

    def serves(self, *, alone: bool) -> None:
        """The programs of which several may run serve, or also those that are alone."""
        ...

    def fails(self, reason: str) -> None:
        """This program cannot take its predecessor's place."""
        ...

    def begin(self, held: int) -> None:
        """Start a successor.

        Args:
            held: end of a pipe whose other end this process holds until its death.
        """
        ...

    def step(self) -> Step:
        """Return what the successor's progress asks of this program."""
        ...

    def keep(self, lives: Sequence[Life]) -> int:
        """Wait for the end of what a successor took over; returns the exit code."""
        ...

    def end(self) -> None:
        """This program ends: end a successor that has not taken over."""
        ...


class Step(Enum):
    """Order to a program whose successor starts."""

    GO_ON = "go on"
    YIELD = "end what is alone"
    RESUME = "start that again"
    LEAVE = "end, as the successor serves"


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
        pulse: of one that is to be ended where it hangs, and which beats far more often than it is looked at.
    """

    name: str
    main: Callable[[int], None]
    grace: float
    longest_delay: float
    serving: Flag | None = None
    alone: bool = False
    pulse: Pulse | None = None


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

    @property
    def serves(self) -> bool:
        flag = self.program.serving
        return flag is None or flag.is_set


def run(*stages: Sequence[Program], ending: Callable[[], None], relay: Relay) -> int:
    """Run the programs until SIGTERM or SIGINT; then stop them stage by stage, in this order.

    A second signal ends at once whatever is left. SIGUSR2 or SIGHUP starts a successor.

    Args:
        ending: called before they are stopped, for the parent to let go of what it holds for them.
        relay: tells a predecessor how far this program is, and a successor's progress to this program.

    Returns:
        The exit code: 0, or 2 where one of them could never start, for a reason that it has written to stderr.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # ignored, as some programs hand it on, it loses how a child ended
    held, _end = os.pipe()  # the writing end is closed by the operating system, however this process ends
    lives = [[Life(program) for program in stage] for stage in stages]
    try:
        everything = [life for stage in lives for life in stage]
        code, replaced = _look_after(everything, held, _end, relay)
        ending()
        if replaced:
            _leave(everything)
            code = max(code, relay.keep(everything))
        hurried_from = time.monotonic() + _TWICE
        hurry = False
        for stage in lives:
            hurry = _stop(stage, hurried_from, hurry=hurry)
        relay.end()
    finally:
        os.close(_end)
        os.close(held)
        signal.setitimer(signal.ITIMER_REAL, 0)
        while signal.sigpending() & set(_SIGNALS):
            signal.sigwait(_SIGNALS)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return code


def _look_after(lives: Sequence[Life], held: int, end: int, relay: Relay) -> tuple[int, bool]:
    """Run them until the end; returns the exit code, and whether a successor serves, or this one is to leave."""
    several, alone = [life for life in lives if not life.program.alone], [life for life in lives if life.program.alone]
    waiting = [several, alone]
    looks_at = time.monotonic() + _LOOK
    while True:
        while waiting and (not relay.succeeds or len(waiting) == 2 or all(life.serves for life in several)):
            if relay.succeeds and len(waiting) == 1:
                relay.serves(alone=False)
            for life in waiting.pop(0):
                _start(life, held, end)
        if relay.succeeds and not waiting and all(life.serves for life in alone):
            relay.serves(alone=True)
        now = time.monotonic()
        if now >= looks_at:
            looks_at = now + _LOOK
            for life in lives:
                _look(life)
        often = now + _LOOK_OFTEN if relay.succeeds or relay.watches else None
        waits = [max(at - now, 0.001) for at in (looks_at, often, *(life.due_at for life in lives)) if at is not None]
        signal.setitimer(signal.ITIMER_REAL, min(waits))
        number = signal.sigwait(_SIGNALS)
        if number in _END:
            return 0, False
        if number == REPLACED:  # the predecessor waits no longer, and serves on
            return 1, True
        if number in _REPLACE:
            relay.begin(held)
        for life in lives:
            status = _reaped(life)
            if status is None:
                continue
            code = os.waitstatus_to_exitcode(status)
            if life.leaving:
                life.killed_at = None
                continue
            if relay.succeeds:
                relay.fails(f"{life.program.name} ended with exit code {code} before it served")
                return code if code > 0 else 1, True
            if code == _WRONG and not life.failures and time.monotonic() - life.started_at < _SETTLED:
                return _WRONG, False
            _failed(life, "process_ended", code=code)
        match relay.step():
            case Step.YIELD:
                _leave(alone)
            case Step.RESUME:
                for life in alone:
                    life.leaving, life.due_at = False, time.monotonic()
            case Step.LEAVE:
                return 0, True
        for life in alone:
            if life.pid and life.killed_at is not None and time.monotonic() >= life.killed_at:
                _log.warning("process_killed", process=life.program.name)
                os.kill(life.pid, signal.SIGKILL)
        for life in lives:
            if life.due_at is not None and not life.pid and life.due_at <= time.monotonic():
                _start(life, held, end)


def _leave(lives: Sequence[Life]) -> None:
    """Have children end, as others take their places."""
    for life in lives:
        life.leaving, life.due_at = True, None
        life.killed_at = time.monotonic() + life.program.grace
        if life.pid:
            os.kill(life.pid, REPLACED)


def _start(life: Life, held: int, end: int) -> None:
    life.due_at, life.started_at, life.silent = None, time.monotonic(), 0
    if life.program.serving is not None:
        life.program.serving.clear()
    try:
        life.pid = os.fork()
    except OSError as error:  # no memory or no process left on this machine: the others go on
        _failed(life, "process_not_started", reason=str(error))
        return
    if not life.pid:
        os.close(end)
        _live(life.program, held)


def _look(life: Life) -> None:
    """End a child that has hung for long; before that, have it say where."""
    pulse = life.program.pulse
    if pulse is None or not life.pid:
        return
    life.silent = life.silent + 1 if pulse.beats == life.beats else 0
    life.beats = pulse.beats
    if life.silent == _SILENT - 1:
        os.kill(life.pid, _SAY_WHERE)
    elif life.silent == _SILENT:
        _log.error("process_hung", process=life.program.name, seconds=_SILENT * _LOOK)
        os.kill(life.pid, signal.SIGKILL)


def _failed(life: Life, event: str, **details: object) -> None:
    """Start it again, the later the more often it failed."""
    now, program = time.monotonic(), life.program
    life.failures = 1 if now - life.started_at >= _SETTLED else life.failures + 1
    delay = min(_FIRST_DELAY * 2.0 ** min(life.failures - 1, 16), program.longest_delay)
    life.due_at = now + delay
    _log.error(event, process=program.name, **details, started_again_in=delay)


def _live(program: Program, held: int) -> NoReturn:
    """The child's whole life."""
    code = 1
    with contextlib.suppress(OSError):
        Path("/proc/self/comm").write_text(f"slip-{program.name}")
    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all of the group: the parent stops us in order
        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # so does the end of a terminal
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        faulthandler.register(_SAY_WHERE)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
        program.main(held)
        code = 0
    except SlipstreamError as error:
        print(f"slipstream: {error}", file=sys.stderr)
        code = _WRONG
    except BaseException:  # noqa: BLE001 - nothing of the parent's is run by a child
        traceback.print_exc()
    finally:
        try:
            sys.stdout.flush()
            sys.stderr.flush()
        finally:  # whoever read them may be gone
            os._exit(code)


def _reaped(life: Life) -> int | None:
    """The exit status of a child that has ended and was not known to have."""
    if not life.pid:
        return None
    pid, status = os.waitpid(life.pid, os.WNOHANG)
    if not pid:
        return None
    life.pid = 0
    return status


def _stop(lives: Sequence[Life], hurried_from: float, *, hurry: bool) -> bool:
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
    while running := [life for life in running if _reaped(life) is None]:
        left = ends_at - time.monotonic()
        if hurry or left <= 0:
            break
        signal.setitimer(signal.ITIMER_REAL, left)
        number = signal.sigwait(_SIGNALS)
        hurry = number in _END and time.monotonic() > hurried_from
    for life in running:
        _log.warning("process_killed", process=life.program.name, hurry=hurry)
        os.kill(life.pid, signal.SIGKILL)
        os.waitpid(life.pid, 0)
        life.pid = 0
    return hurry
