"""Several processes as one program: forked from a parent that does nothing but look after them.

    starting ──▶ running ──dies, or hangs──▶ waiting ──delay──▶ starting
                    ├──SIGTERM to the parent──▶ stopped, those named first before the others
                    └──SIGUSR2 or SIGHUP to the parent──▶ replaced by those of a successor (`succession.py`)

The parent opens sockets and shared memory, forks, and waits for signals; it runs no thread and no event loop, so that
it can fork again at any time. A child that dies is started again while the others go on. When the parent is killed,
its children see the end of a pipe that it alone can write to. `top` and `ps -o comm` show each child by its name.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Collection, Sequence
from enum import Enum
from typing import Protocol

import structlog

from slipstream.serve.children import (
    END,
    LOOK,
    REPLACE,
    REPLACED,
    SETTLED,
    SIGNALS,
    TWICE,
    WRONG,
    Life,
    Program,
    leave,
    look,
    reap_others,
    reaped,
    start,
    start_later,
    stop,
)

_log = structlog.get_logger(__name__)

_LOOK_OFTEN = 0.05
"""Seconds between two looks at what starts, which has no other way to say that it serves."""


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

    @property
    def children(self) -> Collection[int]:
        """The process ids of those whose end it asks about itself."""
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


def run(*stages: Sequence[Program], ending: Callable[[], None], relay: Relay) -> int:
    """Run the programs until SIGTERM or SIGINT; then stop them stage by stage, in this order.

    A second signal ends at once whatever is left. SIGUSR2 or SIGHUP starts a successor.

    Args:
        ending: called before they are stopped, for the parent to let go of what it holds for them.
        relay: tells a predecessor how far this program is, and a successor's progress to this program.

    Returns:
        The exit code: 0, or 2 where one of them could never start, for a reason that it has written to stderr.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # ignored, as some programs hand it on, it loses how a child ended
    held, _end = os.pipe()  # the writing end is closed by the operating system, however this process ends
    lives = [[Life(program) for program in stage] for stage in stages]
    try:
        everything = [life for stage in lives for life in stage]
        code, replaced = _look_after(everything, held, _end, relay)
        ending()
        if replaced:
            leave(everything)
            code = max(code, relay.keep(everything))
        hurried_from = time.monotonic() + TWICE
        hurry = False
        for stage in lives:
            hurry = stop(stage, hurried_from, hurry=hurry)
        relay.end()
    finally:
        os.close(_end)
        os.close(held)
        signal.setitimer(signal.ITIMER_REAL, 0)
        while signal.sigpending() & set(SIGNALS):
            signal.sigwait(SIGNALS)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return code


def _look_after(lives: Sequence[Life], held: int, end: int, relay: Relay) -> tuple[int, bool]:
    """Run them until the end; returns the exit code, and whether a successor serves, or this one is to leave."""
    several, alone = [life for life in lives if not life.program.alone], [life for life in lives if life.program.alone]
    waiting = [several, alone]
    looks_at = time.monotonic() + LOOK
    while True:
        while waiting and (not relay.succeeds or len(waiting) == 2 or all(life.serves for life in several)):
            if relay.succeeds and len(waiting) == 1:
                relay.serves(alone=False)
            for life in waiting.pop(0):
                start(life, held, end)
        if relay.succeeds and not waiting and all(life.serves for life in alone):
            relay.serves(alone=True)
        now = time.monotonic()
        if now >= looks_at:
            looks_at = now + LOOK
            for life in lives:
                look(life)
        often = now + _LOOK_OFTEN if relay.succeeds or relay.watches else None
        waits = [max(at - now, 0.001) for at in (looks_at, often, *(life.due_at for life in lives)) if at is not None]
        signal.setitimer(signal.ITIMER_REAL, min(waits))
        number = signal.sigwait(SIGNALS)
        if number in END:
            return 0, False
        if number == REPLACED:  # the predecessor waits no longer, and serves on
            return 1, True
        if number in REPLACE:
            relay.begin(held)
        for life in lives:
            status = reaped(life)
            if status is None:
                continue
            code = os.waitstatus_to_exitcode(status)
            if life.leaving:
                continue
            if relay.succeeds:
                relay.fails(f"{life.program.name} ended with exit code {code} before it served")
                return code if code > 0 else 1, True
            if code == WRONG and not life.failures and time.monotonic() - life.started_at < SETTLED:
                return WRONG, False
            start_later(life, "process_ended", code=code)
        match relay.step():
            case Step.YIELD:
                leave(alone)
            case Step.RESUME:
                for life in alone:
                    life.leaving = False
                    if not life.pid:
                        life.due_at = time.monotonic()
            case Step.LEAVE:
                return 0, True
        reap_others({*(life.pid for life in lives), *relay.children})
        for life in alone:
            if life.pid and life.killed_at is not None and time.monotonic() >= life.killed_at:
                os.kill(life.pid, signal.SIGKILL)
                _log.warning("process_killed", process=life.program.name)
        for life in lives:
            if life.due_at is not None and not life.pid and life.due_at <= time.monotonic():
                start(life, held, end)
