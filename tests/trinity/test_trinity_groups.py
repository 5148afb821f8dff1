"""Groups: Trinity compares the experiences of one task_id within one commit, so a group goes out whole or not."""

from __future__ import annotations

import pytest
from real_sidecar import StartSidecar, StartTrinity
from real_trinity import RealTrinity
from scripted_engine import ScriptedEngine
from serving import serving, until

GROUP_ALGORITHMS = ("grpo", "dapo", "cispo", "gspo", "sapo", "multi_step_grpo", "opmd", "sppo", "asymre", "topr", "rec")
"""Those whose advantages serve mode computes. `gigpo` works as well, and asks for more than a config line."""


@pytest.mark.sampled(1)
@pytest.mark.parametrize("algorithm", GROUP_ALGORITHMS)
async def test_the_pipeline_of_each_group_algorithm_takes_a_delivery(
    engine: ScriptedEngine, start_trinity: StartTrinity, start_sidecar: StartSidecar, algorithm: str
) -> None:
    async with serving(engine.app()) as engine_url:
        trinity = await start_trinity(engine_url, algorithm=algorithm)
        async with start_sidecar(trinity) as sidecar:
            await sidecar.group("t", ready=2)
            assert (await sidecar.commit())["experiences"] == 2
            assert sorted(row.reward for row in trinity.trained()) == [0.0, 1.0]
        await trinity.kill()


async def test_a_group_waits_for_its_last_run_and_goes_out_in_one_commit(
    trinity: RealTrinity, engine: ScriptedEngine, start_sidecar: StartSidecar
) -> None:
    """In two commits its members would get 0.0 and 1.0 as advantages: each compared with nothing."""
    async with start_sidecar(trinity, runs={"repeat_time": 2, "concurrency": 1}) as sidecar:
        engine.pause_after(1)
        await sidecar.planned("t")

        async def one_scored() -> bool:
            return [run["state"] for run in await sidecar.runs("t")] == ["scored", "running"]

        await until(one_scored, 30)
        assert (await sidecar.commit())["experiences"] == 0
        assert trinity.trained() == []
        engine.hold.set()
        await until(lambda: sidecar.ready(2), 30)
        await sidecar.commit()
        assert sorted(row.advantage for row in trinity.trained()) == pytest.approx([-0.7071, 0.7071], abs=1e-3)


async def test_a_group_of_which_one_run_is_left_is_not_delivered(
    trinity: RealTrinity, engine: ScriptedEngine, start_sidecar: StartSidecar
) -> None:
    """Trinity would take its reward, 1.0, for its advantage."""
    async with start_sidecar(trinity, runs={"concurrency": 1, "max_attempts": 1}) as sidecar:
        engine.ways.extend(["empty", ""])
        engine.worth = iter([1.0, 0.0, 1.0])
        await sidecar.planned("alone")
        await sidecar.settled("alone")
        await sidecar.planned("whole")
        await sidecar.settled("whole")
        await sidecar.commit()
        assert {row.task_id for row in trinity.trained()} == {"whole.0"}
        failed, left = await sidecar.runs("alone")
        assert (failed["state"], left["state"], left["reward"]) == ("failed", "scored", 1.0)
        assert "nothing to compare it with" in left["reason"]
        assert await sidecar.group_states("alone") == ["dropped"]


async def test_with_rec_a_group_of_one_would_take_the_whole_commit_with_it(
    engine: ScriptedEngine, start_trinity: StartTrinity, start_sidecar: StartSidecar
) -> None:
    async with serving(engine.app()) as engine_url:
        trinity = await start_trinity(engine_url, algorithm="rec")
        async with start_sidecar(trinity, runs={"concurrency": 1, "max_attempts": 1}) as sidecar:
            await sidecar.group("whole", ready=2)
            engine.ways.extend(["empty", ""])
            await sidecar.planned("alone")
            await sidecar.settled("alone")
            assert (await sidecar.commit())["experiences"] == 2
            assert {row.task_id for row in trinity.trained()} == {"whole.0"}
        await trinity.kill()


@pytest.mark.slow
async def test_feedback_on_the_lost_run_brings_its_group_back(
    trinity: RealTrinity, engine: ScriptedEngine, start_sidecar: StartSidecar
) -> None:
    """A run that could not be scored has an answer still: a reward from elsewhere makes its group whole."""
    rewards = {"calculators": [{"python": "worth:unless_it_is_nothing"}]}
    async with start_sidecar(trinity, rewards=rewards) as sidecar:
        await sidecar.planned("t")
        await sidecar.ended("t", ["dropped"])
        [unscored] = [run for run in await sidecar.runs("t") if run["state"] == "failed"]
        response = await sidecar.client.post("/feedback", json={"msg_id": unscored["msg_id"], "reward": 0.25})
        assert response.status_code == 202
        await until(lambda: sidecar.ready(2), 30)
        assert [run["reason"] for run in await sidecar.runs("t")] == [None, None]
        await sidecar.commit()
        assert sorted(row.reward for row in trinity.trained()) == [0.25, 1.0]


@pytest.mark.slow
async def test_a_group_of_equal_rewards_arrives_and_moves_nothing(
    trinity: RealTrinity, engine: ScriptedEngine, start_sidecar: StartSidecar
) -> None:
    engine.worth = iter([0.3, 0.3, 0.3])
    async with start_sidecar(trinity, runs={"repeat_time": 3}) as sidecar:
        await sidecar.group("t", ready=3)
        await sidecar.commit()
        assert [row.advantage for row in trinity.trained()] == pytest.approx([0.0, 0.0, 0.0], abs=0.05)
