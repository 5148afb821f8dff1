"""Several sidecars on one store: one delivers at a time, and whoever it is, a group goes out whole and once."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from loops import Loop, RunLoop
from scripted import ScriptedExplorer
from serving import until
from sidecars_sharing import sidecar_processes, sidecars
from starlette.requests import Request
from starlette.responses import Response
from stores import ON_BOTH_STORES, stored_rows


class HeldExplorer(ScriptedExplorer):
    """Holds the requests to one of its routes until it is told otherwise.

    Attributes:
        path: of the route.
        arrived: set while one is held.
        go_on: while it is set, none is.
    """

    def __init__(self, path: str) -> None:
        super().__init__()
        self.path = path
        self.arrived, self.go_on = asyncio.Event(), asyncio.Event()
        if path == "/feedback":
            self.feedback_route = self._held_feedback
        else:
            self.commit_route = self._held_commit

    async def _held_feedback(self, request: Request) -> Response:
        self.arrived.set()
        await self.go_on.wait()
        return await self._feedback(request)

    async def _held_commit(self, request: Request) -> Response:
        self.arrived.set()
        await self.go_on.wait()
        return await self._commit(request)


def _trained(explorer: ScriptedExplorer) -> list[list[tuple[str, int]]]:
    """What each commit took that took anything."""
    return [sorted((e["task_id"], e["run_id"]) for e in commit) for commit in explorer.committed if commit]


async def _group(loop: Loop, task_id: str) -> None:
    """A group that is ready to be delivered."""
    await loop.chat("hello", {"x-slipstream-task-id": task_id})

    async def ready() -> bool:
        task = await loop.task(task_id)
        return task is not None and bool(task["groups"]) and task["groups"][-1]["state"] == "ready"

    await until(ready, 30)


async def _delivered(loop: Loop, count: int = 1) -> bool:
    return (await loop.status())["groups"] == {"delivered": count}


async def test_two_that_are_asked_at_once_deliver_once(new_postgres: Callable[[], str]) -> None:
    explorer = HeldExplorer("/feedback")
    async with sidecars(new_postgres(), explorer, runs={"repeat_time": 2}) as (one, other):
        await _group(one, "t")
        first = asyncio.create_task(one.commit())
        await explorer.arrived.wait()
        second = asyncio.create_task(other.commit())
        await _group(other, "u")
        assert not second.done()
        explorer.go_on.set()
        counts = [await first, await second]
        assert [count["experiences"] for count in counts] == [2, 2]
        assert _trained(explorer) == [[("t.0", 0), ("t.0", 1)], [("u.0", 0), ("u.0", 1)]]


@pytest.mark.slow
async def test_what_one_could_not_deliver_the_other_does(new_postgres: Callable[[], str]) -> None:
    explorer = ScriptedExplorer()
    explorer.keep_queue_on_fault = True
    async with sidecars(new_postgres(), explorer, runs={"repeat_time": 2}) as (one, other):
        await _group(one, "t")
        explorer.faults["/commit"] = [503]
        assert (await one.client.post("/commit")).status_code == 503
        assert (await other.commit())["experiences"] == 2
        assert _trained(explorer) == [[("t.0", 0), ("t.0", 1)]]
        assert await _delivered(one)


@pytest.mark.slow
async def test_several_commit_no_more_often_than_one(new_postgres: Callable[[], str]) -> None:
    store_url, explorer = new_postgres(), ScriptedExplorer()
    async with sidecars(store_url, explorer, 3, commit={"interval": "600ms", "on_shutdown": False}) as loops:
        number = 0
        while len(explorer.committed) < 5:
            await loops[number % 3].chat(f"hello {number}")
            await asyncio.sleep(0.02)
            number += 1
    begun = [at for (at,) in await stored_rows(store_url, "SELECT started_at FROM commits ORDER BY id")]
    assert all(later - earlier > 0.55 for earlier, later in itertools.pairwise(begun)), begun


@pytest.mark.slow
async def test_a_sidecar_that_is_killed_amid_a_delivery_has_it_ended_by_another(
    tmp_path: Path, new_postgres: Callable[[], str]
) -> None:
    explorer = HeldExplorer("/feedback")
    async with sidecar_processes(tmp_path, new_postgres(), explorer, runs={"repeat_time": 3}) as (one, other):
        await _group(one.loop, "t")
        asked = asyncio.create_task(one.loop.client.post("/commit"))
        await explorer.arrived.wait()
        one.kill()
        explorer.go_on.set()
        await asyncio.gather(asked, return_exceptions=True)
        await until(lambda: _delivered(other.loop), 30)
        assert _trained(explorer) == [[("t.0", 0), ("t.0", 1), ("t.0", 2)]]


@pytest.mark.parametrize("path", ["/feedback", pytest.param("/commit", marks=pytest.mark.slow)])
@pytest.mark.slow
async def test_a_sidecar_that_was_stopped_amid_a_delivery_leaves_it_to_who_took_it_over(
    tmp_path: Path, new_postgres: Callable[[], str], path: str
) -> None:
    store_url, explorer = new_postgres(), HeldExplorer(path)
    async with sidecar_processes(tmp_path, store_url, explorer, runs={"repeat_time": 3}) as (one, other):
        await _group(one.loop, "t")
        asked = asyncio.create_task(one.loop.client.post("/commit"))
        await explorer.arrived.wait()
        go_on = one.stop_training()
        explorer.feedback_route, explorer.commit_route = explorer._feedback, explorer._commit  # to others
        assert (await other.loop.commit())["experiences"] == 3, "it waits for the lease, and then does it itself"
        ends = await stored_rows(store_url, "SELECT id, state, ended_at, experiences FROM commits")
        await _group(other.loop, "u")
        explorer.go_on.set()
        go_on()
        said = await asked
        assert said.status_code == 200, said.text
        await other.loop.commit()
        assert _trained(explorer) == [[(f"{task}.0", run) for run in range(3)] for task in "tu"]
        first, _ = await stored_rows(store_url, "SELECT id, state, ended_at, experiences FROM commits ORDER BY id")
        assert [first] == ends
        assert explorer.step == (2 if path == "/feedback" else 3), "the commit that was on its way took nothing"


@pytest.mark.slow
@ON_BOTH_STORES
async def test_a_commit_from_elsewhere_amid_the_feedback_of_a_group_costs_that_group(run_loop: RunLoop) -> None:
    explorer = ScriptedExplorer()
    told = 0

    async def feedback(request: Any) -> Response:
        nonlocal told
        told += 1
        if told == 5:
            await explorer._commit(request)
        return await explorer._feedback(request)

    explorer.feedback_route = feedback
    async with run_loop(explorer, runs={"repeat_time": 3}) as loop:
        for task in "tuv":
            await _group(loop, task)
        assert (await loop.commit())["groups"] == 2
        assert (await loop.status())["groups"] == {"delivered": 2, "dropped": 1}
        task = await loop.task("u")
        assert task is not None
        assert task["groups"][0]["state"] == "dropped"
        assert 'slipstream_groups_total{outcome="dropped"} 1.0' in (await loop.client.get("/metrics")).text


@pytest.mark.slow
@ON_BOTH_STORES
async def test_a_delivery_that_was_cut_off_and_whose_feedback_somebody_committed_counts_what_it_knows(
    run_loop: RunLoop,
) -> None:
    async with run_loop(runs={"repeat_time": 2}) as loop:
        for task in "tu":
            await _group(loop, task)
        loop.explorer.faults["/feedback"] = [200, 200, 503]
        assert (await loop.client.post("/commit")).status_code == 503
        explorer = loop.explorer
        explorer.committed.append(explorer.queue)
        explorer.queue, explorer.step = [], explorer.step + 1
        assert (await loop.commit())["groups"] == 1
        assert _trained(loop.explorer) == [[("t.0", 0), ("t.0", 1)], [("u.0", 0), ("u.0", 1)]]
        assert (await loop.status())["groups"] == {"delivered": 1, "dropped": 1}
