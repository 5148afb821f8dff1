"""A program that runs in a process group of its own for as long as a `with` block."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import IO, Self


class Program:
    """Started at construction; at the end of the block it is asked to end, and killed when it does not.

    Args:
        command: the program and its arguments.
        environment: all of its environment.
        grace: seconds between the asking and the killing.
        ask: the signal that asks.
        output: where it writes; None for where we do.
    """

    def __init__(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        grace: float,
        ask: signal.Signals = signal.SIGTERM,
        output: IO[bytes] | None = None,
    ) -> None:
        self._grace = grace
        self._ask = ask
        self._process = subprocess.Popen(  # noqa: S603 - what the user told us to run
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=None if output is None else subprocess.STDOUT,
            process_group=0,
        )

    def ended(self, within: float = 0.0) -> int | None:
        """Its exit code, as soon as it has ended, at the latest after so many seconds; None while it runs."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self._process.wait(within)
        return None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.ended() is None:
            self._process.send_signal(self._ask)
            self.ended(self._grace)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)  # the program where it would not end, and what it left
        self._process.wait()
