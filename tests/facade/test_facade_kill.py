"""`kill -9` of the sidecar under clients of the facade: no acknowledged reward is lost, and none counts twice."""

from __future__ import annotations

import asyncio
import itertools
import random
import signal
from pathlib import Path

import httpx
import pytest
from scripted import ScriptedExplorer
from serving import serving, until
from sidecar_process import SidecarProcess, acknowledged

TASKS = 60
RUNS = 2
KILLS = 6
SEED = 6


@pytest.mark.slow
async def test_no_acknowledged_reward_is_lost_or_counts_twice(tmp_path: Path) -> None:
    explorer = ScriptedExplorer()
    rewarded: dict[str, float] = {}
    numbers = itertools.count()

    async with serving(explorer.app()) as url, httpx.AsyncClient(timeout=10) as client:
        sidecar = SidecarProcess(tmp_path, "http://127.0.0.1:9", url, facade={"group_size": RUNS, "group_idle": "1h"})
        client.base_url = httpx.URL(f"{sidecar.url}/explorer")
        await sidecar.start()

        async def agent() -> None:
            while (number := next(numbers)) < TASKS:
                for run_id in range(RUNS):
                    answer = await acknowledged(client, "/v1/chat/completions", {"messages": []})
                    reward = number / TASKS
                    body = {"msg_ids": [answer["id"]], "task_id": f"t{number}", "run_id": str(run_id), "reward": reward}
                    said = await acknowledged(client, "/feedback", body)
                    assert said == {"status": "success"}
                    rewarded[answer["id"]] = reward

        agents = [asyncio.create_task(agent()) for _ in range(4)]
        await sidecar.killed_amid(TASKS * RUNS, lambda: len(rewarded), KILLS, random.Random(SEED))
        await asyncio.gather(*agents)

        async def drained() -> bool:
            facade = (await client.get(f"{sidecar.url}/status")).json()["facade"]
            return bool(facade["groups"] == {"delivered": TASKS})

        await until(drained, 60)
        await sidecar.end(signal.SIGTERM)

    assert {one["msg_id"]: one["reward"] for one in explorer.trained} == rewarded
    assert len(rewarded) == TASKS * RUNS
    assert sorted(map(len, explorer.trained_by_group().values())) == [RUNS] * TASKS
