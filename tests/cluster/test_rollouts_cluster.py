"""Several sidecars on one store: one decides about the rollout, and another goes on after a `kill -9`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from compared_together import decider, write_units, write_version
from loops import Loop
from scripted import ScriptedExplorer
from serving import serving, until
from sidecars_sharing import Member, sidecar_processes
from stores import stored_rows

PLAN = {"version": 8, "steps": [0.5], "min_time": "1h", "grace": "100ms"}


async def state(loop: Loop) -> str:
    found: str = (await loop.client.get("/rollouts/1")).json()["state"]
    return found


@pytest.mark.slow
async def test_another_sidecar_decides_after_the_one_that_did_was_killed(
    tmp_path: Path, new_postgres: Callable[[], str]
) -> None:
    store_url = new_postgres()
    async with (
        serving(ScriptedExplorer().app()) as lane,
        sidecar_processes(
            tmp_path, store_url, ScriptedExplorer(), serving={"mode": "on", "lane": {"base_url": f"{lane}/v1"}}
        ) as members,
    ):
        await write_version(store_url)
        opened = await members[0].loop.client.post("/rollouts", json=PLAN)
        assert opened.status_code == 201, opened.text

        first: Member = await until(lambda: decider(store_url, members, "rollouts"), 30)
        [other] = [member for member in members if member is not first]
        first.kill()
        await write_units(store_url, 20, failing="treatment")

        async def rolled_back() -> bool:
            return await state(other.loop) == "rolled_back"

        await until(rolled_back, 60)
        actions = await stored_rows(store_url, "SELECT action, key FROM audit ORDER BY id")
        assert actions == [
            ("rollout_open", None),
            ("rollout_begin", "(decider)"),
            ("rollout_roll_back", "(decider)"),
        ]
        assert await stored_rows(store_url, "SELECT version, share FROM serving") == [(None, 0.0)]
