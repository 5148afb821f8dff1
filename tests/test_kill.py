"""`kill -9` of the sidecar at random moments: what it acknowledged stays, what it delivers is whole."""

from __future__ import annotations

import asyncio
import collections
import itertools
import random
import signal
import sqlite3
from pathlib import Path

import httpx
import pytest
from scripted import ScriptedExplorer, production_app
from serving import serving, until
from sidecar_process import SidecarProcess, acknowledged

REPEAT_TIME = 2
SEED = 20


@pytest.mark.parametrize(("tasks", "kills"), [(60, 3), pytest.param(500, 20, marks=pytest.mark.slow)])
async def test_nothing_acknowledged_is_lost_and_every_group_goes_out_whole_and_once(
    tmp_path: Path, tasks: int, kills: int
) -> None:
    rng = random.Random(SEED)
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
            selection={"sampling": {"rate": 1.0}},
            runs={"repeat_time": REPEAT_TIME, "queue": 10_000},
            rewards={"calculators": [{"constant": {"value": 0.5}}]},
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
        for kill in range(1, kills + 1):
            # some share of the work later, and then at any moment of whatever goes on
            await until(lambda goal=kill * tasks // (kills + 1): len(marks) >= goal, 120)
            await asyncio.sleep(rng.uniform(0, 0.2))
            await sidecar.die(rng.choice(("everything", "parent", "training")))
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

    trained = [experience for commit in explorer.committed for experience in commit]
    assert len({experience["msg_id"] for experience in trained}) == len(trained), "no answer had effect twice"
    by_group = collections.defaultdict(list)
    for number, commit in enumerate(explorer.committed):
        for experience in commit:
            by_group[experience["task_id"]].append((number, experience["run_id"]))
    for group, parts in by_group.items():
        assert len({number for number, _ in parts}) == 1, f"{group} went out in several commits"
        assert sorted(run_id for _, run_id in parts) == list(range(REPEAT_TIME)), f"{group} was trained in part"
    assert set(states.values()) <= {"delivered", "rerun"}
    assert set(by_group) == {group for group, state in states.items() if state == "delivered"}
    # a capture is acknowledged to nobody: what was not yet stored at a kill is gone, a moment's worth of each agent
    assert len(by_group) > tasks / 2
