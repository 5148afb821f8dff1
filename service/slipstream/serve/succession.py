"""Replacement of a running sidecar: a successor with the installed package and the configuration of now.

    predecessor                                        successor (a new interpreter, its child)
    SIGUSR2 or SIGHUP ──listening sockets, counters──▶ reads the configuration; its workers take connections
      its training side ends its work  ◀───workers───  its training side waits for the end of the other one
      its workers end their answers    ◀────ready────  its training side works
      serves on as before              ◀────failed───  ends; or it dies, or is not ready in time

Connections wait in the sockets' queues, which both programs have, and nothing is refused. Captured exchanges and
control requests wait for the next training side in the same way.

The program that was started first stays until the end, because systemd, docker and Kubernetes know it by its process
id: it passes signals on to the one that serves, and adopts it when the programs between them have ended.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import select
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import structlog

from slipstream.output import Output
from slipstream.serve.children import REPLACED, Life
from slipstream.serve.handover import FAILED, READY, WORKERS, Handover
from slipstream.serve.prefork import Step
from slipstream.serve.running import Running, note, read

_log = structlog.get_logger(__name__)

_SERVES_WITHIN = 120.0
"""Seconds until the successor's workers take connections. A second is usual, most of it imports."""

_READY_WITHIN = 240.0
"""Seconds until its training side works: that of the predecessor has about 60 for its end, and the store may be
migrated."""

_LOOK = 10.0

_SUBREAPER = 36
"""PR_SET_CHILD_SUBREAPER of prctl(2)."""


@dataclass(slots=True)
class _Successor:
    pid: int
    answers: int
    started_at: float
    said: bytes = b""
    takes_connections: bool = False


class Succession:
    """The relay of one program (`prefork.Relay`).

    Args:
        handover: of the predecessor; None for the program that was started first.
        hand_over: what a successor gets, with the end of the pipe that it answers to and that of the first program.
        file: where this sidecar says what runs (`running.py`).
        output: stderr, of which a successor gets what it was.
    """

    def __init__(
        self,
        handover: Handover | None,
        hand_over: Callable[[int, int], Handover],
        file: Path,
        release: str,
        output: Output,
    ) -> None:
        self._handover = handover
        self._hand_over = hand_over
        self._file = file
        self._successor: _Successor | None = None
        self._dying: list[int] = []
        self.succeeds = handover is not None
        self._release = release
        self._output = output
        if handover is None:
            note(file, Running.here(release))
        else:
            fcntl.fcntl(handover.first, fcntl.F_SETOWN, os.getpid())  # SIGIO when the other end closes
            fcntl.fcntl(handover.first, fcntl.F_SETFL, os.O_ASYNC | os.O_NONBLOCK)

    @property
    def watches(self) -> bool:
        """Return whether a successor starts."""
        return self._successor is not None

    @property
    def children(self) -> list[int]:
        """The process ids of successors that `step` asks about."""
        return self._dying if self._successor is None else [*self._dying, self._successor.pid]

    # As a successor

    def serves(self, *, alone: bool) -> None:
        """Tell the predecessor how far this program is."""
        assert self._handover is not None
        self._handover.say(READY if alone else WORKERS, self._release)
        if alone:
            self.succeeds = False
            os.close(self._handover.answers)

    def fails(self, reason: str) -> None:
        """Tell the predecessor that this program cannot take its place."""
        assert self._handover is not None
        self._handover.say(FAILED, reason)

    # As a predecessor

    def begin(self, held: int) -> None:
        """Start a successor, unless one starts.

        Args:
            held: end of a pipe whose other end this process holds until its death.
        """
        if self._successor is not None or self.succeeds:
            _log.warning("already_being_replaced")
            return
        ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)
        answers, end = os.pipe()
        handover = self._hand_over(end, held if self._handover is None else self._handover.first)
        for descriptor in handover.descriptors:
            os.set_inheritable(descriptor, True)
        command = [sys.executable, *sys.orig_argv[1:]]
        try:
            pid = os.posix_spawn(sys.executable, command, handover.environment(), file_actions=self._output.original())
        except OSError as error:
            os.close(answers)
            self._failed(f"no process could be started ({error.strerror or error})")
            return
        finally:
            for descriptor in handover.descriptors:
                os.set_inheritable(descriptor, False)
            os.close(end)
        os.set_blocking(answers, False)
        self._successor = _Successor(pid, answers, time.monotonic())
        _log.info("being_replaced", successor=pid)

    def step(self) -> Step:
        """Return what the successor's progress asks of this program."""
        self._end_with_the_first()
        self._dying = [pid for pid in self._dying if _ended(pid) is None]
        successor = self._successor
        if successor is None:
            return Step.GO_ON
        word, _, detail = self._message(successor).partition(" ")
        if word == FAILED:
            return self._gave_up(successor, detail)
        if word == READY:
            return self._took_over(successor, detail)
        if word == WORKERS:
            successor.takes_connections = True
            return Step.YIELD
        if (code := _ended(successor.pid)) is not None:
            successor.pid = 0
            return self._gave_up(successor, f"it ended with exit code {code}; the log has more")
        within = _READY_WITHIN if successor.takes_connections else _SERVES_WITHIN
        if time.monotonic() - successor.started_at > within:
            return self._gave_up(successor, f"it was not ready within {within:.0f} s")
        return Step.GO_ON

    def keep(self, lives: Sequence[Life]) -> int:
        """Wait for the end of this program's children, and in the first program for that of the successors.

        Returns:
            The exit code.
        """
        self._output.leave()
        own = {life.pid: life for life in lives if life.pid}
        code = 0
        while own or self._handover is None:
            signal.setitimer(signal.ITIMER_REAL, _LOOK)
            number = signal.sigwait(
                (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD, signal.SIGALRM, signal.SIGIO, *_PASSED_ON)
            )
            self._end_with_the_first()
            serving = read(self._file)
            if self._handover is None and serving is not None and number not in _OWN:
                _tell(serving.pid, number)
            if number in (signal.SIGTERM, signal.SIGINT):
                for pid in own:
                    _tell(pid, signal.SIGTERM)
                if self._handover is not None:
                    return code
            while True:
                try:
                    pid, status = os.waitpid(-1, os.WNOHANG)
                except ChildProcessError:
                    return code
                if not pid:
                    break
                ended = os.waitstatus_to_exitcode(status)
                life = own.pop(pid, None)
                if life is not None:
                    life.pid = 0
                elif serving is not None and pid == serving.pid:
                    return ended if ended >= 0 else 1
        return code

    def end(self) -> None:
        """End a successor that has not taken over."""
        if self._successor is not None:
            self._let_go(self._successor)

    def _message(self, successor: _Successor) -> str:
        """The next message, or an empty one."""
        with contextlib.suppress(BlockingIOError):
            successor.said += os.read(successor.answers, 65536)
        line, end, rest = successor.said.partition(b"\n")
        if not end:
            return ""
        successor.said = rest
        return line.decode(errors="replace")

    def _took_over(self, successor: _Successor, release: str) -> Step:
        os.close(successor.answers)
        self._successor = None
        _log.info("replaced", successor=successor.pid)
        note(self._file, self._running().succeeded(successor.pid, release))
        return Step.LEAVE

    def _gave_up(self, successor: _Successor, reason: str) -> Step:
        os.close(successor.answers)
        self._successor = None
        self._let_go(successor)
        self._failed(reason)
        return Step.RESUME if successor.takes_connections else Step.GO_ON

    def _failed(self, reason: str) -> None:
        _log.error("not_replaced", reason=reason)
        note(self._file, self._running().failed(reason))

    def _running(self) -> Running:
        return read(self._file) or Running.here(self._release)

    def _let_go(self, successor: _Successor) -> None:
        """Have a successor end; answers that it has begun go on."""
        if successor.pid:
            self._dying.append(successor.pid)
            _tell(successor.pid, REPLACED if successor.takes_connections else signal.SIGKILL)

    def _end_with_the_first(self) -> None:
        """End at once when the first program was killed, as its own children would."""
        if self._handover is not None and select.select([self._handover.first], [], [], 0)[0]:
            os._exit(1)


_OWN = (signal.SIGCHLD, signal.SIGALRM, signal.SIGIO)
_PASSED_ON = (signal.SIGUSR2, signal.SIGHUP)


def _tell(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return


def _ended(pid: int) -> int | None:
    try:
        found, status = os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return 1
    return os.waitstatus_to_exitcode(status) if found else None
