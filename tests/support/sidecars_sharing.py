"""Several sidecars that share one PostgreSQL and one Explorer: in the test's event loop, or as processes."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
from loops import TRAINS_ON_ALL, Loop
from scripted import ScriptedExplorer, production_app
from serving import serving, sidecar
from sidecar_process import SidecarProcess

from slipstream.settings.sidecar import Settings

LEASE = 3.0
"""Seconds: a sidecar that does not move for this long is taken for dead."""


def sections(store_url: str, production_url: str, explorer_url: str, **more: Any) -> dict[str, Any]:
    """Settings that select everything, give each run the reward 0.5, and commit on demand."""
    return {
        **TRAINS_ON_ALL,
        "commit": {"interval": "1h"},
        **more,
        "production": {"base_url": f"{production_url}/v1"},
        "explorer": {"base_url": explorer_url, "poll_interval": "50ms", **more.get("explorer", {})},
        "store": {"url": store_url, "lease": LEASE, **more.get("store", {})},
    }


@asynccontextmanager
async def sidecars(
    store_url: str, explorer: ScriptedExplorer, count: int = 2, **more: Any
) -> AsyncIterator[list[Loop]]:
    """Whole sidecars, in the test's own event loop."""
    async with AsyncExitStack() as stack:
        production_url = await stack.enter_async_context(serving(production_app()))
        explorer_url = await stack.enter_async_context(serving(explorer.app()))
        loops = []
        for _ in range(count):
            settings = Settings.model_validate(sections(store_url, production_url, explorer_url, **more))
            url = await stack.enter_async_context(sidecar(settings))
            client = await stack.enter_async_context(httpx.AsyncClient(base_url=url, timeout=30))
            loops.append(Loop(url, explorer, client))
        yield loops


@dataclass
class Member:
    """A sidecar of its own processes, and what is said to it."""

    process: SidecarProcess
    loop: Loop

    def stop_training(self) -> Callable[[], None]:
        """SIGSTOP of what turns captures into experiences; its workers go on. Returns what has it go on."""
        training = self.process.children()["training"]
        os.kill(training, signal.SIGSTOP)
        return lambda: os.kill(training, signal.SIGCONT)

    def kill(self) -> None:
        """`kill -9` of all its processes at once, stopped or not."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)


@asynccontextmanager
async def sidecar_processes(
    folder: Path, store_url: str, explorer: ScriptedExplorer, count: int = 2, **more: Any
) -> AsyncIterator[list[Member]]:
    """Whole sidecars, each with its processes. They are killed at the end, stopped or not."""
    async with AsyncExitStack() as stack:
        production_url = await stack.enter_async_context(serving(production_app()))
        explorer_url = await stack.enter_async_context(serving(explorer.app()))
        members = []
        for number in range(count):
            place = folder / f"sidecar-{number}"
            place.mkdir()
            about = sections(store_url, production_url, explorer_url, **more)
            process = SidecarProcess(place, production_url, explorer_url, **about)
            await process.start()
            client = await stack.enter_async_context(httpx.AsyncClient(base_url=process.url, timeout=60))
            members.append(Member(process, Loop(process.url, explorer, client)))
            stack.push_async_callback(process.ended)
            stack.callback(members[-1].kill)
        yield members
