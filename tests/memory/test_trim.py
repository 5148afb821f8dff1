"""Memory that was let go of is the system's again, though what is kept lies between its pieces."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

from slipstream.memory import trim

HOLES = """
from pathlib import Path
from slipstream.memory import trim

def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

trim.settle()
before = resident()
pieces = [bytes(2048) for _ in range(50_000)]
taken = resident() - before
kept = pieces[::100] + pieces[-1:]
del pieces
trim.trim()
print(taken, resident() - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library's malloc")
def test_holes_between_what_is_kept_are_given_back() -> None:
    done = subprocess.run([sys.executable, "-c", HOLES], capture_output=True, text=True, check=True)
    taken, held = map(int, done.stdout.split())
    assert taken > 90_000_000
    assert held < taken / 5


async def test_an_idle_process_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    trimmed, spent = [], 10.0
    monkeypatch.setattr(trim, "trim", lambda: trimmed.append(spent))
    monkeypatch.setattr(trim.time, "process_time", lambda: spent)
    trimmer = trim.Trimmer()
    for spent in (10.0, 10.05, 10.09, 10.2, 10.25, 13.0):  # noqa: B007 - read by the clock
        await trimmer.step()
    assert trimmed == [10.0, 10.2, 13.0]
