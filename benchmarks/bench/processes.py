"""Processes of the measurement: started on their cores, held still while others are measured, and always ended."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from bench.machine import tree

_STARTS = 60.0
"""Seconds to begin to listen in, on a machine that does much else."""
_GRACE = 5.0
"""Seconds to end in before a process is killed."""


class Unavailable(Exception):
    """A target cannot be measured here, and the message says why."""


class Process:
    """A program and all that it starts, pinned to `cores`, in a session of its own, its output in a file."""

    def __init__(self, command: Sequence[str], cores: Iterable[int], log: Path, env: Mapping[str, str]) -> None:
        pinned = set(cores)
        self.log = log
        with log.open("wb") as output:
            try:
                self._popen = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    env={**os.environ, **env},
                    cwd=log.parent,
                    start_new_session=True,
                    preexec_fn=lambda: os.sched_setaffinity(0, pinned),
                )
            except OSError as error:
                raise Unavailable(f"{command[0]}: {error.strerror}") from error
        self.pid = self._popen.pid

    @property
    def ended(self) -> bool:
        return self._popen.poll() is not None

    def tree(self) -> list[int]:
        """Ids of all its processes."""
        return tree(self.pid)

    def said(self) -> str:
        """The last line of its output that says something."""
        lines = [line.strip() for line in self.log.read_text(errors="replace").splitlines() if line.strip()]
        return lines[-1][-200:] if lines else "no output"

    def listen(self, port: int) -> None:
        """Wait until something listens on `port`.

        Raises:
            Unavailable: the process ended, or it takes too long.
        """
        deadline = time.monotonic() + _STARTS
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                return
            except OSError as error:
                if self.ended or time.monotonic() > deadline:
                    raise Unavailable(f"{self.log.parent.name} does not listen: {self.said()}") from error
                time.sleep(0.02)

    def hold(self) -> None:
        """Let it take no CPU until `go_on`."""
        self._send(signal.SIGSTOP)

    def go_on(self) -> None:
        self._send(signal.SIGCONT)

    def end(self) -> None:
        """End the program in order, or kill it in time, and kill what it has left behind."""
        pids = [pid for pid in self.tree() if pid != self.pid or not self.ended]
        self._send(signal.SIGTERM, [] if self.ended else [self.pid])
        self._send(signal.SIGCONT, pids)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._popen.wait(_GRACE)
        self._send(signal.SIGKILL, [pid for pid in pids if pid != self.pid or not self.ended])
        self._popen.wait()
        deadline = time.monotonic() + _GRACE
        while any(Path(f"/proc/{pid}/exe").exists() for pid in pids) and time.monotonic() < deadline:
            time.sleep(0.01)

    def _send(self, number: signal.Signals, pids: Iterable[int] | None = None) -> None:
        for pid in self.tree() if pids is None else pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)


@contextlib.contextmanager
def ending(processes: list[Process]) -> Iterator[None]:
    """End every process of the list on the way out, after Ctrl-C and SIGTERM too."""

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number in before:
            signal.signal(number, signal.SIG_IGN)  # an impatient second Ctrl-C would leave processes behind
        for process in reversed(processes):
            process.end()
        for number, handler in before.items():
            signal.signal(number, handler)


def free_port() -> int:
    """A port of 127.0.0.1 on which nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])
