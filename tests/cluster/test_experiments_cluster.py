"""Several sidecars on one store: a session has one arm at all of them, and one decides, also after a `kill -9`."""

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

pytestmark = pytest.mark.slow

BODY = {
    "name": "eight", "b": "version:8", "metrics": ["failure"], "grace": "100ms", "decision": "switch_traffic",
    "force": True,
}  # fmt: skip
LANE = "the lane says"


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
        await write_version(store_url)
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

        first: Member = await until(lambda: decider(store_url, members, "experiments"), 30)
        [other] = [member for member in members if member is not first]
        first.kill()
        await write_units(store_url, 40, failing="control")

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
