"""Two sidecars as processes, on one PostgreSQL and one Explorer."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
from loops import TRAINS_ON_ALL
from scripted import ScriptedExplorer, production_app
from serving import serving, until
from sidecar_process import SidecarProcess

REPEAT_TIME = 2


@dataclass
class Cluster:
    """Two sidecars, each with a client of it."""

    explorer: ScriptedExplorer
    store_url: str
    first: SidecarProcess
    second: SidecarProcess
    to_first: httpx.AsyncClient
    to_second: httpx.AsyncClient

    async def ask(self, client: httpx.AsyncClient, task_id: str) -> str:
        """A chat through one of them; returns the answer's id."""
        body = {"model": "prod", "messages": [{"role": "user", "content": f"question of {task_id}"}]}
        answer = await client.post("/v1/chat/completions", json=body, headers={"x-slipstream-task-id": task_id})
        assert answer.status_code == 200, answer.text
        msg_id: str = answer.json()["id"]
        return msg_id

    async def delivered(self, groups: int, *, by: httpx.AsyncClient) -> None:
        """Wait for so many groups, as one of them sees it."""

        async def there() -> bool:
            status = (await by.get("/status")).json()
            return bool(status["groups"].get("delivered", 0) == groups)

        await until(there, 40, f"{groups} groups")

    def trained(self) -> dict[str, list[int]]:
        """The run ids by group, of all that had effect. Fails if one had it twice, or a group is in two commits."""
        groups = self.explorer.trained_by_group()
        return {group: sorted(one["run_id"] for one in parts) for group, parts in groups.items()}


@asynccontextmanager
async def two_sidecars(store_url: str, folder: Path, *, lease: str = "2s", **sections: Any) -> AsyncIterator[Cluster]:
    """Start them together, on a database that is empty."""
    explorer = ScriptedExplorer()
    async with serving(production_app()) as production_url, serving(explorer.app()) as explorer_url:
        settings: dict[str, Any] = {
            "store": {"url": store_url, "lease": lease},
            "runs": {"repeat_time": REPEAT_TIME, "concurrency": 8},
            **TRAINS_ON_ALL,
            **sections,
        }
        sidecars = []
        for name in ("first", "second"):
            (folder / name).mkdir()
            sidecars.append(SidecarProcess(folder / name, production_url, explorer_url, **settings))
        first, second = sidecars
        try:
            await asyncio.gather(first.start(), second.start())
            async with (
                httpx.AsyncClient(base_url=first.url, timeout=30) as to_first,
                httpx.AsyncClient(base_url=second.url, timeout=30) as to_second,
            ):
                yield Cluster(explorer, store_url, first, second, to_first, to_second)
        finally:
            explorer.hold.set()
            for sidecar in sidecars:
                with suppress(ProcessLookupError):
                    os.killpg(sidecar.pid, signal.SIGCONT)
                    await sidecar.end(signal.SIGTERM)
