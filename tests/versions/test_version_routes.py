"""The register of versions through the running sidecar: found, kept, named, and what their runs came to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest
from checkpoint_job import CheckpointJob, weights
from loops import Loop, RunLoop
from scripted import ScriptedExplorer
from serving import until
from shared_by_tenants import RunShared
from stores import ON_BOTH_STORES, stored_rows

from slipstream.versions import keeping, lanes


@pytest.fixture
def job(tmp_path: Path) -> CheckpointJob:
    return CheckpointJob(tmp_path / "job")


def serving_of(job: CheckpointJob, **fields: Any) -> dict[str, Any]:
    return {"checkpoints": str(job.path), **fields}


async def listed(loop: Loop) -> list[dict[str, Any]]:
    response = await loop.client.get("/versions")
    assert response.status_code == 200, response.text
    found: list[dict[str, Any]] = response.json()["versions"]
    return found


async def version(loop: Loop, name: int | str) -> dict[str, Any]:
    response = await loop.client.get(f"/versions/{name}")
    assert response.status_code == 200, response.text
    found: dict[str, Any] = response.json()
    return found


def kept_by(loop: Loop, expected: dict[int, str]) -> Any:
    async def are() -> bool:
        return {one["version"]: one["kept"]["by"] for one in await listed(loop) if one["kept"]} == expected

    return are


def error_of(response: httpx.Response) -> tuple[int, str, str]:
    error = response.json()["error"]
    return response.status_code, error["code"], error["message"]


@ON_BOTH_STORES
async def test_checkpoints_are_found_and_the_newest_are_kept_before_the_trainer_deletes_them(
    run_loop: RunLoop, job: CheckpointJob
) -> None:
    async with run_loop(serving=serving_of(job, keep_newest=2)) as loop:
        for number in (1, 2, 3):
            job.publish(number, experiences=number, metrics={"loss": number / 10})
            await until(kept_by(loop, dict.fromkeys(range(max(1, number - 1), number + 1), "sight")))
            if number > 1:
                job.prune(number - 1)
        found = await version(loop, 3)
        assert (found["state"], found["parent"], found["metrics"]) == ("kept", 2, {"loss": 0.3})
        assert found["checkpoint"] == str(job.step(3))
        assert found["kept"]["path"] == str(job.path / "kept" / "3")
        assert (await version(loop, 1))["state"] == "seen"
        assert weights(job.path / "kept" / "2") == "weights of 2"
        assert sorted(keeping.there(job.path / "kept")) == [2, 3]
        text = (await loop.client.get("/metrics")).text
        assert 'slipstream_versions{state="kept"} 2.0' in text


@pytest.mark.slow
async def test_a_step_that_is_being_written_is_not_there(run_loop: RunLoop, job: CheckpointJob) -> None:
    async with run_loop(serving=serving_of(job)) as loop:
        job.publish(1)
        job.write(2)
        await until(kept_by(loop, {1: "sight"}))
        assert (await loop.client.get("/versions/2")).status_code == 404
        job.mark(2)
        await until(kept_by(loop, {1: "sight", 2: "sight"}))


@pytest.mark.slow
async def test_one_that_is_kept_by_hand_or_has_an_alias_stays(run_loop: RunLoop, job: CheckpointJob) -> None:
    async with run_loop(serving=serving_of(job, keep_newest=1)) as loop:
        job.publish(1)
        await until(kept_by(loop, {1: "sight"}))
        assert (await loop.client.post("/versions/1/keep")).json()["kept"]["by"] == "hand"
        job.publish(2)
        await until(kept_by(loop, {1: "hand", 2: "sight"}))
        named = await loop.client.put("/aliases/champion", json={"version": 2})
        assert named.json() == {"name": "champion", "version": 2, "before": None, "kept": True}
        job.publish(3)
        await until(kept_by(loop, {1: "hand", 2: "alias", 3: "sight"}))
        assert (await version(loop, "champion"))["aliases"] == ["champion"]

        refused = await loop.client.delete("/versions/champion/keep")
        assert error_of(refused) == (
            409,
            "in_use",
            "version 2: expected one that nothing needs; it has the alias champion",
        )
        assert weights(job.path / "kept" / "2") == "weights of 2"
        removed = await loop.client.delete("/aliases/champion")
        assert removed.json() == {"name": "champion", "before": 2}
        released = await loop.client.delete("/versions/2/keep")
        assert (released.json()["kept"], released.json()["state"]) == (None, "seen")
        assert not (job.path / "kept" / "2").exists()


async def test_what_the_trainer_has_deleted_cannot_be_kept_and_an_alias_is_refused(
    run_loop: RunLoop, job: CheckpointJob
) -> None:
    async with run_loop(serving=serving_of(job, keep_newest=0)) as loop:
        job.publish(1)
        await until(lambda: _known(loop, 1))
        job.publish(2)
        job.prune(1)
        for refused in (
            await loop.client.post("/versions/1/keep"),
            await loop.client.put("/aliases/v1.0", json={"version": 1}),
        ):
            status, code, message = error_of(refused)
            assert (status, code) == (409, "not_kept")
            assert "The Trainer deleted it" in message
        assert (await loop.client.get("/aliases")).json() == {"aliases": []}
        assert [one["kept"] for one in await listed(loop) if one["version"] == 1] == [None]


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("GET", "/versions/9", None, 404),
        ("GET", "/versions/nobody", None, 404),
        ("POST", "/versions/9/keep", None, 404),
        ("DELETE", "/versions/99999999999999999999/keep", None, 404),
        ("PUT", "/aliases/champion", {"version": 9}, 404),
        ("PUT", "/aliases/12", {"version": 0}, 422),
        ("PUT", "/aliases/a b", {"version": 0}, 422),
        ("PUT", "/aliases/_best", {"version": 0}, 422),  # `GET /versions/_best` would not find it
        ("PUT", "/aliases/-1", {"version": 0}, 422),
        ("PUT", "/aliases/" + "a" * 65, {"version": 0}, 422),
        ("PUT", "/aliases/champion", {"version": "0"}, 422),
        ("PUT", "/aliases/champion", {"version": -1}, 422),
        ("DELETE", "/aliases/champion", None, 404),
        ("GET", "/versions?cursor=-1", None, 422),
        ("GET", "/versions?limit=201", None, 422),
        ("GET", "/versions?page=2", None, 422),
    ],
)
async def test_a_bad_request_is_refused_by_name(
    run_loop: RunLoop, method: str, path: str, body: Any, status: int
) -> None:
    async with run_loop() as loop:
        response = await loop.client.request(method, path, json=body)
        assert response.status_code == status, response.text
        assert set(response.json()["error"]) == {"message", "type", "code", "param"}


async def test_without_the_trainers_directory_there_are_versions_and_names_and_no_files(run_loop: RunLoop) -> None:
    explorer = ScriptedExplorer()
    explorer.version = 4
    async with run_loop(explorer) as loop:
        await until(lambda: listed(loop))
        found = await version(loop, 4)
        assert (found["state"], found["serves"], found["kept"]) == ("seen", ["explorer"], None)
        status, code, message = error_of(await loop.client.post("/versions/4/keep"))
        assert (status, code) == (409, "not_kept")
        assert "serving.checkpoints" in message
        assert (await loop.client.put("/aliases/v1.0", json={"version": 4})).json()["kept"] is False


@ON_BOTH_STORES
async def test_an_alias_has_a_history_that_outlives_it(run_shared: RunShared) -> None:
    explorer = ScriptedExplorer()
    async with run_shared(explorer) as shared:
        for number in (1, 2):
            explorer.version = number
            await until(lambda: _served(shared, number))  # noqa: B023 - it is called here
            answer = await shared.ask("admin", "PUT", "/aliases/champion", json={"version": number})
            assert answer.json()["before"] == (None if number == 1 else 1)
        await shared.ask("admin", "PUT", "/aliases/champion", json={"version": 2})
        await shared.ask("admin", "DELETE", "/aliases/champion")
        page = (await shared.ask("admin", "GET", "/aliases/champion/history", params={"limit": 2})).json()
        assert [(one["version"], one["key"]) for one in page["history"]] == [(None, "admin"), (2, "admin")]
        rest = {"limit": 2, "cursor": page["next"]}
        page = (await shared.ask("metrics", "GET", "/aliases/champion/history", params=rest)).json()
        assert ([one["version"] for one in page["history"]], page["next"]) == ([1], None)

        audit = (await shared.ask("admin", "GET", "/audit")).json()["entries"]
        told = [(one["action"], one["key"], one["written"]) for one in audit]
        assert told == [
            ("alias_remove", "admin", "champion"),
            *[("alias_set", "admin", "champion")] * 3,
        ]


async def _served(shared: Any, number: int) -> bool:
    found = (await shared.ask("metrics", "GET", f"/versions/{number}")).json()
    return found.get("serves") == ["explorer"]


async def test_versions_are_of_all_tenants_so_that_a_tenants_key_changes_none(run_shared: RunShared) -> None:
    async with run_shared(ScriptedExplorer()) as shared:
        await until(lambda: _served(shared, 0))
        assert (await shared.ask("admin-a", "GET", "/versions/0")).status_code == 200
        for method, path, body in (
            ("PUT", "/aliases/champion", {"version": 0}),
            ("DELETE", "/aliases/champion", None),
            ("POST", "/versions/0/keep", None),
            ("DELETE", "/versions/0/keep", None),
        ):
            refused = await shared.ask("admin-a", method, path, json=body)
            assert error_of(refused)[:2] == (403, "slipstream_tenant_forbidden"), path


@ON_BOTH_STORES
async def test_rewards_and_commits_are_those_of_the_version(
    run_loop: RunLoop, store_url: str, job: CheckpointJob
) -> None:
    explorer = ScriptedExplorer()
    async with run_loop(explorer, runs={"repeat_time": 2}, serving=serving_of(job)) as loop:
        await until(lambda: listed(loop))
        await loop.chat("first")
        await until(lambda: loop.ready(2))
        waiting = (await version(loop, 0))["rewards"]
        await loop.commit()
        assert (await version(loop, 0))["rewards"] == waiting == {"count": 2, "mean": 0.5, "standard_error": 0.0}
        job.publish(1, parent=0, experiences=2)
        await until(kept_by(loop, {1: "sight"}))
        explorer.version = 1
        await until(lambda: _serves(loop, 1))
        await loop.chat("second")
        await until(lambda: loop.ready(2))
        assert (await version(loop, 1))["rewards"]["count"] == 2
        assert (await version(loop, 0))["rewards"]["count"] == 2
        assert (await version(loop, 1))["trained_on"] == {
            "commits": 1,
            "first_commit": 1,
            "last_commit": 1,
            "groups": 1,
            "experiences": 2,
            "reward_mean": 0.5,
        }
        await loop.commit()
        taught = {"name": "support", "digest": "d", "kind": "sft", "rows": 1}
        job.publish(2, parent=1, experiences=2, dataset=taught)
        await until(kept_by(loop, {1: "sight", 2: "sight"}))
        both = (await version(loop, 2))["trained_on"]
        assert (both["experiences"], both["groups"], both["dataset"]) == (2, 1, taught), "in the same steps"
    [(count,)] = await stored_rows(store_url, "SELECT reward_count FROM versions WHERE version = 1")
    assert count == 2, "the last commit, at the end, counted them"


async def _serves(loop: Loop, number: int) -> bool:
    return (await version(loop, number))["serves"] == ["explorer"]


@pytest.mark.slow
async def test_a_number_that_comes_twice_is_the_new_version_unless_the_old_one_is_needed(
    run_loop: RunLoop, job: CheckpointJob
) -> None:
    async with run_loop(serving=serving_of(job)) as loop:
        for number in (1, 2, 3):
            job.publish(number)
        await until(kept_by(loop, {1: "sight", 2: "sight", 3: "sight"}))
        await loop.client.put("/aliases/champion", json={"version": 2})
        old = {number: (await version(loop, number))["made_at"] for number in (2, 3)}
        job.prune(3)  # a rollback to version 1 moves later steps aside
        job.prune(2)
        job.mark(1)
        for number in (2, 3):
            job.publish(number, f"other weights of {number}")

        async def noticed() -> bool:
            return (await version(loop, 2))["replaced_at"] is not None and (await version(loop, 3))["made_at"] != old[3]

        await until(noticed)
        await until(kept_by(loop, {1: "sight", 2: "alias", 3: "sight"}))
        assert (await version(loop, "champion"))["made_at"] == old[2]
        assert weights(job.path / "kept" / "2") == "weights of 2"
        assert weights(job.path / "kept" / "3") == "other weights of 3"
        assert (await version(loop, 3))["replaced_at"] is None


@pytest.mark.slow
async def test_what_was_kept_and_not_noted_is_noted_at_the_next_start_and_what_is_gone_is_told(
    run_loop: RunLoop, job: CheckpointJob
) -> None:
    keep = job.path / "kept"
    async with run_loop(serving=serving_of(job, keep_newest=0)) as loop:
        job.publish(1)
        job.publish(2)
        await until(lambda: _known(loop, 2))
        await loop.client.put("/aliases/champion", json={"version": 2})
    keeping.keep(job.path, keep, 1, copy=False)  # killed before the store was told
    keeping.release(keep, 2)  # by somebody who deleted the folder
    async with run_loop(serving=serving_of(job, keep_newest=2)) as loop:
        await until(kept_by(loop, {1: "sight", 2: "sight"}))
        assert (await version(loop, "champion"))["version"] == 2


async def _known(loop: Loop, number: int) -> bool:
    return (await loop.client.get(f"/versions/{number}")).status_code == 200


async def test_pages_go_from_the_newest_to_the_oldest(run_loop: RunLoop, job: CheckpointJob) -> None:
    for number in range(1, 6):
        job.publish(number)
    async with run_loop(serving=serving_of(job, keep_newest=0)) as loop:
        await until(lambda: _known(loop, 5))
        seen, cursor = [], {}
        while True:
            page = (await loop.client.get("/versions", params={"limit": 2, **cursor})).json()
            seen += [one["version"] for one in page["versions"]]
            if page["next"] is None:
                break
            cursor = {"cursor": page["next"]}
        assert [number for number in seen if number] == [5, 4, 3, 2, 1]


async def test_no_rollout_or_experiment_is_opened_of_a_version_whose_weights_are_gone(
    run_loop: RunLoop, job: CheckpointJob, tmp_path: Path
) -> None:
    lane = {"base_url": "http://127.0.0.1:9/v1", "directory": str(tmp_path / "lane")}
    async with run_loop(serving=serving_of(job, keep_newest=0, mode="on", lane=lane)) as loop:
        job.publish(1)
        await until(lambda: _known(loop, 1))
        job.publish(2)
        job.prune(1)
        await until(lambda: _known(loop, 2))
        status, code, message = error_of(await loop.client.post("/rollouts", json={"version": 1}))
        assert (status, code) == (409, "not_kept")
        assert "version 1: not in " in message
        status, code, message = error_of(await loop.client.post("/experiments", json={"name": "x", "b": "version:1"}))
        assert (status, code) == (409, "not_kept")
        assert message.startswith("b: version 1: not in ")
        assert (await loop.client.post("/rollouts", json={"version": 3})).status_code == 404
        assert (await loop.client.post("/rollouts", json={"version": 2})).status_code == 201


async def test_a_version_in_the_lane_says_so(run_loop: RunLoop, job: CheckpointJob, tmp_path: Path) -> None:
    lane = tmp_path / "lane" / "job"
    settings = serving_of(job, lane={"base_url": "http://127.0.0.1:9/v1", "directory": str(lane)})
    async with run_loop(serving=settings) as loop:
        job.publish(1)
        await until(kept_by(loop, {1: "sight"}))
        assert (await version(loop, 1))["serves"] == []
        assert lanes.put(lane, job.path / "kept" / "1", 1, copy=False) == 1
        assert (await version(loop, 1))["serves"] == ["lane"]
