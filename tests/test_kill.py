"""`kill -9` of the sidecar at random moments: what it acknowledged stays, what it delivers is whole."""

from __future__ import annotations

import asyncio
import itertools
import random
import signal
import sqlite3
from pathlib import Path

import httpx
import pytest
from loops import TRAINS_ON_ALL
from scripted import ScriptedExplorer, production_app
from serving import serving, until
from sidecar_process import SidecarProcess, acknowledged

REPEAT_TIME = 2
SEED = 20


@pytest.mark.slow
@pytest.mark.parametrize(("tasks", "kills"), [(60, 3), (500, 20)])
async def test_nothing_acknowledged_is_lost_and_every_group_goes_out_whole_and_once(
    tmp_path: Path, tasks: int, kills: int
) -> None:
    explorer = ScriptedExplorer()
    feedback: list[str] = []
    marks: list[str] = []
    numbers = itertools.count()

    async with (
        serving(production_app()) as production_url,
        serving(explorer.app()) as explorer_url,
        httpx.AsyncClient(timeout=10) as client,
    ):
        sidecar = SidecarProcess(
            tmp_path,
            production_url,
            explorer_url,
            runs={"repeat_time": REPEAT_TIME, "queue": 10_000},
            **TRAINS_ON_ALL,
        )
        client.base_url = httpx.URL(sidecar.url)
        await sidecar.start()

        async def agent() -> None:
            while (number := next(numbers)) < tasks:
                headers = {"x-slipstream-task-id": f"task-{number}"}
                body = {"model": "prod", "messages": [{"role": "user", "content": f"question {number}"}]}
                await acknowledged(client, "/v1/chat/completions", body, headers)
                said = await acknowledged(client, "/feedback", {"task_id": f"task-{number}", "rating": 4}, {})
                feedback.append(said["id"])
                mark = await acknowledged(client, "/marks", {"task_id": f"task-{number}", "labels": ["seen"]}, {})
                marks.append(mark["id"])

        agents = [asyncio.create_task(agent()) for _ in range(8)]
        await sidecar.killed_amid(tasks, lambda: len(marks), kills, random.Random(SEED))
        await asyncio.gather(*agents)
        assert sidecar.lives == kills + 1

        async def drained() -> bool:
            status = (await client.get("/status")).json()
            return not {"running", "ready", "committing"} & set(status["groups"]) and "open" not in status["tasks"]

        await until(drained, 60)
        for receipt in feedback:
            assert (await client.get(f"/feedback/{receipt}")).status_code == 200
        await sidecar.end(signal.SIGTERM)

    with sqlite3.connect(sidecar.store) as store:
        stored_marks = {row[0] for row in store.execute("SELECT id FROM marks")}
        states = dict(store.execute("SELECT id, state FROM groups"))
    store.close()
    assert set(marks) <= stored_marks
    assert len(marks) == len(feedback) == tasks

    by_group = explorer.trained_by_group()
    for group, parts in by_group.items():
        assert sorted(one["run_id"] for one in parts) == list(range(REPEAT_TIME)), f"{group} was trained in part"
    assert set(states.values()) <= {"delivered", "rerun"}
    assert set(by_group) == {group for group, state in states.items() if state == "delivered"}
    # a capture is acknowledged to nobody: what was not yet stored at a kill is gone, a moment's worth of each agent
    assert len(by_group) > tasks / 2
