"""Memory that was let go of is the system's again, though what is kept lies between its pieces."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

HOLES = """
import asyncio
from pathlib import Path
from slipstream import memory

def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

memory.settle()
before = resident()
pieces = [bytes(2048) for _ in range(50_000)]
taken = resident() - before
kept = pieces[::100] + pieces[-1:]
del pieces
asyncio.run(memory.step())
print(taken, resident() - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library's malloc")
def test_holes_between_what_is_kept_are_given_back() -> None:
    done = subprocess.run([sys.executable, "-c", HOLES], capture_output=True, text=True, check=True)
    taken, held = map(int, done.stdout.split())
    assert taken > 90_000_000
    assert held < taken / 5
