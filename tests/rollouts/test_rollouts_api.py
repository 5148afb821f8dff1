"""`/rollouts` and `slipstream rollout` against a running sidecar."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from loops import Loop, RunLoop
from rollout_store import SERVING
from scripted_lane import lane_section
from serving import until
from shared_by_tenants import RunShared

from slipstream.store.database import Database
from slipstream.store.tables.versions import VersionRow

VERSION = 8


@pytest.fixture
async def known_version(database: Database) -> None:
    """A version in the store, before a sidecar opens it."""
    async with database.write() as session:
        session.add(VersionRow(version=VERSION, seen_at=1.0))
    await database.close()


@pytest.fixture
async def lane() -> AsyncIterator[dict[str, Any]]:
    async with lane_section("the lane says {n}") as section:
        yield section


pytestmark = pytest.mark.usefixtures("known_version")


async def opened(loop: Loop, **fields: Any) -> dict[str, Any]:
    response = await loop.client.post("/rollouts", json={"version": VERSION, **fields})
    assert response.status_code == 201, response.text
    found: dict[str, Any] = response.json()
    return found


async def shown(loop: Loop, rollout: int = 1) -> dict[str, Any]:
    response = await loop.client.get(f"/rollouts/{rollout}")
    assert response.status_code == 200, response.text
    found: dict[str, Any] = response.json()
    return found


async def running(loop: Loop) -> dict[str, Any]:
    async def begun() -> dict[str, Any] | None:
        found = await shown(loop)
        return found if found["state"] == "running" else None

    found: dict[str, Any] = await until(begun)
    return found


async def refused(loop: Loop, path: str, **body: Any) -> tuple[int, dict[str, Any]]:
    response = await loop.client.post(path, json=body)
    return response.status_code, response.json()["error"]


async def test_a_rollout_is_opened_begins_and_is_decided_by_hand(run_loop: RunLoop, lane: dict[str, Any]) -> None:
    async with run_loop(serving=lane) as loop:
        assert (await opened(loop))["state"] == "pending"
        found = await running(loop)
        assert found["share"] == 0.05
        assert found["missing"]["units"] == 600, "30 treated units at a share of 0.05"
        assert 0 < found["missing"]["seconds"] <= 600
        assert found["plan"]["guardrails"]["latency"] == {"margin": 0.05, "bound": 10.0}
        assert found["test"]["position"] == 1
        assert found["evidence"]["guardrails"]["failure"]["interval"] == [-1, 1]
        for action, state, share in (
            ("advance", "running", 0.2),
            ("pause", "paused", 0.2),
            ("resume", "running", 0.2),
            ("promote", "promoted", 0.95),
            ("abort", "aborted", 0.0),
        ):
            said = {"json": {"force": True}} if action == "promote" else {}
            response = await loop.client.post(f"/rollouts/1/{action}", **said)
            assert response.status_code == 200, response.text
            assert (response.json()["state"], response.json()["share"]) == (state, share)
        decisions = [each["action"] for each in (await shown(loop))["decisions"]]
        assert decisions == ["open", "begin", "advance", "pause", "resume", "promote", "abort"]
        assert (await shown(loop))["proven"] is False
        audit = (await loop.client.get("/audit?action=rollout_promote")).json()["entries"]
        assert [entry["written"] for entry in audit] == ["1"]
        listed = (await loop.client.get("/rollouts")).json()
        assert [each["id"] for each in listed["rollouts"]] == [1]
        assert listed["next"] is None
        metrics = (await loop.client.get("/metrics")).text
        assert 'slipstream_rollouts{state="aborted"} 1.0' in metrics
        assert 'slipstream_rollout_decisions_total{action="promote"} 1.0' in metrics


async def test_one_is_open_at_a_time_and_a_live_one_is_replaced_when_asked(
    run_loop: RunLoop, lane: dict[str, Any]
) -> None:
    async with run_loop(serving=lane) as loop:
        await opened(loop)
        status, error = await refused(loop, "/rollouts", version=VERSION)
        assert (status, error["code"]) == (409, "rollout_open")
        await running(loop)
        await loop.client.post("/rollouts/1/promote", json={"force": True})
        status, error = await refused(loop, "/rollouts", version=VERSION)
        assert (status, error["code"], error["param"]) == (409, "version_live", "replace")
        assert (await opened(loop, replace=True))["id"] == 2
        before = await shown(loop)
        assert (before["state"], before["share"]) == ("promoted", 0.0)
        assert before["ended_at"] is not None


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"version": 9}, "version"),
        ({"steps": [0.5, 0.2]}, "steps"),
        ({"steps": [1.0]}, "steps.0"),
        ({"steps": [1e-320]}, "steps.0"),  # by which no number of units is enough
        ({"steps": []}, "steps"),
        ({"level": 1}, "level"),
        ({"level": 1e-323}, "level"),  # of which the version's own level would be 0
        ({"objective": "speed"}, "objective"),
        ({"objective": "reward.tone"}, "objective"),
        ({"guardrails": {"speed": {}}}, "guardrails.speed"),
        ({"guardrails": {"failure": {"margin": 2}}}, "guardrails.failure.margin"),
        ({"guardrails": {"failure": None, "latency": None, "feedback": None}}, "guardrails"),
        ({"grace": "soon"}, "grace"),
        ({"longest_session": "30d"}, "longest_session"),
        ({"ranges": {"tone": [1, 0]}}, "ranges.tone"),
        ({"scoring": {"share": 0}}, "scoring.share"),
        ({"shares": [0.1]}, "shares"),
    ],
)
async def test_a_wrong_field_is_named(run_loop: RunLoop, fields: dict[str, Any], param: str) -> None:
    async with run_loop(serving=SERVING) as loop:
        status, error = await refused(loop, "/rollouts", **{"version": VERSION, **fields})
        assert status == (404 if param == "version" else 422), error
        assert error["param"] == param
        assert error["message"].startswith(f"{param}: ")


async def test_calculators_that_take_production_for_the_truth_are_refused_in_words(run_loop: RunLoop) -> None:
    async with run_loop(serving=SERVING, rewards={"calculators": ["agreement"]}) as loop:
        status, error = await refused(loop, "/rollouts", version=VERSION, objective="reward")
        assert (status, error["code"]) == (422, "takes_production_for_the_truth")
        assert "agreement, which takes production's answer for the truth" in error["message"]


async def test_without_a_lane_there_is_no_rollout_and_the_reason_is_told(run_loop: RunLoop) -> None:
    async with run_loop() as loop:
        status, error = await refused(loop, "/rollouts", version=VERSION)
        assert (status, error["code"]) == (409, "no_lane")
        assert "serving.lane" in error["message"]


async def test_where_no_call_is_counted_there_is_no_rollout(run_loop: RunLoop) -> None:
    async with run_loop(serving=SERVING, capture={"rate": 0}) as loop:
        status, error = await refused(loop, "/rollouts", version=VERSION)
        assert (status, error["code"]) == (409, "nothing_captured")
        assert error["message"].startswith("capture.rate: expected above 0")


async def test_a_decision_that_the_state_does_not_have_is_refused(run_loop: RunLoop, lane: dict[str, Any]) -> None:
    async with run_loop(serving=lane) as loop:
        assert (await refused(loop, "/rollouts/7/pause"))[0] == 404
        await opened(loop, steps=[0.05])
        await running(loop)
        for action, why in (("resume", "it is running"), ("advance", "it is at its last step, 1; promote it")):
            status, error = await refused(loop, f"/rollouts/1/{action}")
            assert (status, error["code"]) == (409, "rollout_state")
            assert error["message"] == f"rollout 1 cannot {action}: {why}"
        await loop.client.post("/rollouts/1/abort")
        for action in ("pause", "resume", "advance", "promote", "abort"):
            assert (await refused(loop, f"/rollouts/1/{action}"))[0] == 409


async def test_while_the_lane_is_away_the_rollout_waits_and_says_why(run_loop: RunLoop) -> None:
    async with run_loop(serving=SERVING) as loop:
        await opened(loop)

        async def told() -> str | None:
            found: str | None = (await shown(loop))["missing"]["lane"]
            return found

        assert (await until(told)).startswith("the lane ")
        assert (await shown(loop))["state"] == "pending"
        assert (await loop.client.get("/serving")).json()["share"] == 0


async def test_no_share_is_set_by_hand_while_a_rollout_decides(run_loop: RunLoop, lane: dict[str, Any]) -> None:
    async with run_loop(serving=lane) as loop:
        await opened(loop)
        await running(loop)
        status, error = await refused(loop, "/serving/share", version=VERSION, share=0.5)
        assert (status, error["code"]) == (409, "rollout_open")
        assert (await loop.client.get("/serving")).json()["share"] == 0.05


@pytest.mark.slow
async def test_users_of_a_version_that_dislike_it_end_its_rollout(run_loop: RunLoop, lane: dict[str, Any]) -> None:
    """From the users' requests to the decision, through the whole sidecar."""
    async with run_loop(serving=lane) as loop:
        guardrails = {"feedback": {"margin": 0.05}, "failure": None, "latency": None}
        await opened(loop, steps=[0.5], min_time="1h", grace="300ms", guardrails=guardrails)
        await running(loop)

        async def ready() -> bool:
            return bool((await loop.client.get("/serving")).json()["ready"])

        await until(ready)
        by_lane = 0
        for number in range(400):
            answer = await loop.chat(f"hello {number}", {"x-slipstream-session-id": f"s-{number}"})
            disliked = answer["choices"][0]["message"]["content"].startswith("the lane")
            by_lane += disliked
            said = {"msg_id": answer["id"], "thumbs": "down" if disliked else "up"}
            assert (await loop.client.post("/feedback", json=said)).status_code == 202
            if (await shown(loop))["state"] != "running":
                break

        async def rolled_back() -> bool:
            return bool((await shown(loop))["state"] == "rolled_back")

        await until(rolled_back)
        found = await shown(loop)
        assert found["reason"] == "harm is proven: feedback"
        assert 5 <= by_lane < 200
        means = found["decisions"][-1]["evidence"]["guardrails"]["feedback"]["means"]
        assert means == {"control": 1.0, "treatment": 0.0}
        answer = await loop.chat("after it", {"x-slipstream-variant": "?1", "x-slipstream-session-id": "s-1"})
        assert not answer["choices"][0]["message"]["content"].startswith("the lane")
        await until(lambda: loop.explorer.chats)
        await loop.commit()
        rewards = {one["reward"] for commit in loop.explorer.committed for one in commit}
        assert rewards <= {0.5}, "what was said of the version's answers is no experience's reward"


async def test_who_may_look_and_who_may_decide(run_shared: RunShared) -> None:
    async with run_shared(serving=SERVING) as shared:
        for key, method, status in (
            ("metrics", "GET", 200),
            ("metrics", "POST", 403),
            ("agent", "GET", 403),
            ("agent", "POST", 403),
            ("admin-a", "POST", 403),
            ("admin", "POST", 201),
        ):
            body = {"json": {"version": VERSION}} if method == "POST" else {}
            response = await shared.ask(key, method, "/rollouts", **body)
            assert response.status_code == status, (key, method, response.text)
        assert (await shared.ask("admin-a", "POST", "/rollouts/1/abort")).status_code == 403
        found = (await shared.ask("admin", "GET", "/rollouts/1")).json()
        assert found["opened_by"] == "admin"
        assert found["decisions"][0]["key"] == "admin"


async def command(loop: Loop, *arguments: str, cwd: Path) -> tuple[int | None, str, str]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "slipstream", "rollout", *arguments, "--url", loop.url),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        cwd=cwd,
        env={"COLUMNS": "220", "PATH": "", "PYTHONPATH": os.environ.get("PYTHONPATH", "")},
    )
    out, err = await process.communicate()
    return process.returncode, out.decode(), err.decode()


@pytest.mark.slow
async def test_the_command_starts_shows_and_decides(run_loop: RunLoop, lane: dict[str, Any], tmp_path: Path) -> None:
    plan = tmp_path / "plan.yaml"
    plan.write_text("steps: [0.1, 0.5]\nmin_units: 7\n")
    async with run_loop(serving=lane) as loop:
        code, out, err = await command(loop, "list", cwd=tmp_path)
        assert (code, out, err) == (0, "there is no rollout\n", "")
        code, out, err = await command(loop, "start", "8", "--plan", str(plan), cwd=tmp_path)
        assert (code, err) == (0, "")
        assert out == "rollout 1 of version 8: pending, the version is put into the lane\n"
        await running(loop)
        code, out, _ = await command(loop, "show", "1", cwd=tmp_path)
        assert code == 0
        assert "rollout 1 of version 8: running, share 10%" in out
        assert "missing: 7 more units of treatment in this step" in out
        assert "failure" in out
        code, out, _ = await command(loop, "advance", "1", cwd=tmp_path)
        assert (code, out) == (0, "rollout 1 of version 8: running, share 50%\n")
        code, _, err = await command(loop, "resume", "1", cwd=tmp_path)
        assert code == 2
        assert "rollout 1 cannot resume: it is running" in err
        code, out, _ = await command(loop, "list", cwd=tmp_path)
        assert code == 0
        assert "50%" in out
