"""Fixtures for tests of the whole sidecar: real HTTP on both sides of it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from scripted import ScriptedExplorer, production_app
from serving import serving

from slipstream.app import create_app
from slipstream.config.settings import Settings


@dataclass
class Loop:
    """A running sidecar between a scripted production model and a scripted Explorer."""

    url: str
    explorer: ScriptedExplorer
    client: httpx.AsyncClient

    async def chat(
        self, content: Any = "hello", headers: dict[str, str] | None = None, **fields: Any
    ) -> dict[str, Any]:
        """One chat completion through the sidecar; returns production's answer."""
        messages = content if isinstance(content, list) else [{"role": "user", "content": content}]
        body = {"model": "prod", "messages": messages, **fields}
        response = await self.client.post("/v1/chat/completions", json=body, headers=headers or {})
        assert response.status_code == 200, response.text
        answer: dict[str, Any] = response.json()
        return answer

    async def status(self) -> dict[str, Any]:
        response = await self.client.get("/status")
        assert response.status_code == 200, response.text
        status: dict[str, Any] = response.json()
        return status

    async def task(self, task_id: str) -> dict[str, Any] | None:
        """The task, or None while it is not stored."""
        response = await self.client.get(f"/tasks/{task_id}")
        return response.json() if response.status_code == 200 else None

    async def commit(self) -> dict[str, Any]:
        response = await self.client.post("/commit")
        assert response.status_code == 200, response.text
        counts: dict[str, Any] = response.json()
        return counts

    async def ready(self, count: int) -> bool:
        """Whether so many experiences wait for the next commit."""
        return (await self.status())["next_commit"]["experiences_ready"] == count


RunLoop = Callable[..., AbstractAsyncContextManager[Loop]]


@pytest.fixture
def run_loop(tmp_path: Path) -> RunLoop:
    """Start the whole loop with settings given as sections: `run_loop(runs={"repeat_time": 2})`.

    Everything is selected, and each run gets the reward 0.5, unless a section says otherwise. The store stays in the
    test's folder, so that a second start finds what the first one left. `explorer=` reuses a scripted Explorer.
    """

    @asynccontextmanager
    async def start(explorer: ScriptedExplorer | None = None, **sections: Any) -> AsyncIterator[Loop]:
        explorer = explorer or ScriptedExplorer()
        async with serving(production_app()) as production_url, serving(explorer.app()) as explorer_url:
            settings = Settings.model_validate(
                {
                    "store": {"url": f"sqlite+aiosqlite:///{tmp_path}/slipstream.db"},
                    "selection": {"sampling": {"rate": 1.0}},
                    "rewards": {"calculators": [{"constant": {"value": 0.5}}]},
                    "commit": {"interval": "1h"},
                    **sections,
                    "production": {"base_url": f"{production_url}/v1", **sections.get("production", {})},
                    "explorer": {
                        "base_url": explorer_url,
                        "poll_interval": "50ms",
                        **sections.get("explorer", {}),
                    },
                }
            )
            async with (
                serving(create_app(settings)) as url,
                httpx.AsyncClient(base_url=url, timeout=30) as client,
            ):
                yield Loop(url, explorer, client)

    return start
