"""The first runs that are sent to an Explorer, and to one that was away."""

from __future__ import annotations

import pytest
from loops import RunLoop
from serving import until


@pytest.mark.slow
async def test_runs_go_one_by_one_until_the_explorer_has_answered(run_loop: RunLoop) -> None:
    async with run_loop(runs={"repeat_time": 4, "concurrency": 4}) as loop:
        loop.explorer.hold.clear()
        await loop.chat("first", {"x-slipstream-task-id": "first"})
        await until(lambda: loop.explorer.chats)
        await loop.chat("second", {"x-slipstream-task-id": "second"})
        await until(lambda: loop.task("second"))
        assert len(loop.explorer.chats) == 1
        loop.explorer.hold.set()
        await until(lambda: loop.ready(8))
        loop.explorer.hold.clear()
        await loop.chat("third")
        await until(lambda: len(loop.explorer.chats) == 8 + 4)
        loop.explorer.hold.set()


async def test_a_first_run_that_fails_does_not_keep_the_others_back(run_loop: RunLoop) -> None:
    async with run_loop(runs={"repeat_time": 2, "max_attempts": 1}) as loop:
        loop.explorer.faults["/v1/chat/completions"] = [500]
        await loop.chat("hello")
        await until(lambda: len(loop.explorer.recorded) == 1)
        assert len(loop.explorer.chats) == 2
