"""A real sidecar in front of Trinity's real code, as a test holds it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any

from loops import Loop
from real_trinity import RealTrinity
from serving import until


@dataclass
class Sidecar(Loop):
    """A running sidecar between a scripted production model and the real Trinity."""

    explorer: RealTrinity  # type: ignore[assignment]

    async def group(self, task_id: str, ready: int, prompt: str = "hello") -> None:
        """One task of one call, until so many of all experiences wait for the next commit."""
        await self.chat(prompt, {"x-slipstream-task-id": task_id})
        await until(lambda: self.ready(ready), 30)

    async def runs(self, task_id: str) -> list[dict[str, Any]]:
        """The runs of the task's newest group."""
        task = await self.task(task_id)
        assert task is not None
        newest: list[dict[str, Any]] = task["groups"][-1]["runs"]
        return newest

    async def group_states(self, task_id: str) -> list[str]:
        """The states of the task's groups, generation after generation; none while there is no group."""
        task = await self.task(task_id)
        return [group["state"] for group in task["groups"]] if task is not None else []


StartTrinity = Callable[..., Awaitable[RealTrinity]]
StartSidecar = Callable[..., AbstractAsyncContextManager[Sidecar]]
