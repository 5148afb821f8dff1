"""Several sidecars on one store: a session has one arm at all of them, and one decides, also after a `kill -9`."""

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

pytestmark = pytest.mark.slow

BODY = {
    "name": "eight", "b": "version:8", "metrics": ["failure"], "grace": "100ms", "decision": "switch_traffic",
    "force": True,
}  # fmt: skip
LANE = "the lane says"


async def write(store_url: str, statement: str, *rows: dict[str, Any]) -> None:
    engine = create_async_engine(store_url)
    async with engine.begin() as connection:
        await connection.execute(text(statement), list(rows) or None)
    await engine.dispose()


async def failing_control(store_url: str) -> None:
    """Forty units of each arm, of which those of production fail."""
    at = time.time()
    rows = [
        {"unit": f"u{number}", "arm": ("control", "treatment")[number % 2], "at": at, "failed": 1 - number % 2}
        for number in range(80)
    ]
    statement = (
        "INSERT INTO units (version, unit, arm, epoch, first_at, last_at, calls, failures, fallbacks, slowest) "
        "VALUES (8, :unit, :arm, 1, :at, :at, 1, :failed, 0, 0.2)"
    )
    await write(store_url, statement, *rows)


async def arms(loop: Loop) -> list[bool]:
    """Whether the lane answers each of twenty sessions."""
    answers = [await loop.chat("hello", {"x-slipstream-session-id": f"s-{number}"}) for number in range(20)]
    return [answer["choices"][0]["message"]["content"].startswith(LANE) for answer in answers]


async def test_one_decides_for_all_and_another_goes_on_after_it_was_killed(
    tmp_path: Path, new_postgres: Callable[[], str]
) -> None:
    store_url = new_postgres()
    explorer = ScriptedExplorer(answer=f"{LANE} {{n}}")
    async with (
        serving(explorer.app()) as lane,
        sidecar_processes(
            tmp_path, store_url, ScriptedExplorer(), serving={"mode": "on", "lane": {"base_url": f"{lane}/v1"}}
        ) as members,
    ):
        await write(store_url, "INSERT INTO versions (version, seen_at, experiences) VALUES (8, 1, 0)")
        started = await members[0].loop.client.post("/experiments", json=BODY)
        assert started.status_code == 201, started.text
        again = await members[1].loop.client.post("/experiments", json=BODY)
        assert (again.status_code, again.json()["error"]["code"]) == (409, "experiment_open")

        async def ready() -> bool:
            found = [(await member.loop.client.get("/serving")).json() for member in members]
            return all(one["ready"] and one["share"] == 0.5 for one in found)

        await until(ready, 30)
        [here, there] = [await arms(member.loop) for member in members]
        assert here == there, "a session has its arm, whichever sidecar it comes to"
        assert 0 < sum(here) < 20

        async def decider() -> Member | None:
            query = "SELECT s.name FROM experiments e JOIN sidecars s ON s.id = e.owner WHERE e.state = 'running'"
            names = [name for (name,) in await stored_rows(store_url, query)]
            port = [member for member in members if names and names[0].endswith(member.loop.url.rpartition(":")[2])]
            return port[0] if port else None

        first: Member = await until(decider, 30)
        [other] = [member for member in members if member is not first]
        first.kill()
        await failing_control(store_url)

        async def decided() -> bool:
            return bool((await other.loop.client.get("/experiments/1")).json()["state"] == "decided")

        await until(decided, 60)
        actions = await stored_rows(store_url, "SELECT action, key FROM audit ORDER BY id")
        assert actions == [
            ("experiment_start", None),
            ("experiment_begin", "(decider)"),
            ("experiment_decide", "(decider)"),
            ("rollout_open", "(decider)"),
            ("rollout_begin", "(decider)"),
            ("rollout_promote", "(decider)"),
            ("experiment_switch", "(decider)"),
        ]
        assert await stored_rows(store_url, "SELECT version, share FROM serving") == [(8, 0.95)]
        killed = await other.loop.client.post("/serving/kill")
        assert killed.status_code == 200
        assert not any(await arms(other.loop))
