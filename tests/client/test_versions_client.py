"""`HotUpdater` and `ModelManager` at one running sidecar with a lane, an Explorer that gets versions, and a suite."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from evaluated import EXACT, Knowing, serves, suite, write_cases
from loops import Loop, RunLoop
from scripted import ScriptedExplorer
from serving import serving, until
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

import slipstream_client as slipstream
from slipstream_client import HotUpdater, ModelManager


async def running(loop: Loop, rollout: int) -> dict[str, Any]:
    async def begun() -> dict[str, Any] | None:
        found = (await loop.client.get(f"/rollouts/{rollout}")).json()
        return found if found["state"] == "running" else None

    found: dict[str, Any] = await until(begun)
    return found


async def test_new_versions_are_seen_tested_rolled_out_taken_back_named_and_compared(
    run_loop: RunLoop, tmp_path: Path
) -> None:
    lane = ScriptedExplorer()
    lane.version = 12
    cases = write_cases(tmp_path / "cases.jsonl", 4)
    async with serving(lane.app()) as lane_url:
        at = {"mode": "on", "lane": {"base_url": f"{lane_url}/v1"}}
        section = suite(cases, production="prod")
        async with run_loop(Knowing(1, 2, 3), rewards=EXACT, evaluation=section, serving=at) as loop:
            slipstream.configure(loop.url, timeout=30)
            agent = object()
            updater = HotUpdater(
                agent, update_config={"strategy": "canary", "canary_ratio": 0.1, "check_after_updates": 2}
            )
            await serves(loop, 0)
            assert await asyncio.to_thread(updater.has_new_model) is False, "version 0 is the model that was given"
            await serves(loop, 1)
            assert await asyncio.to_thread(updater.has_new_model) is False, "one of two"
            await serves(loop, 2)
            assert await asyncio.to_thread(updater.has_new_model) is True

            await _tested(updater)
            await serves(loop, 3)
            opened = await asyncio.to_thread(updater.rollout_update, min_units=5)
            assert (opened.version, opened.state, opened.ended) == (2, "pending", False), "the tested one"
            found = await running(loop, opened.id)
            assert (found["plan"]["steps"], found["plan"]["min_units"]) == ([0.1, 0.2, 0.5, 0.95], 5)
            assert await asyncio.to_thread(HotUpdater().has_new_model) is True, "version 3"
            assert await asyncio.to_thread(updater.has_new_model) is False, "one of two"
            with pytest.raises(slipstream.SidecarRefused) as again:
                await asyncio.to_thread(updater.rollout_update)
            assert again.value.code == "rollout_open"
            back = await asyncio.to_thread(updater.rollback)
            assert back is not None
            assert (back.id, back.state, back.share, back.ended) == (opened.id, "aborted", 0.0, True)
            await _by_hand(loop, updater)
            await _named(loop, ModelManager(checkpoint_dir="./checkpoints"))


async def _tested(updater: HotUpdater) -> None:
    result = await asyncio.to_thread(updater.test_canary, test_cases="fixed")
    assert result == {
        "evaluation": 1, "version": 2, "success_rate": 0.75, "reward": 0.75, "verdict": "not_enough_data",
    }  # fmt: skip
    with pytest.raises(slipstream.SidecarRefused) as refused:
        await asyncio.to_thread(updater.test_canary, test_cases="no such suite")
    assert refused.value.param == "suite"


async def _by_hand(loop: Loop, updater: HotUpdater) -> None:
    """A share that was set by hand is taken back too; nothing is no error."""
    shared = await loop.client.post("/serving/share", json={"version": 2, "share": 0.5})
    assert shared.status_code == 200, shared.text
    assert await asyncio.to_thread(updater.rollback) is None
    assert (await loop.client.get("/serving")).json()["share"] == 0
    assert await asyncio.to_thread(updater.rollback) is None


async def _named(loop: Loop, manager: ModelManager) -> None:
    assert await asyncio.to_thread(manager.create_version, "v1.0", 1) == 1
    assert await asyncio.to_thread(manager.create_version, "v1.1") == 3, "the newest"
    assert await asyncio.to_thread(manager.create_version, "v1.0", 1) == 1, "the same again"
    with pytest.raises(ValueError, match=r"name: 'v1\.0' means version 1 already"):
        await asyncio.to_thread(manager.create_version, "v1.0")
    with pytest.raises(slipstream.SidecarRefused, match="no version has the number 77"):
        await asyncio.to_thread(manager.create_version, "v7", 77)

    ratio = {"a": 0.7, "b": 0.3}
    with pytest.raises(ValueError, match=r"expected 'production' and a version, found 'v1\.0' and 'v1\.1'"):
        manager.create_ab_test("v1.0", "v1.1", ratio)
    test = await asyncio.to_thread(manager.create_ab_test, "production", "v1.1", ratio)
    found = await running(loop, test.id)
    assert (found["version"], found["share"], found["plan"]["approval"]) == (3, 0.3, "by_hand")
    with pytest.raises(slipstream.SidecarRefused, match="no version has the number or alias 'v9'"):
        await asyncio.to_thread(manager.rollback, "v9")
    assert (await loop.client.get("/serving")).json()["share"] == 0.3, "as it was"
    back = await asyncio.to_thread(manager.rollback, "v1.0", steps=[0.5])
    assert (back.version, back.state) == (1, "pending")
    assert (await loop.client.get(f"/rollouts/{test.id}")).json()["state"] == "aborted"
    assert (await asyncio.to_thread(manager.rollback, "v1.0")).id == back.id, "it is on its way already"
    await running(loop, back.id)
    promoted = await loop.client.post(f"/rollouts/{back.id}/promote", json={"force": True})
    assert promoted.status_code == 200, promoted.text
    with pytest.raises(slipstream.SidecarRefused, match="min_units"):
        await asyncio.to_thread(manager.rollback, "v1.1", min_units=0)
    assert (await loop.client.get(f"/rollouts/{back.id}")).json()["ended_at"] is None, "nothing was changed"
    again = await asyncio.to_thread(manager.rollback, "v1.1")
    assert (again.version, again.state) == (3, "pending")
    assert (await loop.client.get(f"/rollouts/{back.id}")).json()["reason"] == "version 3 takes its place"


async def test_a_test_goes_on_while_the_sidecar_is_away_for_a_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("slipstream_client.hot_updater._LOOK", 0.0)
    begun: list[Any] = []
    away = [503, 502, 429]
    figures = {"success_rate": 0.75, "reward": {"mean": 0.5}}
    evaluation = {"id": 4, "version": 2, "reason": None, "result": {"version": figures, "against_production": None}}

    async def answer(request: Request) -> Response:
        path = request.url.path
        if path == "/versions":
            return JSONResponse({"versions": [{"version": 2, "state": "kept", "made_at": 1.0, "found_at": 1.0}]})
        if path == "/rollouts":
            return JSONResponse({"rollouts": []})
        if path == "/evaluations":
            begun.append(await request.json())
            return JSONResponse({**evaluation, "state": "pending", "result": None})
        if away:
            return JSONResponse({"error": {"message": "it restarts"}}, away.pop())
        return JSONResponse({**evaluation, "state": "done"})

    async with serving(Starlette(routes=[Route("/{path:path}", answer, methods=["GET", "POST"])])) as url:
        slipstream.configure(url)
        result = await asyncio.to_thread(HotUpdater().test_canary)
        away.extend([503] * 100_000)
        with pytest.raises(TimeoutError, match="evaluation 4 of version 2 is pending"):
            await asyncio.to_thread(HotUpdater().test_canary, timeout=0.05)
    assert (result["evaluation"], result["success_rate"]) == (4, 0.75)
    assert begun == [{"version": 2, "suite": None}] * 2


@pytest.mark.parametrize(
    ("config", "told"),
    [
        ({"strategy": "blue_green"}, "update_config.strategy: expected rolling or canary, found 'blue_green'"),
        ({"canary_ratio": 0}, "update_config.canary_ratio: expected a share above 0 and up to 0.95, found 0"),
        ({"check_after_updates": 0.5}, "update_config.check_after_updates: expected a number from 1 to 200, found 0.5"),
        ({"ratio": 1}, "update_config: expected strategy, canary_ratio, check_after_updates, found ratio"),
    ],
)
def test_an_option_that_is_none_is_refused_by_its_name(config: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        HotUpdater(update_config=config)


def test_cases_that_the_sidecar_cannot_read_and_shares_that_are_none_are_refused_at_once() -> None:
    with pytest.raises(ValueError, match=r"test_cases: expected the name of a suite .* found list"):
        HotUpdater().test_canary(test_cases=["2 + 2?"])  # type: ignore[arg-type]
    for ratio in ({"a": 0.7}, {"a": 0.7, "b": 0.7}, {"a": 0.01, "b": 0.99}, {"a": True, "b": 0.0}):
        with pytest.raises(ValueError, match="traffic_ratio: expected shares of a and b"):
            ModelManager().create_ab_test("production", "v1.1", ratio)
