"""An Explorer that restarts while the sidecar stands still amid a delivery: its new process is not told the rest."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

import httpx
import pytest
from loops import TRAINS_ON_ALL
from ports import free_port
from scripted import ScriptedExplorer, production_app
from serving import serving, until
from sidecar_process import SidecarProcess

REPEAT_TIME = 3


@pytest.mark.parametrize(
    "after",
    [*(pytest.param(number, marks=pytest.mark.slow) for number in range(1, REPEAT_TIME)), REPEAT_TIME],
    ids=lambda after: f"after feedback {after}",
)
@pytest.mark.slow
async def test_its_new_process_is_not_told_the_rest(tmp_path: Path, after: int) -> None:
    explorer = ScriptedExplorer()
    port, stopped = free_port(), asyncio.Event()
    told = 0
    async with serving(production_app()) as production_url, httpx.AsyncClient(timeout=10) as client:
        async with serving(explorer.app(), port) as explorer_url:
            sidecar = SidecarProcess(
                tmp_path,
                production_url,
                explorer_url,
                runs={"repeat_time": REPEAT_TIME},
                **TRAINS_ON_ALL,
            )

            async def stop_it(request: Any) -> Any:
                nonlocal told
                answer = await explorer._feedback(request)
                told += 1
                if told == after:
                    os.kill(sidecar.children()["training"], signal.SIGSTOP)
                    stopped.set()
                return answer

            explorer.feedback_route = stop_it
            await sidecar.start()
            client.base_url = httpx.URL(sidecar.url)
            body = {"model": "prod", "messages": [{"role": "user", "content": "hello"}]}
            response = await client.post("/v1/chat/completions", json=body, headers={"x-slipstream-task-id": "t"})
            assert response.status_code == 200
            async with asyncio.timeout(30):
                await stopped.wait()
        explorer.boot(forget=False)
        async with serving(explorer.app(), port):
            os.kill(sidecar.children()["training"], signal.SIGCONT)

            async def delivered() -> bool:
                return (await client.get("/status")).json()["groups"].get("delivered") == 1

            await until(delivered, 30)
            await sidecar.end(signal.SIGTERM)
    assert [(one["task_id"], one["run_id"]) for one in explorer.trained] == [
        ("t.0~1", run_id) for run_id in range(REPEAT_TIME)
    ]
