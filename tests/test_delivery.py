"""Delivery: whole groups, once with effect, whatever happens to the Explorer in between."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest
from loops import Loop, RunLoop
from scripted import ScriptedExplorer
from serving import until
from sqlalchemy import text
from sqlalchemy.exc import OperationalError
from sqlalchemy.ext.asyncio import create_async_engine
from starlette.responses import JSONResponse
from stores import ON_BOTH_STORES

from slipstream.stages import timers
from slipstream.store.database import Database

pytestmark = ON_BOTH_STORES


async def _metric(loop: Loop, line: str) -> bool:
    return line in (await loop.client.get("/metrics")).text


async def _group(loop: Loop, repeat_time: int) -> None:
    await loop.chat("hello", {"x-slipstream-task-id": "t"})
    await until(lambda: loop.ready(repeat_time))


def _trained(explorer: ScriptedExplorer) -> list[tuple[str, int]]:
    return sorted((one["task_id"], one["run_id"]) for one in explorer.trained)


async def test_a_commit_that_fails_loses_its_queue_and_the_runs_are_run_again(run_loop: RunLoop) -> None:
    async with run_loop(runs={"repeat_time": 2}) as loop:
        await _group(loop, 2)
        loop.explorer.faults["/commit"] = [500]
        counts = await loop.commit()
        assert (counts["experiences"], counts["run_again"]) == (0, 1)
        await until(lambda: loop.ready(2))
        await loop.commit()
        assert _trained(loop.explorer) == [("t.0~1", 0), ("t.0~1", 1)], (
            "another group, as the old one's rows are used up"
        )
        assert await _metric(loop, 'slipstream_groups_total{outcome="run_again"} 1.0')


async def test_a_reward_of_another_range_is_cut_to_the_present_one(run_loop: RunLoop, store_url: str) -> None:
    async with run_loop(runs={"repeat_time": 2}) as loop:
        await _group(loop, 2)
        engine = create_async_engine(store_url)
        async with engine.begin() as store:  # as they are found after a change of `rewards.clip`
            await store.execute(text("UPDATE runs SET reward = CASE run_id WHEN 0 THEN -3.0 ELSE 0.75 END"))
        await engine.dispose()
        await loop.commit()
        assert sorted(each["reward"] for each in loop.explorer.trained) == [0.0, 0.75]


@pytest.mark.parametrize("asked", [True, False], ids=["asked for the next", "not asked"])
async def test_a_commit_that_fails_while_the_store_is_away_is_not_taken_for_delivered(
    run_loop: RunLoop, monkeypatch: pytest.MonkeyPatch, asked: bool
) -> None:
    async with run_loop(runs={"repeat_time": 2}) as loop:
        await _group(loop, 2)
        loop.explorer.faults["/commit"] = [500]
        commit, write = loop.explorer._commit, Database.write

        @asynccontextmanager
        async def away(*_: Any, **__: Any) -> AsyncIterator[Any]:
            raise OperationalError(None, None, Exception("away"))
            yield

        async def fails(request: Any) -> Any:
            monkeypatch.setattr(Database, "write", away)
            return await commit(request)

        loop.explorer.commit_route = fails
        assert (await loop.client.post("/commit")).status_code == 503
        monkeypatch.setattr(Database, "write", write)
        loop.explorer.commit_route = commit
        if asked:
            await loop.commit()

        async def failed() -> bool:
            return (await loop.status())["commits"] == {"failed": 1}

        await until(failed)
        await until(lambda: loop.ready(2))
        await loop.commit()
        assert _trained(loop.explorer) == [("t.0~1", 0), ("t.0~1", 1)]


async def test_a_commit_whose_answer_is_lost_is_not_repeated(run_loop: RunLoop) -> None:
    async with run_loop() as loop:
        await _group(loop, 1)
        commit = loop.explorer._commit

        async def carried_out_but_unanswered(request: Any) -> Any:
            await commit(request)
            return JSONResponse({}, 504)  # what a gateway says when it has waited too long

        loop.explorer.commit_route = carried_out_but_unanswered
        response = await loop.client.post("/commit")
        assert response.status_code == 503
        assert response.json()["error"]["code"] == "explorer_unavailable"
        loop.explorer.commit_route = commit
        await loop.commit()
        assert _trained(loop.explorer) == [("t.0", 0)]
        assert (await loop.status())["groups"] == {"delivered": 1}


async def test_feedback_cut_off_in_the_middle_of_a_group_goes_on_where_it_was(run_loop: RunLoop) -> None:
    async with run_loop(runs={"repeat_time": 3}) as loop:
        await _group(loop, 3)
        loop.explorer.faults["/feedback"] = [200, 503]
        assert (await loop.client.post("/commit")).status_code == 503
        assert loop.explorer.committed == []
        await loop.commit()
        [committed] = loop.explorer.committed
        assert len(committed) == 3
        assert (await loop.status())["groups"] == {"delivered": 1}


async def test_no_group_of_a_cut_delivery_is_both_trained_on_and_run_again(run_loop: RunLoop) -> None:
    """The Explorer was told of `a` before the cut, and has forgotten `b`: its counters do not tell them apart."""
    async with run_loop(runs={"repeat_time": 2}) as loop:
        for number, name in enumerate("abc", 1):
            await loop.chat("hello", {"x-slipstream-task-id": name})
            await until(lambda number=number: loop.ready(2 * number))
        task = await loop.task("b")
        assert task is not None
        loop.explorer.recorded -= {run["msg_id"] for run in task["groups"][0]["runs"]}
        loop.explorer.faults["/feedback"] = [200, 200, 503]
        assert (await loop.client.post("/commit")).status_code == 503
        counts = await loop.commit()
        assert (counts["groups"], counts["run_again"]) == (1, 0)
        assert (await loop.status())["groups"] == {"delivered": 1, "dropped": 2}
        again = await loop.client.post("/marks", json={"task_id": "b", "labels": [], "metadata": {"reference": "1"}})
        assert again.status_code == 202
        assert (await loop.status())["groups"] == {"delivered": 1, "dropped": 2}, "what is given up stays so"


@pytest.mark.slow
async def test_an_explorer_that_restarts_between_feedback_and_commit(run_loop: RunLoop) -> None:
    async with run_loop(runs={"repeat_time": 2}) as loop:
        await _group(loop, 2)
        loop.explorer.faults["/commit"] = [503]
        loop.explorer.keep_queue_on_fault = True
        assert (await loop.client.post("/commit")).status_code == 503
        loop.explorer.boot(forget=False)
        counts = await loop.commit()
        assert counts["run_again"] == 1
        await until(lambda: loop.ready(2))
        await loop.commit()
        assert _trained(loop.explorer) == [("t.0~1", 0), ("t.0~1", 1)]


async def test_an_explorer_that_forgot_its_answers_gets_new_ones(run_loop: RunLoop) -> None:
    async with run_loop(runs={"repeat_time": 2}) as loop:
        await _group(loop, 2)
        loop.explorer.recorded.clear()
        counts = await loop.commit()
        assert (counts["groups"], counts["run_again"]) == (0, 1)
        await until(lambda: loop.ready(2))
        assert (await loop.commit())["experiences"] == 2
        assert _trained(loop.explorer) == [("t.0~1", 0), ("t.0~1", 1)]


@pytest.mark.slow
async def test_a_group_whose_first_answer_is_forgotten_is_not_trained_in_part(run_loop: RunLoop) -> None:
    async with run_loop(runs={"repeat_time": 3, "concurrency": 1}) as loop:
        await _group(loop, 3)
        task = await loop.task("t")
        assert task is not None
        loop.explorer.recorded.remove(task["groups"][0]["runs"][0]["msg_id"])
        counts = await loop.commit()
        assert (counts["groups"], counts["run_again"]) == (0, 1)
        await until(lambda: loop.ready(3))
        assert (await loop.commit())["experiences"] == 3
        assert _trained(loop.explorer) == [("t.0~1", 0), ("t.0~1", 1), ("t.0~1", 2)]


@pytest.mark.slow
async def test_a_group_that_is_lost_again_and_again_is_given_up(run_loop: RunLoop) -> None:
    async with run_loop(runs={"max_attempts": 2}) as loop:
        await _group(loop, 1)
        loop.explorer.faults["/commit"] = [500, 500]
        await loop.commit()
        await until(lambda: loop.ready(1))
        await loop.commit()
        assert (await loop.status())["groups"] == {"rerun": 1, "dropped": 1}


@pytest.mark.slow
async def test_a_group_waits_for_its_last_run_and_leaves_out_a_failed_one(run_loop: RunLoop) -> None:
    async with run_loop(runs={"repeat_time": 3, "concurrency": 1}) as loop:
        loop.explorer.faults["/v1/chat/completions"] = [400]
        loop.explorer.hold.clear()
        await loop.chat("hello", {"x-slipstream-task-id": "t"})
        await until(lambda: loop.explorer.chats)
        assert (await loop.commit())["experiences"] == 0
        loop.explorer.hold.set()
        await until(lambda: loop.ready(2))
        await loop.commit()
        assert _trained(loop.explorer) == [("t.0", 1), ("t.0", 2)]


async def test_a_restarted_sidecar_ends_the_delivery_that_was_cut_off(run_loop: RunLoop) -> None:
    explorer = ScriptedExplorer()
    explorer.keep_queue_on_fault = True
    async with run_loop(explorer, runs={"repeat_time": 2}, commit={"interval": "1h", "on_shutdown": False}) as loop:
        await _group(loop, 2)
        explorer.faults["/commit"] = [503]
        assert (await loop.client.post("/commit")).status_code == 503
        assert (await loop.status())["groups"] == {"committing": 1}
    async with run_loop(explorer) as loop:
        await loop.commit()
        assert _trained(explorer) == [("t.0", 0), ("t.0", 1)]
        status = await loop.status()
        assert (status["groups"], status["last_commit"]["state"]) == ({"delivered": 1}, "delivered")
        assert "if the Explorer failed at the first, which is not known" in status["last_commit"]["reason"]


@pytest.mark.slow
async def test_a_commit_comes_at_the_time_of_its_schedule(run_loop: RunLoop, monkeypatch: pytest.MonkeyPatch) -> None:
    """A minute of the schedule lasts two seconds here."""
    every = timedelta(seconds=2)
    monkeypatch.setattr(timers, "next_time", lambda expression, timezone, after: after + every)
    async with run_loop(runs={"repeat_time": 2}, commit={"schedule": "* * * * *", "interval": "1h"}) as loop:
        assert (await loop.status())["next_commit"]["in_seconds"] == pytest.approx(1, abs=1.1)
        await _group(loop, 2)

        async def delivered() -> Any:
            return (await loop.status())["last_commit"]

        assert (await until(delivered))["trigger"] == "schedule"


@pytest.mark.slow
@pytest.mark.parametrize("answers", [["nan"], ["inf"]])
async def test_a_non_finite_reward_fails_the_run_and_never_reaches_the_explorer(
    run_loop: RunLoop, answers: list[str], tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = tmp_path / f"bad_reward_{answers[0]}.py"
    module.write_text(f"def reward(run):\n    return float({answers[0]!r})\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    async with run_loop(rewards={"calculators": [{"python": f"{module.stem}:reward"}]}) as loop:
        await loop.chat("hello")

        async def failed() -> Any:
            return (await loop.status())["failed_runs"]

        [failure] = await until(failed)
        assert "finite" in failure["reason"]
        assert (await loop.commit())["experiences"] == 0
        assert loop.explorer.committed == []
