"""The facade in front of Trinity's real code: what its clients lose there arrives here, whole and once."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from pathlib import Path
from typing import Any

import httpx
import pytest
from facade_client import ask, commit, reward, run, seen
from gateway import Gateway
from real_sidecar import StartSidecar
from real_trinity import PYTHON, RealTrinity
from scripted_engine import ScriptedEngine
from serving import serving, until

CHAT = "/explorer/v1/chat/completions"
BODY: dict[str, Any] = {"model": "policy", "messages": [{"role": "user", "content": "hello"}]}
CLIENT = Path(__file__).with_name("use_trinity_client.py")
BOTH_WAYS = pytest.approx([-0.7071, 0.7071], abs=1e-3)
"""The advantages of the rewards 0 and 1 in one group, compared with each other."""


async def test_trinitys_own_client_needs_no_change(trinity: RealTrinity, start_sidecar: StartSidecar) -> None:
    async with start_sidecar(trinity, facade={"api_key": "a key"}) as sidecar:
        url = sidecar.url.replace("://", "://trinity:a%20key@") + "/explorer"
        process = await asyncio.create_subprocess_exec(str(PYTHON), str(CLIENT), url, stdout=asyncio.subprocess.PIPE)
        output, _ = await process.communicate()
        assert process.returncode == 0
        found = json.loads(output)
        assert found["alive"] is True
        assert sorted(found["answers"].values()) == ["worth 0.0", "worth1.0"]
        assert [*found["feedback"], *found["commit"]] == [{"status": "success"}] * 4, "Trinity's own answers"
        assert [metrics["rollout/ready_experience_count"] for metrics in found["metrics"]] == [2, 2]
        rows = trinity.trained()
        assert [(row.task_id, row.run_id) for row in rows] == [(found["task_id"], 0), (found["task_id"], 1)]
        assert sorted(row.advantage for row in rows) == BOTH_WAYS
        assert {row.msg_id for row in rows} == set(found["answers"])


@pytest.mark.slow
async def test_a_client_like_agentscopes_names_runs_in_text(trinity: RealTrinity, start_sidecar: StartSidecar) -> None:
    async with start_sidecar(trinity) as sidecar:
        for run_id, worth in (("1", 1.0), ("0", 0.0)):
            steps = [await ask(sidecar) for _ in range(2)]
            await reward(sidecar, *steps, reward=worth, task_id="t", run_id=run_id)
        await commit(sidecar)
        assert [(row.run_id, row.reward) for row in trinity.trained()] == [(0, 0.0), (0, 0.0), (1, 1.0), (1, 1.0)]


async def test_a_group_over_two_commits_is_compared_as_one(trinity: RealTrinity, start_sidecar: StartSidecar) -> None:
    async with start_sidecar(trinity) as sidecar:
        await run(sidecar, run_id="0", reward=0.0)
        assert (await commit(sidecar))["waiting"] == 1
        await run(sidecar, run_id="1", reward=1.0)
        assert (await commit(sidecar))["experiences"] == 2
        assert sorted(row.advantage for row in trinity.trained()) == BOTH_WAYS


@pytest.mark.slow
async def test_a_run_too_late_for_its_group_joins_no_other(trinity: RealTrinity, start_sidecar: StartSidecar) -> None:
    async with start_sidecar(trinity) as sidecar:
        for worth in (0.0, 1.0):
            await run(sidecar, reward=worth)
        await commit(sidecar)
        for worth in (0.0, 1.0):
            await run(sidecar, reward=worth)
        await commit(sidecar)
        assert Counter(row.task_id for row in trinity.trained()) == {"t": 2, "t~1": 2}


async def test_without_a_task_id_answers_are_not_compared(trinity: RealTrinity, start_sidecar: StartSidecar) -> None:
    async with start_sidecar(trinity, facade={"group_size": 1}) as sidecar:
        for worth in (0.25, 1.0):
            await run(sidecar, None, reward=worth)
        await commit(sidecar)
        rows = trinity.trained()
        bare = pytest.approx([0.25, 1.0], abs=1e-3)
        assert sorted(row.advantage for row in rows) == bare, "each is a group, where Trinity made them one"
        assert len({row.task_id for row in rows}) == 2


async def test_one_run_is_not_trained_on_where_several_are_compared(
    trinity: RealTrinity, start_sidecar: StartSidecar
) -> None:
    async with start_sidecar(trinity, facade={"group_idle": 0}) as sidecar:
        await run(sidecar, run_id="0")
        await commit(sidecar)
        assert (await seen(sidecar))["groups"] == {"dropped": 1}
        assert trinity.trained() == []


@pytest.mark.slow
async def test_feedback_survives_a_restart_of_trinity(trinity: RealTrinity, start_sidecar: StartSidecar) -> None:
    async with start_sidecar(trinity) as sidecar:
        for worth in (0.0, 1.0):
            await run(sidecar, reward=worth)
        await trinity.restart()
        assert (await commit(sidecar))["experiences"] == 2
        assert sorted(row.advantage for row in trinity.trained()) == BOTH_WAYS


@pytest.mark.slow
async def test_a_restart_amid_a_delivery_and_a_failed_commit_are_seen(
    trinity: RealTrinity, start_sidecar: StartSidecar
) -> None:
    gateway = Gateway(trinity.url)
    async with serving(gateway.app()) as url, start_sidecar(trinity, url) as sidecar:
        for worth in (0.0, 1.0):
            await run(sidecar, "a", reward=worth)
        gateway.refused["/commit"] = 1
        assert (await sidecar.client.post("/explorer/commit")).status_code == 503
        await trinity.restart()
        assert (await commit(sidecar))["lost"] == 1
        for worth in (0.0, 1.0):
            await run(sidecar, "b", reward=worth)
        with trinity.failing_commits():
            assert (await commit(sidecar))["lost"] == 1
        facade = await seen(sidecar)
        assert facade["groups"] == {"lost": 2}
        reasons = {group["group_id"]: group["reason"] for group in facade["failed_groups"]}
        assert "restarted" in reasons["a"]
        assert "failed at the commit" in reasons["b"]
        assert trinity.trained() == []


async def test_with_trinitys_history_at_hand_lost_groups_are_delivered_again(
    trinity: RealTrinity, start_sidecar: StartSidecar
) -> None:
    gateway = Gateway(trinity.url)
    history = {"history_url": f"sqlite+aiosqlite:///{trinity.history_file}"}
    async with serving(gateway.app()) as url, start_sidecar(trinity, url, explorer=history) as sidecar:
        for worth in (0.0, 1.0):
            await run(sidecar, "a", reward=worth)
        with trinity.failing_commits():
            assert (await commit(sidecar))["waiting"] == 2
        gateway.before["/commit"].append(trinity.restart)
        counts = await commit(sidecar)
        assert (counts["experiences"], counts["lost"], counts["waiting"]) == (0, 0, 2)
        assert (await commit(sidecar))["experiences"] == 2
        rows = trinity.trained()
        assert [(row.task_id, row.run_id) for row in rows] == [("a", 0), ("a", 1)]
        assert sorted(row.advantage for row in rows) == BOTH_WAYS
        assert (await seen(sidecar))["groups"] == {"delivered": 1}


@pytest.mark.slow
async def test_what_a_commit_may_have_taken_is_not_delivered_again(
    trinity: RealTrinity, start_sidecar: StartSidecar
) -> None:
    gateway = Gateway(trinity.url)
    history = {"history_url": f"sqlite+aiosqlite:///{trinity.history_file}"}
    async with serving(gateway.app()) as url, start_sidecar(trinity, url, explorer=history) as sidecar:
        for worth in (0.0, 1.0):
            await run(sidecar, "a", reward=worth)
        gateway.unanswered["/commit"] = 1
        assert (await sidecar.client.post("/explorer/commit")).status_code == 503
        await trinity.restart()
        assert (await commit(sidecar))["lost"] == 1
        await commit(sidecar)
        assert len(trinity.trained()) == 2


async def test_feedback_at_the_same_time_counts_once(trinity: RealTrinity, start_sidecar: StartSidecar) -> None:
    gateway = Gateway(trinity.url)
    async with serving(gateway.app()) as url, start_sidecar(trinity, url) as sidecar:
        ids = [await ask(sidecar) for _ in range(10)]
        await asyncio.gather(*(reward(sidecar, name, task_id="t", run_id=ids.index(name)) for name in ids * 6))
        gateway.refused["/commit"] = 1  # so that several find something to end
        assert (await sidecar.client.post("/explorer/commit")).status_code == 503
        await asyncio.gather(*(commit(sidecar) for _ in range(4)))
        assert gateway.busiest["/feedback"] == 1, "Trinity's table races on feedback at the same time"
        assert sorted(row.msg_id for row in trinity.trained()) == sorted(ids)


async def test_what_trinity_recorded_of_a_cut_stream_is_never_trained_on(
    trinity: RealTrinity, engine: ScriptedEngine, start_sidecar: StartSidecar
) -> None:
    async with start_sidecar(trinity, facade={"group_size": 1}) as sidecar:
        engine.ways.append("cut")
        with pytest.raises(httpx.RemoteProtocolError):
            await sidecar.client.post(CHAT, json={**BODY, "stream": True})
        await until(lambda: trinity.history())
        [part] = [row["msg_id"] for row in trinity.history()]

        async def known() -> bool:
            return bool((await seen(sidecar))["answers"]["not_whole"])

        await until(known)
        assert (await reward(sidecar, part))["rejected"] == [part]
        assert (await commit(sidecar))["experiences"] == 0
        assert [row["consumed"] for row in trinity.history()] == [0]
        assert trinity.trained() == []


@pytest.mark.sampled(1)
@pytest.mark.parametrize("number", ["NaN", "Infinity", "true", "7"])
async def test_a_reward_that_is_none_never_reaches_trinity(
    trinity: RealTrinity, start_sidecar: StartSidecar, number: str
) -> None:
    async with start_sidecar(trinity, facade={"group_size": 1}) as sidecar:
        msg_id = await ask(sidecar)
        content = f'{{"msg_ids": ["{msg_id}"], "reward": {number}, "task_id": "t"}}'
        response = await sidecar.client.post("/explorer/feedback", content=content)
        assert response.status_code == 422
        assert response.json()["error"]["param"] == "reward"
        await commit(sidecar)
        assert [row["consumed"] for row in trinity.history()] == [0]


async def test_a_chat_waits_for_an_only_engine_that_reloads(
    trinity: RealTrinity, engine: ScriptedEngine, start_sidecar: StartSidecar
) -> None:
    async with start_sidecar(trinity) as sidecar:
        engine.reloading.clear()
        trinity.publish(1)
        await until(lambda: engine.reloads)
        async with httpx.AsyncClient(base_url=trinity.url, timeout=30) as client:
            assert (await client.post("/v1/chat/completions", json=BODY)).status_code == 500
        chat = asyncio.create_task(ask(sidecar))

        async def tried() -> bool:
            return "slipstream_facade_retries_total 0.0" not in (await sidecar.client.get("/metrics")).text

        await until(tried)
        engine.reloading.set()
        await asyncio.wait_for(chat, 30)


async def test_secrets_of_a_client_do_not_reach_the_engine(
    trinity: RealTrinity, engine: ScriptedEngine, start_sidecar: StartSidecar
) -> None:
    async with start_sidecar(trinity, facade={"api_key": "a key"}) as sidecar:
        sidecar.client.headers["authorization"] = "Bearer a key"
        await ask(sidecar)
        assert not any("a key" in value for headers in engine.headers for value in headers.values())
