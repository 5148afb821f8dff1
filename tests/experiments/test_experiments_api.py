"""`/experiments`, `slipstream experiment` and `ABTestFramework` against a running sidecar."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from loops import Loop, RunLoop
from rollout_store import SERVING
from scripted_lane import lane_section
from serving import until
from shared_by_tenants import RunShared
from typer.testing import CliRunner

import slipstream_client as slipstream
from slipstream.cli import app
from slipstream.errors import SlipstreamError
from slipstream.store.database import Database
from slipstream.store.tables.versions import AliasRow, VersionRow
from slipstream_client import ABTestFramework

VERSION = 8
LANE = "the lane says"


@pytest.fixture
async def known_version(database: Database) -> None:
    """A version with an alias in the store, before a sidecar opens it."""
    async with database.write() as session:
        session.add(VersionRow(version=VERSION, seen_at=1.0))
        await session.flush()
        session.add(AliasRow(name="v1.1", version=VERSION, changed_at=1.0))
    await database.close()


@pytest.fixture
async def lane() -> AsyncIterator[dict[str, Any]]:
    async with lane_section(f"{LANE} {{n}}") as section:
        yield section


pytestmark = pytest.mark.usefixtures("known_version")


async def shown(loop: Loop, number: int = 1) -> dict[str, Any]:
    response = await loop.client.get(f"/experiments/{number}")
    assert response.status_code == 200, response.text
    found: dict[str, Any] = response.json()
    return found


async def state(loop: Loop) -> str:
    """The state of the newest experiment, without the report."""
    [newest] = (await loop.client.get("/experiments?limit=1")).json()["experiments"]
    return str(newest["state"])


async def started(loop: Loop, **fields: Any) -> dict[str, Any]:
    body = {"name": "eight", "b": "version:8", **fields}
    response = await loop.client.post("/experiments", json=body)
    assert response.status_code == 201, response.text
    return await running(loop, response.json()["id"])


async def running(loop: Loop, number: int = 1) -> dict[str, Any]:
    async def ready() -> bool:
        begun = (await shown(loop, number))["state"] == "running"
        return begun and bool((await loop.client.get("/serving")).json()["ready"])

    await until(ready)
    return await shown(loop, number)


async def refused(loop: Loop, path: str, **body: Any) -> tuple[int, dict[str, Any]]:
    response = await loop.client.post(path, json=body)
    return response.status_code, response.json()["error"]


async def by_lane(loop: Loop, session: str) -> bool:
    answer = await loop.chat("hello", {"x-slipstream-session-id": session})
    return bool(answer["choices"][0]["message"]["content"].startswith(LANE))


@pytest.mark.slow
async def test_users_are_split_by_session_compared_and_one_arm_gets_all(
    run_loop: RunLoop, lane: dict[str, Any], tmp_path: Path
) -> None:
    """The whole life of experiments on one sidecar: by hand, by evidence, by a kill, and beside rollouts."""
    async with run_loop(serving=lane) as loop:
        assert "there is no experiment\n" in await command(loop, "list")
        plan = tmp_path / "plan.yaml"
        plan.write_text("ends: by_hand\nmetrics: [failure, latency]\n")
        out = await command(loop, "start", "split", "v1.1", "--share", "0.4", "--plan", str(plan))
        assert "experiment 1, split: a production, b version:8: pending, the version is put into the lane\n" in out
        await running(loop)
        arms = [await by_lane(loop, f"s-{number}") for number in range(16)]
        assert 0 < sum(arms) < 16
        assert [await by_lane(loop, f"s-{number}") for number in range(16)] == arms, "a session stays in its arm"
        for path, body in (
            ("/rollouts", {"version": VERSION}),
            ("/serving/share", {"version": VERSION, "share": 0.5}),
            ("/experiments", {"name": "other", "b": "version:8"}),
        ):
            status, error = await refused(loop, path, **body)
            assert (status, error["code"]) == (409, "experiment_open")
        out = await command(loop, "show", "1")
        assert "experiment 1, split: a production, b version:8: running, share of b 40%" in out
        assert "failure (primary)" in out
        with pytest.raises(SlipstreamError, match="expected the verdict better or equal"):
            await command(loop, "stop", "1", "--decision", "b")
        out = await command(loop, "stop", "1")
        assert "experiment 1, split: a production, b version:8: stopped, production answers the users\n" in out
        assert not any([await by_lane(loop, f"s-{number}") for number in range(16)])

        fields = {"ends": "evidence", "metrics": ["feedback"], "min_units": 5, "grace": "300ms"}
        await started(loop, **fields, decision="switch_traffic", force=True)
        for number in range(400):
            answer = await loop.chat(f"hello {number}", {"x-slipstream-session-id": f"t-{number}"})
            liked = answer["choices"][0]["message"]["content"].startswith(LANE)
            said = {"msg_id": answer["id"], "thumbs": "up" if liked else "down"}
            assert (await loop.client.post("/feedback", json=said)).status_code == 202
            if await state(loop) != "running":
                break

        async def decided() -> bool:
            return await state(loop) == "decided"

        await until(decided)
        found = await shown(loop, 2)
        assert (found["winner"], found["rollout"], found["share"]) == ("b", 1, 0)
        assert (await loop.client.get("/serving")).json()["share"] == 0.95
        assert (await loop.client.get("/rollouts/1")).json()["state"] == "promoted"
        actions = [each["action"] for each in found["decisions"]]
        assert actions == ["start", "begin", "decide", "switch"]
        status, error = await refused(loop, "/experiments", name="x", b="version:8")
        assert (status, error["code"]) == (409, "rollout_open")
        assert (await loop.client.post("/rollouts/1/abort")).status_code == 200

        await started(loop, ends="by_hand")
        assert (await loop.client.post("/serving/kill")).status_code == 200
        assert not any([await by_lane(loop, f"s-{number}") for number in range(10)])
        killed = await shown(loop, 3)
        assert (killed["state"], killed["share"]) == ("stopped", 0)
        assert (await loop.client.post("/serving/revive")).status_code == 200
        assert not any([await by_lane(loop, f"s-{number}") for number in range(16)])
        metrics = (await loop.client.get("/metrics")).text
        assert 'slipstream_experiments{state="stopped"} 2.0' in metrics
        assert 'slipstream_experiment_decisions_total{action="switch"} 1.0' in metrics
        listed = (await loop.client.get("/experiments?limit=2")).json()
        assert ([each["id"] for each in listed["experiments"]], listed["next"]) == ([3, 2], 2)
        audit = (await loop.client.get("/audit?action=experiment_stop")).json()["entries"]
        assert [entry["written"] for entry in audit] == ["3", "1"]


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"name": ""}, "name"),
    ({"a": "version:7"}, "a"),
    ({"b": "gpt-4.1"}, "b"),
    ({"b": "version:9"}, "b"),
    ({"share": 0}, "share"),
    ({"share": 1.0}, "share"),
    ({"metrics": []}, "metrics"),
    ({"metrics": ["speed"]}, "metrics.0"),
    ({"metrics": ["cost", "cost"]}, "metrics"),
    ({"metrics": ["reward.tone"]}, "metrics.0"),
    ({"primary": "cost"}, "primary"),
    ({"ends": "soon"}, "ends"),
    ({"ends": "duration"}, "duration"),
    ({"ends": "by_hand", "duration": "1h"}, "duration"),
    ({"ends": "by_hand", "decision": "switch_traffic"}, "decision"),
    ({"level": 1}, "level"),
    ({"longest_session": "30d"}, "longest_session"),
    ({"token_bound": 0}, "token_bound"),
    ({"shares": [0.5]}, "shares"),
]


async def test_a_wrong_field_is_named_and_what_cannot_be_compared_is_refused_in_words(run_loop: RunLoop) -> None:
    async with run_loop(serving=SERVING, rewards={"calculators": ["agreement"]}) as loop:
        for fields, param in WRONG:
            status, error = await refused(loop, "/experiments", **{"name": "x", "b": "version:8", **fields})
            assert status == (404 if fields.get("b") == "version:9" else 422), error
            assert error["param"] == param
            assert error["message"].startswith(f"{param}: "), error["message"]
        status, error = await refused(loop, "/experiments", name="x", b="version:8", metrics=["reward"])
        assert (status, error["code"]) == (422, "takes_production_for_the_truth")
        assert (await loop.client.get("/experiments/7")).status_code == 404
        assert (await refused(loop, "/experiments/7/stop"))[0] == 404
        assert (await refused(loop, "/experiments/7/stop", decision="c"))[0] == 422
        await loop.client.post("/experiments", json={"name": "x", "b": "version:8"})

        async def told() -> bool:
            return str((await shown(loop))["missing"]["lane"]).startswith("the lane ")

        await until(told)
        assert (await shown(loop))["state"] == "pending", "the lane is away"


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
            body = {"json": {"name": "x", "b": "version:8"}} if method == "POST" else {}
            response = await shared.ask(key, method, "/experiments", **body)
            assert response.status_code == status, (key, method, response.text)
        assert (await shared.ask("admin-a", "POST", "/experiments/1/stop")).status_code == 403
        found = (await shared.ask("metrics", "GET", "/experiments/1")).json()
        assert (found["started_by"], found["decisions"][0]["key"]) == ("admin", "admin")


@pytest.mark.slow
async def test_the_framework_of_the_client_runs_one_and_switches(run_loop: RunLoop, lane: dict[str, Any]) -> None:
    async with run_loop(serving=lane, rewards={"calculators": [{"constant": {"value": 1}}]}) as loop:
        slipstream.configure(loop.url)
        metrics = ["accuracy", "latency", "user_satisfaction"]
        ab = ABTestFramework("production", "v1.1", traffic={"a": 0.5, "b": 0.5}, metrics=metrics, grace="100ms")
        running_it = asyncio.create_task(asyncio.to_thread(ab.run, 2 / 86400, look=0.1))
        await until(lambda: ab.number)
        await running(loop)
        for number in range(20):
            await by_lane(loop, f"s-{number}")
        results = await running_it
        assert results["a"]["accuracy"] == results["b"]["accuracy"] == 1.0
        assert set(results["b"]) == set(metrics)
        assert (await asyncio.to_thread(ab.report))["state"] == "inconclusive"
        switched = await asyncio.to_thread(ab.switch_traffic, "b", 1.0, force=True)
        assert switched["rollout"] == 1
        assert (await loop.client.get("/serving")).json()["share"] == 0.95
        two = ABTestFramework("v1.0", "v1.1", traffic={"a": 0.8, "b": 0.2})
        with pytest.raises(slipstream.SidecarRefused, match="the lane serves one version"):
            await asyncio.to_thread(two.start)


def test_what_the_framework_cannot_ask_for_is_refused_at_once() -> None:
    with pytest.raises(ValueError, match="traffic: expected shares of a and b that sum to 1"):
        ABTestFramework("production", "version:8", traffic={"a": 0.8, "b": 0.3})
    ab = ABTestFramework("production", "version:8")
    with pytest.raises(ValueError, match="the experiment was not started"):
        ab.results()
    with pytest.raises(ValueError, match=r"share: expected 1\.0"):
        ab.switch_traffic("b", 0.5)
    with pytest.raises(ValueError, match="arm: expected a or b, found 'c'"):
        ab.switch_traffic("c")


async def command(loop: Loop, *arguments: str) -> str:
    """What `slipstream experiment` prints, between lines of the sidecar's log; raises what it ends with."""
    asked = ["experiment", *arguments, "--url", loop.url]
    done = await asyncio.to_thread(CliRunner().invoke, app, asked, env={"COLUMNS": "220"}, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return str(done.output)
