"""`kill -9` of the sidecar under replays: no acknowledged end of a run is lost, and no run goes out in part."""

from __future__ import annotations

import asyncio
import itertools
import random
import signal
from pathlib import Path
from typing import Any

import httpx
import pytest
from scripted import ScriptedExplorer
from serving import serving, until
from sidecar_process import SidecarProcess

TASKS = 48
RUNS = 2
CALLS = 2
AGENTS = 4
KILLS = 5
SEED = 5


@pytest.mark.slow
async def test_what_was_acknowledged_goes_out_whole_and_once(tmp_path: Path) -> None:
    explorer = ScriptedExplorer()
    ended: dict[tuple[str, int], list[str]] = {}
    numbers = itertools.count()

    async with serving(explorer.app()) as url, httpx.AsyncClient(timeout=60) as client:
        sidecar = SidecarProcess(tmp_path, "http://127.0.0.1:9", url)  # it gives no run up for being slow
        client.base_url = httpx.URL(sidecar.url)
        await sidecar.start()

        async def posted(path: str, body: dict[str, Any]) -> httpx.Response | None:
            """What was said, or None where the sidecar died meanwhile."""
            try:
                response = await client.post(path, json=body)
            except httpx.TransportError:
                return None
            return None if response.status_code in (502, 503) else response

        async def agent() -> None:
            while (number := next(numbers)) < TASKS:
                task = f"t{number}"
                await until(lambda task=task: posted(f"/runs/{task}", {"runs": RUNS}), 60)  # 409: it was opened
                for run_id in range(RUNS):
                    for _ in range(CALLS):
                        await posted(f"/runs/{task}/{run_id}/v1/chat/completions", {"messages": [{"role": "user"}]})
                    said = await until(
                        lambda task=task, run_id=run_id: posted(
                            f"/runs/{task}/{run_id}/finish", {"reward": number / TASKS}
                        ),
                        60,
                    )
                    if said.status_code == 200 and said.json()["state"] == "scored":
                        ended[task, run_id] = said.json()["msg_ids"]

        agents = [asyncio.create_task(agent()) for _ in range(AGENTS)]
        await sidecar.killed_amid(TASKS, lambda: len(explorer.chats) // RUNS, KILLS, random.Random(SEED))
        await asyncio.gather(*agents)

        async def drained() -> bool:
            status = (await client.get("/status")).json()
            return not {"running", "ready", "committing"} & set(status["groups"])

        await until(drained, 60)
        groups = {f"t{number}": (await client.get(f"/runs/t{number}")).json() for number in range(TASKS)}
        await sidecar.end(signal.SIGTERM)

    trained = explorer.trained_by_group()
    for task, group in groups.items():
        told = trained.pop(group["group_id"], [])
        whole = {run["run_id"]: run["msg_ids"] for run in group["runs"] if run["state"] == "scored"}
        for run_id, msg_ids in whole.items():
            assert ended.get((task, run_id), msg_ids) == msg_ids, "what its agent was told at the end"
        assert (group["state"] == "delivered") == (len(whole) == RUNS), group
        if group["state"] == "delivered":
            assert sorted(one["msg_id"] for one in told) == sorted(msg_id for ids in whole.values() for msg_id in ids)
        else:
            assert told == [], f"{task} was trained in part"
    assert not trained
    for task, run_id in ended:
        assert groups[task]["runs"][run_id]["state"] == "scored", "an acknowledged end was lost"
    lost = sum(group["state"] != "delivered" for group in groups.values())
    assert lost <= AGENTS * KILLS < TASKS / 2, "a kill costs each agent the run that it is in, and nothing else does"
