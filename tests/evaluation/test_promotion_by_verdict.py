"""Promotions by hand need a verdict of better or equal, or force."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from evaluated import EXACT, Knowing, evaluated, suite, verdict, write_cases
from loops import Loop, RunLoop
from scripted import ScriptedExplorer
from serving import serving, until
from stores import ON_BOTH_STORES


@pytest.fixture
async def lane() -> AsyncIterator[dict[str, Any]]:
    """The section `serving` with a lane that answers."""
    explorer = ScriptedExplorer()
    explorer.version = 12
    async with serving(explorer.app()) as url:
        yield {"mode": "on", "lane": {"base_url": f"{url}/v1"}}


async def running(loop: Loop, version: int) -> int:
    opened = (await loop.client.post("/rollouts", json={"version": version})).json()

    async def begun() -> bool:
        found = (await loop.client.get(f"/rollouts/{opened['id']}")).json()
        return bool(found["state"] == "running")

    await until(begun)
    return int(opened["id"])


@pytest.mark.slow
@ON_BOTH_STORES
async def test_without_a_verdict_a_promotion_is_refused_unless_it_is_forced(
    run_loop: RunLoop, tmp_path: Path, lane: dict[str, Any]
) -> None:
    cases = write_cases(tmp_path / "cases.jsonl", 30)
    section = suite(cases, production="prod")
    async with run_loop(Knowing(), rewards=EXACT, evaluation=section, serving=lane) as loop:
        await evaluated(loop, 2)
        number = await running(loop, 2)
        response = await loop.client.post(f"/rollouts/{number}/promote")
        error = response.json()["error"]
        assert (response.status_code, error["code"], error["param"]) == (409, "no_verdict", "force")
        assert "expected the verdict better or equal, found worse" in error["message"]
        assert "suite fixed against production: worse, 30 sessions" in error["message"]
        assert "force: true" in error["message"]
        shown = (await loop.client.get(f"/rollouts/{number}")).json()
        assert shown["state"] == "running"
        forced = await loop.client.post(f"/rollouts/{number}/promote", json={"force": True})
        assert (forced.status_code, forced.json()["state"]) == (200, "promoted")
        last = (await loop.client.get(f"/rollouts/{number}")).json()["decisions"][-1]
        assert last["reason"] == "by hand, without proof; by force, whatever its verdict is"


async def test_a_version_with_no_comparison_is_refused_and_told_so(run_loop: RunLoop, lane: dict[str, Any]) -> None:
    async with run_loop(Knowing(), serving=lane) as loop:
        loop.explorer.version = 2

        async def known() -> bool:
            return (await loop.client.get("/versions/2")).status_code == 200

        await until(known)
        number = await running(loop, 2)
        message = (await loop.client.post(f"/rollouts/{number}/promote")).json()["error"]["message"]
        assert "found not enough data (rollout 1 against production: not enough data, 0 sessions)" in message
        assert (await verdict(loop, 2))["sources"][0]["missing"] == {"sessions": None, "cases": None}
        assert (await loop.client.post("/rollouts/9/promote")).status_code == 404
        await loop.client.post(f"/rollouts/{number}/abort")
        error = (await loop.client.post(f"/rollouts/{number}/promote")).json()["error"]
        assert error["code"] == "rollout_state", "what cannot be promoted needs no verdict"


@pytest.mark.slow
async def test_an_equal_version_is_promoted_by_hand(run_loop: RunLoop, tmp_path: Path, lane: dict[str, Any]) -> None:
    cases = write_cases(tmp_path / "cases.jsonl", 120)
    section = {**suite(cases, production="prod"), "concurrency": 16}
    explorer = Knowing(*range(120))
    async with run_loop(explorer, rewards=EXACT, evaluation=section, serving=lane) as loop:
        against = (await evaluated(loop, 2))["result"]["against_production"]
        assert (against["verdict"], against["difference"]) == ("equal", 0)
        number = await running(loop, 2)
        response = await loop.client.post(f"/rollouts/{number}/promote", json={})
        assert response.status_code == 200, response.text
        last = (await loop.client.get(f"/rollouts/{number}")).json()["decisions"][-1]
        assert last["reason"] == "by hand, without proof; the verdict is equal"
