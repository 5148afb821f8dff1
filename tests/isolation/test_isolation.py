"""Child processes end with their parent, however it ends, and none is started without work."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
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

STARTS_ANOTHER = """
import subprocess
from slipstream.isolation import Isolation
Isolation().user.call(subprocess.check_call, ["sleep", "3600"], timeout=3600)
"""


def started_by(pid: int) -> list[psutil.Process]:
    """What code of the user's own has started in an isolated process."""
    return [child for child in psutil.Process(pid).children() if child.name() == "sleep"]


def gone(process: psutil.Process) -> bool:
    return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE


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
    await until(lambda: gone(child), 60)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="the system does not say that a parent has ended")
async def test_what_the_users_code_has_started_ends_when_the_parent_is_killed() -> None:
    parent = subprocess.Popen([sys.executable, "-c", STARTS_ANOTHER])  # noqa: ASYNC220
    try:
        [child] = await until(lambda: psutil.Process(parent.pid).children(), 120)
        [started] = await until(lambda: started_by(child.pid), 120)
    finally:
        parent.kill()
        parent.communicate()
    await until(lambda: gone(started), 60)


async def test_what_the_users_code_has_started_ends_with_its_process() -> None:
    isolation = Isolation()
    pool = isolation.user
    ends: list[Callable[[int], object]] = [
        lambda pid: os.kill(pid, signal.SIGKILL),  # as the system does that needs memory
        lambda _: asyncio.to_thread(isolation.close),
    ]
    for end in ends:
        pid = await pool.ask(os.getpid, timeout=60)
        work = pool.submit(subprocess.check_call, ["sleep", "3600"], timeout=3600)
        [started] = await until(lambda pid=pid: started_by(pid), 60)
        if inspect.isawaitable(ending := end(pid)):
            await ending
        with pytest.raises(NotFinished):
            await asyncio.wrap_future(work)
        await until(lambda started=started: gone(started), 60)


async def test_plain_code_that_is_overdue_ends_with_its_process_and_holds_up_nothing(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "told")
    isolation = Isolation()
    pool = isolation.user
    try:
        pid = await pool.ask(os.getpid, timeout=60)
        beside = pool.submit((tmp_path / "told").read_text, timeout=60)
        with pytest.raises(NotFinished, match=r"took longer than 0\.1 s"):
            await pool.ask(time.sleep, 3600, timeout=0.1)
        again = await pool.ask(os.getpid, timeout=60)
        assert again != pid
        assert not beside.done()
        assert psutil.pid_exists(pid), "no process is ended with work of others in it"
        await asyncio.to_thread((tmp_path / "told").write_text, "its result")
        assert await asyncio.wrap_future(beside) == "its result"
        await until(lambda: not Path(f"/proc/{pid}").exists())
        with pytest.raises(NotFinished, match=r"took longer than 0\.1 s"):
            await pool.ask(asyncio.sleep, 3600, timeout=0.1)
        assert await pool.ask(os.getpid, timeout=60) == again, "what gives way costs no process"
    finally:
        await asyncio.to_thread(isolation.close)


@pytest.mark.slow
async def test_one_process_with_overdue_code_is_kept_for_what_runs_beside_it_and_nothing_is_interrupted_twice(
    tmp_path: Path,
) -> None:
    isolation = Isolation()
    pool = isolation.user
    slow, before = {}, len(psutil.Process().children())

    async def stuck_beside(name: str | None) -> None:
        if name is not None:
            os.mkfifo(tmp_path / name)
            begins = f"echo >> {tmp_path}/begun-{name}; cat {tmp_path}/{name}"
            slow[name] = pool.submit(subprocess.check_output, ["sh", "-c", begins], timeout=120)
            await until(lambda: begun(name) == 1, 60)
        with pytest.raises(NotFinished, match=r"took longer than 0\.1 s"):
            await pool.ask(time.sleep, 3600, timeout=0.1)

    def begun(name: str) -> int:
        file = tmp_path / f"begun-{name}"
        return len(file.read_text()) if file.exists() else 0

    try:
        await stuck_beside("first")
        await stuck_beside("second")
        await until(lambda: begun("first") == 2, 60)
        assert begun("second") == 1
        await stuck_beside(None)
        await until(lambda: begun("second") == 2, 60)
        await stuck_beside(None)
        assert len(psutil.Process().children()) == before + 2
        waits = pool.submit(abs, -1, timeout=60)
        await asyncio.to_thread((tmp_path / "first").write_text, "its result")
        assert await asyncio.wrap_future(slow["first"]) == b"its result"
        assert await asyncio.wrap_future(waits) == 1
        await asyncio.to_thread((tmp_path / "second").write_text, "its result")
        assert await asyncio.wrap_future(slow["second"]) == b"its result"
        assert (begun("first"), begun("second")) == (2, 2)
    finally:
        await asyncio.to_thread(isolation.close)


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


async def test_little_memory_means_less_at_once_and_no_work_is_lost() -> None:
    """The stacks of 64 threads alone would take four times that much."""
    isolation = Isolation(user_memory=128 * 1024**2)
    try:
        works = [isolation.user.submit(time.sleep, 0.2, timeout=60) for _ in range(40)]
        await asyncio.gather(*map(asyncio.wrap_future, works))
    finally:
        await asyncio.to_thread(isolation.close)


async def test_where_no_thread_can_start_the_work_is_answered_at_once(tmp_path: Path) -> None:
    full, go_on = tmp_path / "full", tmp_path / "go_on"
    for pipe in (full, go_on):
        os.mkfifo(pipe)
    isolation = Isolation(user_memory=128 * 1024**2)
    try:
        filling = isolation.user.submit(_take_all_threads, full, go_on, timeout=600)
        await asyncio.to_thread(full.read_text)
        with pytest.raises(NotFinished, match="needed more than 128 MiB of memory"):
            await isolation.user.ask(os.getpid, timeout=600)
        await asyncio.to_thread(go_on.write_text, "")
        await asyncio.wrap_future(filling)
    finally:
        await asyncio.to_thread(isolation.close)


def _take_all_threads(full: Path, go_on: Path) -> None:
    with contextlib.suppress(RuntimeError):
        while True:
            threading.Thread(target=time.sleep, args=(3600,), daemon=True).start()
    full.write_text("")
    go_on.read_text()
