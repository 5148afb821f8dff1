"""A share of a core for a process: a control group with a CPU quota, of either version of Linux's control groups."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

_PERIOD = 10_000
"""Microseconds. The default of 100 ms would let a process run for 25 ms and then stop it for 75."""
_V1 = Path("/sys/fs/cgroup/cpu")
_V2 = Path("/sys/fs/cgroup")


class NoQuota(Exception):
    """A control group with a quota cannot be made: not root, not mounted, or without the cpu controller."""


class Quotas:
    """Control groups of our own; `end` removes them."""

    def __init__(self) -> None:
        self._first = (_V1 / "cgroup.procs").exists()
        self._root = _V1 if self._first else _V2
        self._made: list[Path] = []

    def limit(self, pid: int, cores: float) -> None:
        """Let the process, with all its threads, use no more than `cores`.

        Raises:
            NoQuota: it cannot be done here.
        """
        folder = self._root / f"slipstream-bench-{os.getpid()}-{len(self._made)}"
        quota = int(cores * _PERIOD)
        try:
            folder.mkdir()
            self._made.append(folder)
            if self._first:
                (folder / "cpu.cfs_period_us").write_text(str(_PERIOD))
                (folder / "cpu.cfs_quota_us").write_text(str(quota))
            else:
                (folder / "cpu.max").write_text(f"{quota} {_PERIOD}")
            (folder / "cgroup.procs").write_text(str(pid))
        except OSError as error:
            raise NoQuota(f"a control group with a CPU quota cannot be made: {error.strerror}") from error

    def end(self) -> None:
        """Take every quota back."""
        for folder in self._made:
            for pid in _text(folder / "cgroup.procs").split():
                with contextlib.suppress(OSError):
                    (self._root / "cgroup.procs").write_text(pid)
            for _ in range(50):  # a process that has just ended leaves its group a moment later
                try:
                    folder.rmdir()
                    break
                except OSError:
                    time.sleep(0.02)


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
