"""A deadline counts the time in which a process could work, and not that in which others had the CPU."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from slipstream.isolation.deadline import deadline, waited


@contextmanager
def spinning(cpu: int, nice: int) -> Iterator[int]:
    """A process that computes all the time, on one CPU."""
    made = f"import os; os.sched_setaffinity(0, {{{cpu}}}); os.nice({nice}); print(1, flush=True)\nwhile True: pass"
    process = subprocess.Popen([sys.executable, "-c", made], stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        process.stdout.readline()
        yield process.pid
    finally:
        process.kill()
        process.communicate()


async def seconds_until_overdue(seconds: float, pid: int) -> float:
    begun = time.monotonic()
    with pytest.raises(TimeoutError):
        async with deadline(seconds, pid):
            await asyncio.Event().wait()
    return time.monotonic() - begun


async def test_a_process_that_gets_no_cpu_has_more_time_and_one_that_sleeps_has_not() -> None:
    cpu = min(os.sched_getaffinity(0))
    with ExitStack() as stack:
        starved = stack.enter_context(spinning(cpu, 19))
        stack.enter_context(spinning(cpu, 0))
        before = waited(starved)
        # Long enough that the kernel runs it once, even beside other tests: only then does it count the wait.
        assert await seconds_until_overdue(1.0, starved) > 1.3
        assert waited(starved) > before
    sleeper = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)  # noqa: ASYNC220
    try:
        assert await seconds_until_overdue(0.4, sleeper.pid) >= 0.4
    finally:
        sleeper.communicate(b"\n")


async def test_work_that_is_done_in_time_is_no_error_and_a_process_that_is_gone_has_waited_for_nothing() -> None:
    async with deadline(30):
        await asyncio.sleep(0)
    assert waited(2**22 + 1) == 0
