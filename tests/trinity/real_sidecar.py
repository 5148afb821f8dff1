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

    async def planned(self, task_id: str, prompt: str = "hello") -> None:
        """One task of one call, until its runs are planned; what becomes of them is the test's affair."""
        await self.chat(prompt, {"x-slipstream-task-id": task_id})
        await until(lambda: self.group_states(task_id), 30)

    async def ended(self, task_id: str, states: list[str], seconds: float = 60) -> None:
        """Wait for the states of a task's groups, generation after generation."""

        async def reached() -> bool:
            return await self.group_states(task_id) == states

        await until(reached, seconds)

    async def settled(self, task_id: str, seconds: float = 60) -> None:
        """Wait until every run of a task has ended, and with them its groups, whatever has become of them."""

        async def reached() -> bool:
            states = await self.group_states(task_id)
            return bool(states) and "running" not in states

        await until(reached, seconds)

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

    async def tried(self) -> bool:
        """Whether a run was sent in vain: put off, or failed for good."""
        return await self.retried() or bool((await self.status())["failed_runs"])

    async def retried(self) -> bool:
        """Whether a run was put off, to be sent again."""
        return "slipstream_run_retries_total 0.0" not in (await self.client.get("/metrics")).text


StartTrinity = Callable[..., Awaitable[RealTrinity]]
StartSidecar = Callable[..., AbstractAsyncContextManager[Sidecar]]
