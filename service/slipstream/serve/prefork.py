"""Several processes as one program: forked from a parent that does nothing but look after them.

    starting ──▶ running ──dies, or hangs──▶ waiting ──delay──▶ starting
                    └──SIGTERM to the parent──▶ stopped, those named first before the others

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
from pathlib import Path
from typing import NoReturn

import structlog

from slipstream.errors import SlipstreamError

_log = structlog.get_logger(__name__)

_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD, signal.SIGALRM)

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


@dataclass(frozen=True, slots=True)
class Program:
    """Program of one child.

    Attributes:
        name: for the log and, behind `slip-`, for the list of processes, which shows 15 characters in all.
        main: runs in the child, with the descriptor whose end of file says that the parent is gone; returns once
            SIGTERM has come and it has ended in order. SIGINT does not reach it.
        grace: seconds between SIGTERM and SIGKILL.
        longest_delay: seconds until the next start that each failure in a row doubles the wait to.
        pulse: of one that is to be ended where it hangs, and which beats far more often than it is looked at.
    """

    name: str
    main: Callable[[int], None]
    grace: float
    longest_delay: float
    pulse: Pulse | None = None


@dataclass(slots=True)
class _Life:
    program: Program
    pid: int = 0
    started_at: float = 0.0
    failures: int = 0
    due_at: float | None = None
    beats: int = 0
    silent: int = 0


def run(*stages: Sequence[Program], ending: Callable[[], None]) -> int:
    """Run the programs until SIGTERM or SIGINT; then stop them stage by stage, in this order.

    A second signal ends at once whatever is left.

    Args:
        ending: called before they are stopped, for the parent to let go of what it holds for them.

    Returns:
        The exit code: 0, or 2 where one of them could never start, for a reason that it has written to stderr.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # ignored, as some programs hand it on, it loses how a child ended
    held, _end = os.pipe()  # the writing end is closed by the operating system, however this process ends
    lives = [[_Life(program) for program in stage] for stage in stages]
    try:
        code = _look_after([life for stage in lives for life in stage], held, _end)
        ending()
        hurried_from = time.monotonic() + _TWICE
        hurry = False
        for stage in lives:
            hurry = _stop(stage, hurried_from, hurry=hurry)
    finally:
        os.close(_end)
        os.close(held)
        signal.setitimer(signal.ITIMER_REAL, 0)
        while signal.sigpending() & set(_SIGNALS):
            signal.sigwait(_SIGNALS)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return code


def _look_after(lives: Sequence[_Life], held: int, end: int) -> int:
    for life in lives:
        _start(life, held, end)
    looks_at = time.monotonic() + _LOOK
    while True:
        now = time.monotonic()
        if now >= looks_at:
            looks_at = now + _LOOK
            for life in lives:
                _look(life)
        waits = [max(at - now, 0.001) for at in (looks_at, *(life.due_at for life in lives)) if at is not None]
        signal.setitimer(signal.ITIMER_REAL, min(waits))
        if signal.sigwait(_SIGNALS) in (signal.SIGTERM, signal.SIGINT):
            return 0
        for life in lives:
            status = _reaped(life)
            if status is None:
                continue
            code = os.waitstatus_to_exitcode(status)
            if code == _WRONG and not life.failures and time.monotonic() - life.started_at < _SETTLED:
                return _WRONG
            _failed(life, "process_ended", code=code)
        for life in lives:
            if life.due_at is not None and life.due_at <= time.monotonic():
                _start(life, held, end)


def _start(life: _Life, held: int, end: int) -> None:
    life.due_at, life.started_at, life.silent = None, time.monotonic(), 0
    try:
        life.pid = os.fork()
    except OSError as error:  # no memory or no process left on this machine: the others go on
        _failed(life, "process_not_started", reason=str(error))
        return
    if not life.pid:
        os.close(end)
        _live(life.program, held)


def _look(life: _Life) -> None:
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


def _failed(life: _Life, event: str, **details: object) -> None:
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


def _reaped(life: _Life) -> int | None:
    """The exit status of a child that has ended and was not known to have."""
    if not life.pid:
        return None
    pid, status = os.waitpid(life.pid, os.WNOHANG)
    if not pid:
        return None
    life.pid = 0
    return status


def _stop(lives: Sequence[_Life], hurried_from: float, *, hurry: bool) -> bool:
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
        hurry = number in (signal.SIGTERM, signal.SIGINT) and time.monotonic() > hurried_from
    for life in running:
        _log.warning("process_killed", process=life.program.name, hurry=hurry)
        os.kill(life.pid, signal.SIGKILL)
        os.waitpid(life.pid, 0)
        life.pid = 0
    return hurry
