"""Versions that answer users, with workers and a training side in processes of their own."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest
from processes import Production, chat, running
from scripted import ScriptedExplorer
from serving import serving, until
from sidecar_process import SidecarProcess


@asynccontextmanager
async def with_lane(folder: Path, url: str) -> AsyncIterator[tuple[SidecarProcess, ScriptedExplorer]]:
    """A sidecar of two workers whose lane answers everybody."""
    lane = ScriptedExplorer()
    async with serving(lane.app()) as lane_url:
        section = {"mode": "on", "lane": {"base_url": f"{lane_url}/v1"}}
        async with running(folder, url, serving=section, proxy={"workers": 2}) as sidecar:

            async def ready() -> bool:
                async with httpx.AsyncClient(base_url=sidecar.url) as client:
                    return bool((await client.get("/serving")).json()["ready"])

            await until(ready, 30)
            async with httpx.AsyncClient(base_url=sidecar.url, timeout=30) as client:
                said = await client.post("/serving/share", json={"version": 8, "share": 1.0})
                assert said.status_code == 200, said.text
            yield sidecar, lane


async def test_all_workers_go_by_the_page_and_a_kill_holds_in_all_of_them_at_once(
    production: tuple[Production, str], tmp_path: Path
) -> None:
    async with with_lane(tmp_path, production[1]) as (sidecar, lane):
        assert await asyncio.gather(*(chat(sidecar.url, f"{number}") for number in range(40))) == [200] * 40
        assert (len(lane.chats), production[0].asked) == (40, 0)
        async with httpx.AsyncClient(base_url=sidecar.url, timeout=30) as client:
            assert (await client.post("/serving/kill")).status_code == 200
        assert await asyncio.gather(*(chat(sidecar.url, f"{number}") for number in range(40))) == [200] * 40
        assert (len(lane.chats), production[0].asked) == (40, 40)


@pytest.mark.slow
async def test_users_go_on_without_a_training_side_and_a_kill_without_it_is_noted_later(
    production: tuple[Production, str], tmp_path: Path
) -> None:
    async with with_lane(tmp_path, production[1]) as (sidecar, lane):
        training = sidecar.children()["training"]
        os.kill(training, signal.SIGSTOP)  # it hangs: nothing answers for it, and nothing takes its place yet
        assert await asyncio.gather(*(chat(sidecar.url, f"{number}") for number in range(10))) == [200] * 10
        assert len(lane.chats) == 10
        async with httpx.AsyncClient(base_url=sidecar.url, timeout=60) as client:
            killed = asyncio.create_task(client.post("/serving/kill"))

            async def by_production() -> bool:
                before = production[0].asked
                assert await chat(sidecar.url, "again") == 200
                return production[0].asked > before

            await until(by_production)
            asked = len(lane.chats)
            assert await asyncio.gather(*(chat(sidecar.url, f"{number}") for number in range(20))) == [200] * 20
            assert len(lane.chats) == asked
            os.kill(training, signal.SIGCONT)
            answer = await killed
            assert answer.json()["killed"]
            assert (await client.get("/serving")).json()["killed"]
