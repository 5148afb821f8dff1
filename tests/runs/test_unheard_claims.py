"""Runs are claimed, and the sidecar does not hear whether they were: each is sent once, and none is forgotten."""

from __future__ import annotations

import pytest
from loops import RunLoop
from lost_commit import lose_a_commit
from replay_endpoint import Endpoint, ended, webhook_loop
from serving import until

from slipstream.store import runs, webhook

TOOK_PLACE = pytest.mark.parametrize("took_place", [True, False], ids=["committed", "rolled back"])


@pytest.mark.slow
@TOOK_PLACE
async def test_a_shadow_call_is_sent_and_what_is_on_its_way_meanwhile_not_again(
    run_loop: RunLoop, monkeypatch: pytest.MonkeyPatch, took_place: bool
) -> None:
    async with run_loop(runs={"repeat_time": 2}) as loop:
        await loop.chat("before")  # to an Explorer that has not answered yet, runs go one by one
        await until(lambda: loop.ready(2))
        loop.explorer.hold.clear()
        await loop.chat("first", {"x-slipstream-task-id": "first"})
        await until(lambda: len(loop.explorer.chats) == 4)
        lost = lose_a_commit(monkeypatch, runs, took_place=took_place)
        await loop.chat("second", {"x-slipstream-task-id": "second"})
        await until(lambda: len(loop.explorer.chats) == 6)
        loop.explorer.hold.set()
        await until(lambda: loop.ready(6))
    assert lost
    asked = [chat["messages"][-1]["content"] for chat in loop.explorer.chats[2:]]
    assert asked == ["first", "first", "second", "second"], "each once"


@pytest.mark.slow
@TOOK_PLACE
async def test_an_endpoint_is_told_and_of_what_it_runs_meanwhile_not_again(
    run_loop: RunLoop, monkeypatch: pytest.MonkeyPatch, took_place: bool
) -> None:
    endpoint = Endpoint()
    endpoint.hold.clear()
    async with webhook_loop(run_loop, endpoint, repeat_time=2) as loop:
        await loop.chat("hello", {"x-slipstream-task-id": "first"})
        await until(lambda: len(endpoint.told) == 2)
        lost = lose_a_commit(monkeypatch, webhook, took_place=took_place)
        await loop.chat("hello", {"x-slipstream-task-id": "second"})
        await until(lambda: len(endpoint.told) == 4)
        endpoint.hold.set()
        await ended(loop, "first", "scored", "scored")
        await ended(loop, "second", "scored", "scored")
    assert lost
    assert [told["task_id"] for told in endpoint.told] == ["first", "first", "second", "second"], "each once"
