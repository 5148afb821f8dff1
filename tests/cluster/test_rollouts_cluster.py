"""Several sidecars on one store: one decides about the rollout, and another goes on after a `kill -9`."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from loops import Loop
from scripted import ScriptedExplorer
from serving import serving, until
from sidecars_sharing import Member, sidecar_processes
from sqlalchemy import text
from sqlalchemy.ext.asyncio import create_async_engine
from stores import stored_rows

PLAN = {"version": 8, "steps": [0.5], "min_time": "1h", "grace": "100ms"}


async def write(store_url: str, statement: str, *rows: dict[str, Any]) -> None:
    engine = create_async_engine(store_url)
    async with engine.begin() as connection:
        await connection.execute(text(statement), list(rows) or None)
    await engine.dispose()


async def failing_units(store_url: str) -> None:
    """Twenty units of each arm, of which the treated ones fail."""
    at = time.time()
    rows = [
        {"unit": f"u{number}", "arm": ("control", "treatment")[number % 2], "at": at, "failed": number % 2}
        for number in range(40)
    ]
    statement = (
        "INSERT INTO units (version, unit, arm, epoch, first_at, last_at, calls, failures, fallbacks, slowest) "
        "VALUES (8, :unit, :arm, 1, :at, :at, 1, :failed, 0, 0.2)"
    )
    await write(store_url, statement, *rows)


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
        await write(store_url, "INSERT INTO versions (version, seen_at, experiences) VALUES (8, 1, 0)")
        opened = await members[0].loop.client.post("/rollouts", json=PLAN)
        assert opened.status_code == 201, opened.text

        async def decider() -> Member | None:
            query = "SELECT s.name FROM rollouts r JOIN sidecars s ON s.id = r.owner WHERE r.state = 'running'"
            names = [name for (name,) in await stored_rows(store_url, query)]
            port = [member for member in members if names and names[0].endswith(member.loop.url.rpartition(":")[2])]
            return port[0] if port else None

        first: Member = await until(decider, 30)
        [other] = [member for member in members if member is not first]
        first.kill()
        await failing_units(store_url)

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
