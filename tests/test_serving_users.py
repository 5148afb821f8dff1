"""A version answers a share of the users: from the share to the outcomes by unit, through the whole sidecar."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from checkpoint_job import CheckpointJob
from loops import Loop, RunLoop
from ports import free_port
from scripted import ScriptedExplorer
from serving import serving, until
from shared_by_tenants import RunShared
from stores import ON_BOTH_STORES, stored_rows

from slipstream.store import serving as store_serving
from slipstream.store.database import Database
from slipstream.store.tables.versions import VersionRow
from slipstream.versions import keeping, lanes

STEP = 12


@dataclass
class Served:
    """A running sidecar with a lane."""

    loop: Loop
    lane: ScriptedExplorer
    lane_url: str

    async def share(self, share: float, version: int = 8) -> dict[str, Any]:
        """Set a share, and return what the sidecar says."""
        response = await self.loop.client.post("/serving/share", json={"version": version, "share": share})
        assert response.status_code == 200, response.text
        said: dict[str, Any] = response.json()
        return said

    async def post(self, path: str) -> dict[str, Any]:
        response = await self.loop.client.post(path)
        assert response.status_code == 200, response.text
        said: dict[str, Any] = response.json()
        return said

    async def state(self) -> dict[str, Any]:
        said: dict[str, Any] = (await self.loop.client.get("/serving")).json()
        return said

    async def ready(self) -> bool:
        return bool((await self.state())["ready"])

    async def by_lane(self, session: str = "s", **fields: Any) -> bool:
        """Have the user of a session ask, and return whether the lane answered."""
        answer = await self.loop.chat("hello", {"x-slipstream-session-id": session}, **fields)
        return bool(answer["choices"][0]["message"]["content"].startswith("the lane"))


class ScriptedLane(ScriptedExplorer):
    """A lane, whose answers have ids of their own."""

    def reply(self, msg_id: str, body: dict[str, Any]) -> dict[str, Any]:
        return super().reply(f"lane-{msg_id}", body)


def scripted_lane() -> ScriptedExplorer:
    lane = ScriptedLane(answer="the lane says {n}")
    lane.version, lane.model = STEP, "/kept/8"
    return lane


def section(url: str) -> dict[str, Any]:
    """Settings for a lane at this URL."""
    return {"mode": "on", "lane": {"base_url": f"{url}/v1"}}


@asynccontextmanager
async def served(run_loop: RunLoop, port: int = 0, **sections: Any) -> AsyncIterator[Served]:
    lane = scripted_lane()
    async with serving(lane.app(), port) as url, run_loop(serving=section(url), **sections) as loop:
        run = Served(loop, lane, url)
        await until(run.ready)
        yield run


async def test_a_version_answers_and_what_it_says_is_not_taken_for_productions(
    run_loop: RunLoop, store_url: str
) -> None:
    async with served(run_loop) as run:
        assert not await run.by_lane(), "no share is set"
        said = await run.share(1.0)
        assert (said["version"], said["share"], said["ready"]) == (8, 1.0, True)
        told = {"x-slipstream-session-id": "s-2", "x-slipstream-task-id": "t-2", "x-slipstream-variant": "?1"}
        response = await run.loop.client.post(
            "/v1/chat/completions",
            json={"model": "prod", "messages": [{"role": "user", "content": "hello"}]},
            headers=told,
        )
        answer = response.json()
        assert response.headers["x-slipstream-variant"] == "version:8"
        assert answer["choices"][0]["message"]["content"].startswith("the lane says")
        assert run.lane.chats[-1]["model"] == "/kept/8"

        async def decided() -> dict[str, Any] | None:
            task = await run.loop.task("t-2")
            return task if task is not None and task["decided"] else None

        task = await until(decided)
        assert (task["selected"], task["reason"]) == (False, "answered_by_version")
        assert task["calls"][0]["answered_by"] == "version:8"
        assert task["groups"] == []
        call = (await run.loop.client.get(f"/calls/{answer['id']}")).json()
        assert (call["answered_by"], call["run"]) == ("version:8", None)
        assert call["request"]["model"] == "prod", "as the agent asked"

        receipt = await run.loop.client.post("/feedback", json={"msg_id": answer["id"], "thumbs": "up"})
        found = (await run.loop.client.get(f"/feedback/{receipt.json()['id']}")).json()
        assert found["targets"][0]["matched_to"] == "lane"
        decisions = (await run.loop.client.get("/metrics")).text
        assert 'slipstream_selection_decisions_total{reason="answered_by_version",selected="false"} 1.0' in decisions
        await until(lambda: run.loop.ready(1))  # the run of what production answered
        await run.loop.commit()
        assert [len(batch) for batch in run.loop.explorer.committed] == [1]

        query = "SELECT variant, arm, fell_back, opted_out FROM calls ORDER BY id"
        rows = [
            (variant, arm, bool(fell), bool(out)) for variant, arm, fell, out in await stored_rows(store_url, query)
        ]
        assert rows == [(None, None, False, False), ("version:8", "treatment", False, False)]


async def test_every_user_is_answered_and_failures_are_the_versions(run_loop: RunLoop, store_url: str) -> None:
    async with served(run_loop) as run:
        await run.share(1.0)
        run.lane.faults["/v1/chat/completions"] = [500, 200]
        answered = [await run.by_lane("s-1") for _ in range(2)]
        assert answered == [False, True]

        async def counted() -> bool:
            arms = (await run.state())["arms"]
            return bool(arms["treatment"] == {"units": 1, "calls": 2, "failures": 1, "fallbacks": 1})

        await until(counted)
        assert (await run.state())["arms"]["control"] == {"units": 0, "calls": 0, "failures": 0, "fallbacks": 0}
        query = "SELECT variant, arm, fell_back FROM calls ORDER BY id"
        rows = [(variant, arm, bool(fell)) for variant, arm, fell in await stored_rows(store_url, query)]
        assert rows == [("production", "treatment", True), ("version:8", "treatment", False)]


async def test_outcomes_are_counted_of_calls_that_are_not_captured(run_loop: RunLoop, store_url: str) -> None:
    """Of those that failed, and of those that `capture.rate` leaves out."""
    async with served(run_loop, capture={"rate": 1e-9}) as run:
        await run.share(1.0)
        assert await run.by_lane("s-1")

        async def counted() -> bool:
            return bool((await run.state())["arms"]["treatment"]["calls"] == 1)

        await until(counted)
        assert await stored_rows(store_url, "SELECT count(*) FROM calls") == [(0,)]
        run.lane.cut_after = 2
        with pytest.raises(httpx.HTTPError):
            await run.by_lane("s-2", stream=True)

        async def failed() -> bool:
            arms = (await run.state())["arms"]["treatment"]
            return bool(arms == {"units": 2, "calls": 2, "failures": 1, "fallbacks": 0})

        await until(failed)


async def test_a_kill_under_load_fails_nobody_and_nothing_reaches_the_lane_after_it(run_loop: RunLoop) -> None:
    async with served(run_loop) as run:
        await run.share(1.0)
        answered: list[int] = []
        over = asyncio.Event()

        async def users(number: int) -> None:
            async with httpx.AsyncClient(base_url=run.loop.url, timeout=30) as client:
                for turn in itertools.count():
                    if over.is_set():
                        return
                    body = {"model": "prod", "messages": [{"role": "user", "content": f"{number} {turn}"}]}
                    answered.append((await client.post("/v1/chat/completions", json=body)).status_code)

        tasks = [asyncio.create_task(users(number)) for number in range(4)]
        await until(lambda: len(answered) > 60)
        assert run.lane.chats
        said = await run.post("/serving/kill")
        asked, before = len(run.lane.chats), len(answered)
        assert said["killed"]
        await until(lambda: len(answered) > before + 80)
        assert len(run.lane.chats) == asked
        await run.post("/serving/revive")
        await until(lambda: len(run.lane.chats) > asked)
        over.set()
        await asyncio.gather(*tasks)
        assert set(answered) == {200}


@pytest.mark.slow
async def test_a_lane_that_dies_under_load_fails_nobody(run_loop: RunLoop) -> None:
    lane, port = scripted_lane(), free_port()
    url = f"http://127.0.0.1:{port}/v1"
    over = asyncio.Event()
    async with run_loop(serving={"mode": "on", "lane": {"base_url": url}}) as loop:
        answered: list[int] = []
        async with serving(lane.app(), port):
            run = Served(loop, lane, url)
            await until(run.ready)
            await run.share(1.0)

            async def users(number: int) -> None:
                async with httpx.AsyncClient(base_url=loop.url, timeout=30) as client:
                    while not over.is_set():
                        body = {"model": "prod", "messages": [{"role": "user", "content": f"user {number}"}]}
                        answered.append((await client.post("/v1/chat/completions", json=body)).status_code)

            tasks = [asyncio.create_task(users(number)) for number in range(4)]
            await until(lambda: len(lane.chats) > 40)
        before = len(answered)
        await until(lambda: len(answered) > before + 60)

        async def away() -> bool:
            return not await run.ready()

        await until(away)
        over.set()
        await asyncio.gather(*tasks)
        assert set(answered) == {200}


@pytest.mark.slow
async def test_users_go_to_the_lane_while_it_shows_the_step_that_the_share_is_for(run_loop: RunLoop) -> None:
    async with served(run_loop) as run:
        await run.share(1.0)
        assert (await run.state())["lane"] == {
            "base_url": f"{run.lane_url}/v1", "model": "/kept/8", "step": STEP, "expected_step": STEP,
        }  # fmt: skip
        assert await run.by_lane()
        run.lane.version = STEP + 1

        async def away() -> bool:
            return not await run.ready()

        await until(away)
        assert "step 13" in (await run.state())["reason"]
        assert not await run.by_lane()
        await run.share(0.5)
        assert not await run.ready(), "a share that rises is still for the step of before"
        run.lane.version = STEP
        await until(run.ready)
        await run.share(1.0)
        assert await run.by_lane()
        run.lane.version = STEP + 1
        await until(away)
        await run.share(0.0)
        await run.share(1.0)
        await until(run.ready)
        assert await run.by_lane(), "set anew, it is for what the lane serves now"


@pytest.mark.slow
async def test_a_share_outlives_the_sidecar_and_a_kill_too(run_loop: RunLoop) -> None:
    port = free_port()
    async with served(run_loop, port) as run:
        await run.share(1.0)
        assert await run.by_lane()
    async with served(run_loop, port) as run:
        assert await run.by_lane()
        await run.post("/serving/kill")
    async with served(run_loop, port) as run:
        state = await run.state()
        assert (state["version"], state["share"], state["killed"]) == (8, 1.0, True)
        assert not await run.by_lane()
        refused = await run.loop.client.post("/serving/share", json={"version": 8, "share": 1.0})
        assert (refused.status_code, refused.json()["error"]["code"]) == (409, "serving_killed")
        await run.post("/serving/revive")
        assert await run.by_lane()


@pytest.mark.slow
async def test_a_share_is_for_the_lane_that_it_was_set_for(run_loop: RunLoop) -> None:
    async with served(run_loop) as run:
        await run.share(1.0)
    lane = scripted_lane()
    lane.version = STEP + 5
    async with serving(lane.app()) as url, run_loop(serving=section(url)) as loop:
        run = Served(loop, lane, url)

        async def told() -> bool:
            return "the share was set for the lane" in (await run.state())["reason"]

        await until(told)
        assert not await run.by_lane()
        await run.share(1.0)
        assert await run.by_lane()


async def test_no_share_is_set_while_the_lane_tells_nothing(run_loop: RunLoop) -> None:
    """It would be for whatever the lane serves once it is there."""
    lane, port = scripted_lane(), free_port()
    async with run_loop(serving=section(f"http://127.0.0.1:{port}")) as loop:
        refused = await loop.client.post("/serving/share", json={"version": 8, "share": 0.1})
        assert (refused.status_code, refused.json()["error"]["code"]) == (409, "lane_not_ready")
        assert (await loop.client.get("/serving")).json()["version"] is None
        assert (await loop.client.post("/serving/share", json={"version": 8, "share": 0})).status_code == 200
        async with serving(lane.app(), port) as url:
            run = Served(loop, lane, url)
            assert (await run.share(1.0))["ready"], "it is asked at once"
            assert (await run.state())["lane"]["expected_step"] == STEP


async def test_no_share_is_set_for_another_version_than_the_lane_serves(run_loop: RunLoop, tmp_path: Path) -> None:
    """As the label in the lane's directory tells, if that is of the step that it shows."""
    job, lane = CheckpointJob(tmp_path / "job"), scripted_lane()
    lane.version = 1
    job.publish(7)
    kept = keeping.keep(job.path, tmp_path / "kept", 7, copy=False)
    assert lanes.put(tmp_path / "lane", kept, 7, copy=False) == 1
    async with serving(lane.app()) as url:
        settings = section(url)
        settings["lane"]["directory"] = str(tmp_path / "lane")
        async with run_loop(serving=settings) as loop:
            run = Served(loop, lane, url)
            await until(run.ready)
            refused = await loop.client.post("/serving/share", json={"version": 8, "share": 0.1})
            assert (refused.status_code, refused.json()["error"]["code"]) == (409, "other_version")
            assert "expected 7, which the lane serves as its step 1; found 8" in refused.json()["error"]["message"]
            assert (await run.state())["version"] is None
            assert (await run.share(1.0, 7))["ready"]
            assert (await run.share(0.0, 8))["share"] == 0
            lane.version = 12
            await run.share(1.0, 8)  # a step that the label is not of


async def test_no_share_is_set_for_the_weights_that_another_training_gave_a_number(
    run_loop: RunLoop, database: Database, tmp_path: Path
) -> None:
    job, lane = CheckpointJob(tmp_path / "job"), scripted_lane()
    lane.version = 1
    job.publish(8)
    lanes.put(tmp_path / "lane", keeping.keep(job.path, tmp_path / "kept", 8, copy=False), 8, copy=False)
    async with database.write() as session:
        session.add(VersionRow(version=8, seen_at=1.0, made_at=1.0))
    await database.close()
    async with serving(lane.app()) as url:
        settings = section(url)
        settings["lane"]["directory"] = str(tmp_path / "lane")
        async with run_loop(serving=settings) as loop:
            run = Served(loop, lane, url)
            await until(run.ready)
            refused = await loop.client.post("/serving/share", json={"version": 8, "share": 0.1})
            assert (refused.status_code, refused.json()["error"]["code"]) == (409, "other_version")
            assert "has the weights that another training gave this number" in refused.json()["error"]["message"]


async def test_without_a_lane_no_share_is_set_and_the_headers_do_nothing(run_loop: RunLoop) -> None:
    async with run_loop() as loop:
        state = (await loop.client.get("/serving")).json()
        assert (state["mode"], state["version"], state["ready"]) == ("off", None, False)
        refused = await loop.client.post("/serving/share", json={"version": 8, "share": 0.1})
        assert (refused.status_code, refused.json()["error"]["code"]) == (409, "no_lane")
        response = await loop.client.post(
            "/v1/chat/completions",
            json={"model": "prod", "messages": [{"role": "user", "content": "hello"}]},
            headers={"x-slipstream-variant": "?1"},
        )
        assert "x-slipstream-variant" not in response.headers


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"version": -1, "share": 0.5}, "version"),
        ({"version": 8, "share": 1.5}, "share"),
        ({"version": 8}, "share"),
        ({"version": "8", "share": 0.5}, "version"),
        ({"version": 8, "share": 0.5, "salt": "x"}, "salt"),
    ],
)
async def test_a_bad_share_is_named(run_loop: RunLoop, body: dict[str, Any], field: str) -> None:
    async with run_loop() as loop:
        refused = await loop.client.post("/serving/share", json=body)
        assert refused.status_code == 422
        assert refused.json()["error"]["param"] == field


async def test_only_an_admin_of_all_tenants_changes_the_share_and_each_change_is_in_the_audit(
    run_shared: RunShared,
) -> None:
    async with run_shared() as shared:
        assert (await shared.ask("metrics", "GET", "/serving")).status_code == 200
        for key, status in (("metrics", 403), ("agent", 403), ("admin-a", 403), ("admin", 200)):
            for path, body in (("share", {"version": 8, "share": 0.0}), ("kill", None), ("revive", None)):
                answer = await shared.ask(key, "POST", f"/serving/{path}", json=body)
                assert answer.status_code == status, (key, path, answer.text)
        entries = (await shared.ask("admin", "GET", "/audit")).json()["entries"]
        found = [(entry["action"], entry["key"], entry["written"]) for entry in reversed(entries)]
        assert found == [
            ("serving_share", "admin", "1"), ("serving_kill", "admin", "2"), ("serving_revive", "admin", "3"),
        ]  # fmt: skip


async def test_a_key_of_one_tenant_kills_nothing(run_shared: RunShared) -> None:
    lane = scripted_lane()
    async with serving(lane.app()) as url, run_shared(serving=section(url)) as shared:

        async def ready() -> bool:
            return bool((await shared.ask("admin", "GET", "/serving")).json()["ready"])

        await until(ready)
        await shared.ask("admin", "POST", "/serving/share", json={"version": 8, "share": 1.0})
        assert (await shared.ask("admin-a", "POST", "/serving/kill")).status_code == 403
        answer = await shared.chat("agent", session_id="s")
        assert answer["choices"][0]["message"]["content"].startswith("the lane")
        assert "authorization" not in lane.headers[-1]
        assert (await shared.ask("admin", "POST", "/serving/kill")).status_code == 200
        answer = await shared.chat("agent", session_id="s")
        assert not answer["choices"][0]["message"]["content"].startswith("the lane")


async def test_it_is_ready_only_once_its_own_workers_go_by_a_share_that_another_sidecar_set(
    run_loop: RunLoop, store_url: str
) -> None:
    async with served(run_loop) as run:
        database = Database(store_url)
        async with database.write() as session:
            await store_serving.serve(session, 8, 1.0, STEP, time.time())
        await database.close()

        async def shared_and_ready() -> bool:
            state = await run.state()
            return state["share"] == 1.0 and state["ready"]

        await until(shared_and_ready)
        assert await run.by_lane()


@ON_BOTH_STORES
async def test_deleting_a_session_deletes_its_outcomes(run_loop: RunLoop, store_url: str) -> None:
    async with served(run_loop) as run:
        await run.share(1.0)
        for session in ("s-1", "s-2"):
            await run.by_lane(session)

        async def units() -> int:
            [(count,)] = await stored_rows(store_url, "SELECT count(*) FROM units")
            return int(count)

        async def both() -> bool:
            return await units() == 2

        await until(both)
        deleted = await run.loop.client.delete("/data", params={"session_id": "s-1"})
        assert deleted.status_code == 200, deleted.text
        assert await units() == 1
