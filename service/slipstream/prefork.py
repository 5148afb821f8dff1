"""Several processes as one program: forked from a parent that does nothing but look after them.

    starting ──▶ running ──dies──▶ waiting ──delay──▶ starting
                    └──SIGTERM to the parent──▶ stopped, the first named first

The parent opens sockets and shared memory, forks, and waits for signals; it runs no thread and no event loop, so that
it can fork again at any time. A child that dies is started again while the others go on. When the parent is killed,
its children see the end of a pipe that it alone can write to.
"""

from __future__ import annotations

import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NoReturn

import structlog

from slipstream.errors import SlipstreamError

_log = structlog.get_logger(__name__)

_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD, signal.SIGALRM)

_WRONG = 2
"""Exit code of a child that cannot do its work until somebody changes the configuration."""

_FIRST_DELAY = 0.2
_LONGEST_DELAY = 30.0
_SETTLED = 60.0
"""Seconds after which a child that ran counts as one that had started well."""


@dataclass(frozen=True, slots=True)
class Program:
    """What one child does.

    Attributes:
        name: for the log.
        main: runs in the child, with the descriptor whose end of file says that the parent is gone; returns once
            SIGTERM has come and it has ended in order. SIGINT does not reach it.
        grace: seconds between SIGTERM and SIGKILL.
    """

    name: str
    main: Callable[[int], None]
    grace: float


@dataclass(slots=True)
class _Life:
    program: Program
    pid: int = 0
    started_at: float = 0.0
    failures: int = 0
    due_at: float | None = None


def run(programs: Sequence[Program]) -> int:
    """Run the programs until SIGTERM or SIGINT; then stop them one after another, in this order.

    Returns:
        The exit code: 0, or 2 where one of them could never start, for a reason that it has written to stderr.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    held, _end = os.pipe()  # the writing end is closed by the operating system, however this process ends
    lives = [_Life(program) for program in programs]
    try:
        for life in lives:
            _start(life, held, _end)
        code = _look_after(lives, held, _end)
        for life in lives:
            _stop(life)
    finally:
        os.close(_end)
        os.close(held)
        signal.setitimer(signal.ITIMER_REAL, 0)
        while signal.sigpending() & set(_SIGNALS):
            signal.sigwait(_SIGNALS)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return code


def _look_after(lives: Sequence[_Life], held: int, end: int) -> int:
    while True:
        if signal.sigwait(_SIGNALS) in (signal.SIGTERM, signal.SIGINT):
            return 0
        for life in lives:
            status = _reaped(life)
            if status is None:
                continue
            code = os.waitstatus_to_exitcode(status)
            ran = time.monotonic() - life.started_at
            if code == _WRONG and not life.failures and ran < _SETTLED:
                return _WRONG
            life.failures = 1 if ran >= _SETTLED else life.failures + 1
            delay = min(_FIRST_DELAY * 2.0 ** (life.failures - 1), _LONGEST_DELAY)
            life.due_at = time.monotonic() + delay
            _log.error("process_ended", process=life.program.name, code=code, started_again_in=delay)
        now = time.monotonic()
        for life in lives:
            if life.due_at is not None and life.due_at <= now:
                _start(life, held, end)
        waits = [life.due_at - now for life in lives if life.due_at is not None]
        signal.setitimer(signal.ITIMER_REAL, max(min(waits), 0.001) if waits else 0)


def _start(life: _Life, held: int, end: int) -> None:
    life.due_at, life.started_at = None, time.monotonic()
    life.pid = os.fork()
    if not life.pid:
        os.close(end)
        _live(life.program, held)


def _live(program: Program, held: int) -> NoReturn:
    """The child's whole life."""
    code = 1
    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all of the group: the parent stops us in order
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
        program.main(held)
        code = 0
    except SlipstreamError as error:
        print(f"slipstream: {error}", file=sys.stderr)
        code = _WRONG
    except BaseException:  # noqa: BLE001 - nothing of the parent's is run by a child
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
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


def _stop(life: _Life) -> None:
    """End a child: SIGTERM, and SIGKILL once its grace is over or when somebody is in a hurry."""
    if not life.pid:
        return
    os.kill(life.pid, signal.SIGTERM)
    signal.setitimer(signal.ITIMER_REAL, life.program.grace)
    while _reaped(life) is None:
        if signal.sigwait(_SIGNALS) is not signal.SIGCHLD:
            if life.pid and _reaped(life) is None:
                os.kill(life.pid, signal.SIGKILL)
                os.waitpid(life.pid, 0)
                life.pid = 0
            break
    signal.setitimer(signal.ITIMER_REAL, 0)
