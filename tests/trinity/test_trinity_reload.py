"""New weights: an engine that loads them serves no chat meanwhile."""

from __future__ import annotations

import asyncio
import time
from collections import Counter

import httpx
import pytest
from real_sidecar import StartSidecar, StartTrinity
from real_trinity import RealTrinity
from scripted_engine import ScriptedEngine
from serving import serving, until

RELOAD = 20.0
"""Seconds: what the weights of a small model take."""


async def test_no_run_is_lost_while_the_only_engine_reloads_and_production_goes_on(
    trinity: RealTrinity, engine: ScriptedEngine, start_sidecar: StartSidecar
) -> None:
    """With `min_running_model_num: 0` and one engine, each chat gets a 500 for as long as it takes."""
    async with start_sidecar(trinity, runs={"max_attempts": 1}) as sidecar:
        await sidecar.group("before", ready=2)
        engine.reloading.clear()
        trinity.publish(1)
        await until(lambda: engine.reloads)
        async with httpx.AsyncClient(base_url=trinity.url, timeout=30) as client:
            chat = {"model": "policy", "messages": [{"role": "user", "content": "now"}]}
            assert (await client.post("/v1/chat/completions", json=chat)).status_code == 500

        began, number = time.monotonic(), 0
        while time.monotonic() - began < RELOAD:
            asked = time.monotonic()
            answer = await sidecar.chat(f"{number}", {"x-slipstream-task-id": f"t{number}"})
            assert answer["choices"][0]["message"]["content"] == f"echo: {number}"
            assert time.monotonic() - asked < RELOAD / 2, "production waited"
            number += 1
            await asyncio.sleep(2)  # the pace of the traffic, for as long as the reload takes
        assert len(engine.chats) == 2
        engine.reloading.set()

        for task in range(number):
            await sidecar.settled(f"t{task}")
        await sidecar.commit()
        versions = Counter(row.model_version for row in trinity.trained())
        assert versions == {0: 2, 1: 2 * number}


@pytest.mark.slow
async def test_no_run_is_lost_while_not_even_the_models_name_can_be_had(
    trinity: RealTrinity, engine: ScriptedEngine, start_sidecar: StartSidecar
) -> None:
    """Trinity asks an engine for it, the first time."""
    async with start_sidecar(trinity, runs={"max_attempts": 1}) as sidecar:
        engine.reloading.clear()
        trinity.publish(1)
        await until(lambda: engine.reloads)
        await sidecar.planned("t")
        await until(lambda: sidecar.tried(), 30)
        engine.reloading.set()
        await sidecar.settled("t")
        assert await sidecar.group_states("t") == ["ready"]


@pytest.mark.slow
async def test_a_lone_run_outlives_an_explorer_that_is_down(trinity: RealTrinity, start_sidecar: StartSidecar) -> None:
    async with start_sidecar(trinity, runs={"repeat_time": 1, "max_attempts": 1}) as sidecar:
        await trinity.kill()
        await sidecar.planned("t")
        await until(lambda: sidecar.tried(), 30)
        await trinity.start()
        await sidecar.settled("t")
        assert await sidecar.group_states("t") == ["ready"]


async def test_two_engines_reload_in_turn_and_the_version_is_the_older_one(
    engine: ScriptedEngine, start_trinity: StartTrinity, start_sidecar: StartSidecar
) -> None:
    other = ScriptedEngine()
    async with serving(engine.app()) as first, serving(other.app()) as second:
        trinity = await start_trinity(first, second, explorer={"min_running_model_num": 1})
        async with start_sidecar(trinity) as sidecar:
            engine.reloading.clear()
            other.reloading.clear()
            trinity.publish(1)
            await until(lambda: engine.reloads or other.reloads)
            await sidecar.group("meanwhile", ready=2)
            (engine if engine.reloads else other).reloading.set()
            await until(lambda: engine.reloads and other.reloads)
            await sidecar.group("between", ready=4)
            assert (await sidecar.status())["policy"]["version"] == 0, "one of them has not loaded it yet"

            engine.reloading.set()
            other.reloading.set()

            async def reloaded() -> bool:
                return bool((await sidecar.status())["policy"]["version"] == 1)

            await until(reloaded)
            await sidecar.commit()
            versions = {row.task_id: row.model_version for row in trinity.trained()}
            assert versions == {"meanwhile.0": 0, "between.0": 1}
        await trinity.kill()
