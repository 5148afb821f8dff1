"""`GET /learning` and `GET /learning/compare`: the versions' rewards side by side, and what changed between two."""

from __future__ import annotations

from pathlib import Path

from evaluated import EXACT, Knowing, evaluated, serves, suite, verdict, write_cases
from learned import NOW, answered, came, committed
from loops import RunLoop
from shared_by_tenants import RunShared
from stores import ON_BOTH_STORES

from slipstream.store.database import Database
from slipstream.store.states import RolloutState
from slipstream.store.tables.rollouts import RolloutRow, RolloutUnitRow


async def fill(database: Database) -> None:
    """Versions 3, 4 and 5, each after a commit; the number 5 was another training's before, and so was 9."""
    async with database.write() as session:
        await committed(session, 1, 2, 3, 4)
        metrics = {"kl_to_sampling": 0.01, "tokens": 100, "seconds": 2.5}
        await came(session, 3, 1, [0.0, 0.5])
        await came(session, 4, 2, [0.5, 0.5], parent=3, metrics=metrics)
        await came(session, 5, 3, [1.0, 0.0], parent=4)
        await came(session, 9, 2)  # before training was rolled back
        await answered(session, 5, "old", [0.9, 0.9], commit=2)
        await answered(session, 3, "parcel", [0.0, 0.5], commit=2, labels=["shop"])
        await answered(session, 3, "size", [0.5, 0.5], commit=2, labels=["shop"])
        await answered(session, 4, "late", [0.5, 0.5], commit=4)
        await answered(session, 5, "parcel", [1.0, 1.0], commit=4, labels=["shop"])
        await answered(session, 5, "size", [0.0, 0.5], labels=["shop"])
        await answered(session, 5, "secret", [0.25, 0.25], labels=["theirs"], tenant="acme")
        session.add(
            RolloutRow(
                version=5, state=RolloutState.PROMOTED, plan={}, position=1, promotions=0, level=0.01, opened_at=NOW,
                begun_at=NOW,
            )
        )  # fmt: skip
        await session.flush()
        for number, (treated, reward) in enumerate([(True, 0.75), (True, 0.25), (False, 0.5), (True, None)]):
            session.add(
                RolloutUnitRow(
                    rollout_id=1, unit=str(number), treated=treated, first_at=NOW, failure=0, latency=0, feedback=0.5,
                    reward=reward,
                )
            )  # fmt: skip
    await database.close()


@ON_BOTH_STORES
async def test_the_curve_has_what_each_version_got_in_training_and_from_users(
    run_loop: RunLoop, database: Database
) -> None:
    await fill(database)
    async with run_loop(rewards={"calculators": ["exact_match"], "clip": [-1, 1]}) as loop:
        page = (await loop.client.get("/learning?limit=3")).json()
        assert page["range"] == [-1, 1]
        assert [one["version"] for one in page["versions"]] == [9, 5, 4]
        _, five, four = page["versions"]
        # of the number's present training alone: delivered, waiting, and another tenant's
        assert five["groups"] == {
            "count": 3,
            "runs": 6,
            "spread": 0.25 / 3,
            "alike": 2 / 3,
            "tokens": 7.5,
            "seconds": 0.5,
        }
        assert five["live"] == {
            "rollout": 1, "count": 2, "mean": 0.0, "standard_error": 0.5,
            "production": {"count": 1, "mean": 0.0, "standard_error": None},
        }  # fmt: skip
        assert four["metrics"]["kl_to_sampling"] == 0.01
        assert four["training"] == {"count": 2, "mean": 0.5, "standard_error": 0.0}
        assert (four["groups"]["alike"], four["live"], four["held_out"]) == (1.0, None, [])
        rest = (await loop.client.get(f"/learning?limit=3&cursor={page['next']}")).json()
        assert [one["version"] for one in rest["versions"]] == [3]
        assert rest["versions"][0]["groups"]["count"] == 2
        assert rest["next"] is None


@ON_BOTH_STORES
async def test_two_versions_are_compared_over_their_tasks(run_loop: RunLoop, database: Database) -> None:
    await fill(database)
    async with run_loop() as loop:
        await loop.client.put("/aliases/newest", json={"version": 5})
        found = (await loop.client.get("/learning/compare?a=3&b=newest")).json()
        assert (found["a"], found["b"]) == (3, 5)
        training = found["training"]
        assert (training["a"]["tasks"], training["a"]["runs"], training["a"]["mean"]) == (2, 4, 0.375)
        assert (training["b"]["tasks"], training["b"]["mean"]) == (3, 0.5)
        low, high = training["interval"]
        assert low < 0 < training["difference"] == 0.125 < high
        assert found["tasks"]["both"] == 2
        assert [(one["task_id"], one["difference"]) for one in found["tasks"]["gained"]] == [("parcel", 0.75)]
        assert [(one["task_id"], one["difference"]) for one in found["tasks"]["lost"]] == [("size", -0.25)]
        assert {(one["task_id"], one["tenant"], one["mean"]) for one in found["lowest"]} == {
            ("size", "default", 0.25), ("secret", "acme", 0.25), ("parcel", "default", 1.0),
        }  # fmt: skip
        [label] = found["labels"]
        assert (label["label"], label["difference"], label["a"]["tasks"]) == ("shop", 0.25, 2)


async def test_a_tenant_sees_its_own_tasks_alone(run_shared: RunShared, database: Database) -> None:
    await fill(database)
    async with run_shared() as shared:
        found = (await shared.ask("admin-a", "GET", "/learning/compare?a=3&b=5")).json()
        assert [one["task_id"] for one in found["lowest"]] == ["secret"]
        assert found["labels"] == []


async def test_held_out_cases_are_paired(run_loop: RunLoop, tmp_path: Path) -> None:
    explorer = Knowing(0, 1)
    cases = write_cases(tmp_path / "cases.jsonl", 4)
    async with run_loop(explorer, evaluation=suite(cases), rewards=EXACT) as loop:
        await evaluated(loop, 1)
        explorer.knows = {1, 2, 3}
        await evaluated(loop, 2)
        [found] = (await loop.client.get("/learning/compare?a=1&b=2")).json()["held_out"]
        assert (found["suite"], found["a"], found["b"], found["difference"]) == ("fixed", 0.5, 0.75, 0.25)
        assert [one["case"] for one in found["gained"]] == ["c3", "c2"]
        assert [one["case"] for one in found["lost"]] == ["c0"]
        newest = (await loop.client.get("/learning")).json()["versions"][0]
        assert (newest["held_out"][0]["mean"], newest["held_out"][0]["sessions"]) == (0.75, 4)
        assert newest["held_out"][0]["production"] is None
    section = suite(cases, parameters={"max_tokens": 20})
    async with run_loop(explorer, evaluation=section, rewards=EXACT) as loop:
        await loop.client.put("/aliases/champion", json={"version": 1})
        await evaluated(loop, 3)
        reason = 'evaluation 1 has the parameters {}, and evaluation 3 {"max_tokens": 20}'
        [found] = (await loop.client.get("/learning/compare?a=1&b=3")).json()["held_out"]
        assert (found["cases"], found["verdict"], found["reason"]) == (0, "not_enough_data", reason)
        [source] = (await verdict(loop, 3))["sources"]
        assert (source["champion_evaluation"], source["cases"], source["reason"]) == (1, 0, reason)


async def test_a_version_that_is_not_there_is_named(run_loop: RunLoop) -> None:
    table = [("a=1", 422, "b"), ("a=1&b=2", 404, "a"), ("a=none&b=1", 404, "a"), ("a=0&b=" + "9" * 30, 404, "b")]
    async with run_loop() as loop:
        await serves(loop, 0)
        for query, status, param in table:
            response = await loop.client.get(f"/learning/compare?{query}")
            assert (response.status_code, response.json()["error"]["param"]) == (status, param), query
