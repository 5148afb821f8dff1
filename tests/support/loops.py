"""A running sidecar between a scripted production model and a scripted Explorer."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any

import httpx
from scripted import ScriptedExplorer

TRAINS_ON_ALL: dict[str, Any] = {
    "selection": {"sampling": {"rate": 1.0}},
    "rewards": {"calculators": [{"constant": {"value": 0.5}}]},
}
"""Settings by which each task is selected, and each run gets the reward 0.5."""


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
