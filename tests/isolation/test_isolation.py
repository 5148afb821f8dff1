"""Child processes end with their parent, however it ends, and none is started without work."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path

import psutil
import pytest
from serving import until

from slipstream.isolation import Isolation, NotFinished

HANGS = """
import re, sys
from slipstream.isolation import Isolation
work = Isolation().content.submit(re.match, "^(a+)+$", "a" * 60 + "b", timeout=3600)
print("asked", flush=True)
work.result()
"""


@pytest.mark.slow
async def test_a_child_that_hangs_ends_when_its_parent_is_killed() -> None:
    parent = subprocess.Popen([sys.executable, "-c", HANGS], stdout=subprocess.PIPE)  # noqa: ASYNC220
    try:
        [child] = await until(lambda: psutil.Process(parent.pid).children(), 120)
        # beyond its start, and in the pattern, where no signal is seen
        await until(lambda: child.cpu_times().user > 1, 120)
    finally:
        parent.kill()
        parent.communicate()
    await until(lambda: not child.is_running() or child.status() == psutil.STATUS_ZOMBIE, 60)


def test_no_process_and_no_thread_runs_without_work() -> None:
    before = threading.active_count(), psutil.Process().children()
    isolation = Isolation()
    isolation.user.prepare(print)
    assert (threading.active_count(), psutil.Process().children()) == before
    isolation.close()


async def test_a_process_that_dies_with_nothing_to_do_fails_no_work() -> None:
    isolation = Isolation()
    try:
        for pool in (isolation.content, isolation.user):
            pid = await pool.ask(os.getpid, timeout=60)
            os.kill(pid, signal.SIGKILL)  # as the system does that needs memory
            await until(lambda pid=pid: not Path(f"/proc/{pid}").exists())
            assert await asyncio.gather(*(pool.ask(abs, -number, timeout=60) for number in range(4))) == [0, 1, 2, 3]
            assert await pool.ask(os.getpid, timeout=60) != pid
    finally:
        await asyncio.to_thread(isolation.close)


async def test_what_waits_when_it_is_closed_fails_and_its_process_is_gone() -> None:
    isolation = Isolation()
    work = [isolation.content.submit(re.match, "^(a+)+$", "a" * 60 + "b", timeout=3600) for _ in range(2)]
    children = await until(lambda: psutil.Process().children(), 60)
    await asyncio.to_thread(isolation.close)
    for each in work:
        with pytest.raises(NotFinished, match="the sidecar ends"):
            each.result(timeout=60)
    assert not any(child.is_running() for child in children)
    with pytest.raises(NotFinished, match="the sidecar ends"):
        isolation.content.call(abs, -1, timeout=1)
