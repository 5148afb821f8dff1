"""Rewards on their way to Trinity: each arrives once, finite, and in one piece with its group."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest
from gateway import Gateway
from real_sidecar import Sidecar, StartSidecar
from real_trinity import RealTrinity
from serving import serving, until


async def _say(sidecar: Sidecar, body: dict[str, Any]) -> int:
    return (await sidecar.client.post("/feedback", json=body)).status_code


async def test_the_same_feedback_twice_arrives_once_and_the_last_word_counts(
    trinity: RealTrinity, start_sidecar: StartSidecar
) -> None:
    async with start_sidecar(trinity) as sidecar:
        await sidecar.group("t", ready=2)
        first = (await sidecar.runs("t"))[0]["msg_id"]
        for reward in (0.25, 0.25, 0.75):  # had the first been handed on at once, it would have won
            assert await _say(sidecar, {"msg_ids": [first], "reward": reward}) == 202
        await until(lambda: sidecar.ready(2))
        assert (await sidecar.commit())["experiences"] == 2

        assert await _say(sidecar, {"msg_ids": [first], "reward": 0.0}) == 202
        await sidecar.commit()
        [row] = [row for row in trinity.trained() if row.msg_id == first]
        assert row.reward == 0.75
        assert len(trinity.trained()) == 2


@pytest.mark.slow
async def test_commits_at_the_same_time_do_not_hand_over_a_reward_twice(
    trinity: RealTrinity, start_sidecar: StartSidecar
) -> None:
    gateway = Gateway(trinity.url)
    others: list[asyncio.Task[Any]] = []
    async with serving(gateway.app()) as url, start_sidecar(trinity, url) as sidecar:
        for number in range(5):
            await sidecar.group(f"t{number}", ready=2 * (number + 1))

        async def commit_more() -> None:
            others.extend(asyncio.create_task(sidecar.commit()) for _ in range(5))
            for _ in range(10):  # a while, in which they would get as far as this feedback
                await sidecar.status()

        gateway.before["/feedback"].append(commit_more)
        await sidecar.commit()
        await asyncio.gather(*others)
        assert gateway.busiest["/feedback"] == 1, "Trinity's table races on feedback at the same time"
        assert (gateway.requests["/feedback"], gateway.requests["/commit"]) == (10, 1)
        assert set(Counter(row.msg_id for row in trinity.trained()).values()) == {1}
        assert len(trinity.trained()) == 10


async def test_a_delivery_that_is_repeated_after_a_cut_arrives_once(
    trinity: RealTrinity, start_sidecar: StartSidecar
) -> None:
    gateway = Gateway(trinity.url)
    async with serving(gateway.app()) as url, start_sidecar(trinity, url) as sidecar:
        await sidecar.group("t", ready=2)
        gateway.refused["/commit"] = 1
        assert (await sidecar.client.post("/commit")).status_code == 503
        assert trinity.trained() == []
        assert (await sidecar.commit())["experiences"] == 2
        assert gateway.requests["/feedback"] > 2, "the feedback was sent again"
        assert sorted(row.reward for row in trinity.trained()) == [0.0, 1.0]
        assert await sidecar.group_states("t") == ["delivered"]


async def test_answers_that_trinity_does_not_know_are_asked_for_anew(
    trinity: RealTrinity, start_sidecar: StartSidecar
) -> None:
    async with start_sidecar(trinity) as sidecar:
        await sidecar.group("t", ready=2)
        trinity.forget()
        assert (await sidecar.commit())["run_again"] == 1
        assert trinity.trained() == [], "Trinity said 200, and there was nothing"
        await until(lambda: sidecar.ready(2), 30)
        await sidecar.commit()
        assert [(row.task_id, row.run_id) for row in trinity.trained()] == [("t.0~1", 0), ("t.0~1", 1)]
        assert await sidecar.group_states("t") == ["rerun", "delivered"]


@pytest.mark.sampled(1)
@pytest.mark.parametrize("ids", [[], ["x" * 300], [7]], ids=str)
async def test_lists_without_an_answer_are_refused_at_the_sidecar(
    trinity: RealTrinity, start_sidecar: StartSidecar, ids: list[Any]
) -> None:
    async with start_sidecar(trinity) as sidecar:
        assert await _say(sidecar, {"msg_ids": ids, "reward": 1.0}) == 422


@pytest.mark.sampled(1)
@pytest.mark.parametrize("reward", ["NaN", "Infinity", "-Infinity", "1e999", "true", "1000", '"1"', "null"])
async def test_what_is_no_reward_is_refused_at_the_sidecar(
    trinity: RealTrinity, start_sidecar: StartSidecar, reward: str
) -> None:
    async with start_sidecar(trinity) as sidecar:
        await sidecar.group("t", ready=2)
        ids = [run["msg_id"] for run in await sidecar.runs("t")]
        body = f'{{"msg_ids": ["{ids[0]}"], "reward": {reward}}}'
        headers = {"content-type": "application/json"}
        response = await sidecar.client.post("/feedback", content=body, headers=headers)
        assert response.status_code in (400, 422), response.text
        await sidecar.commit()
        assert sorted(row.reward for row in trinity.trained()) == [0.0, 1.0]


@pytest.mark.sampled(1)
@pytest.mark.parametrize("function", ["not_a_number", "a_yes", "endless"])
async def test_a_calculator_that_gives_no_finite_number_fails_its_run(
    trinity: RealTrinity, start_sidecar: StartSidecar, function: str
) -> None:
    rewards = {"calculators": [{"python": f"worth:{function}"}]}
    async with start_sidecar(trinity, rewards=rewards) as sidecar:
        await sidecar.planned("t")
        await sidecar.settled("t")
        assert {run["state"] for run in await sidecar.runs("t")} == {"failed"}
        assert (await sidecar.commit())["experiences"] == 0
        assert trinity.trained() == []


async def test_a_reward_beyond_the_range_is_brought_into_it(trinity: RealTrinity, start_sidecar: StartSidecar) -> None:
    rewards = {"calculators": [{"python": "worth:far_too_much"}]}
    async with start_sidecar(trinity, rewards=rewards) as sidecar:
        await sidecar.group("t", ready=2)
        await sidecar.commit()
        assert [row.reward for row in trinity.trained()] == [1.0, 1.0]


async def test_run_ids_are_whole_numbers_counted_from_0_and_task_ids_are_named(
    trinity: RealTrinity, start_sidecar: StartSidecar
) -> None:
    async with start_sidecar(trinity, runs={"repeat_time": 3}) as sidecar:
        await sidecar.group("t", ready=3)
        await sidecar.commit()
        assert [(row.task_id, row.run_id) for row in trinity.trained()] == [("t.0", 0), ("t.0", 1), ("t.0", 2)]


@pytest.mark.slow
async def test_long_task_ids_stay_within_64_characters_and_apart(
    trinity: RealTrinity, start_sidecar: StartSidecar
) -> None:
    """Trinity's column holds 64: PostgreSQL refuses a longer one, and what is cut off would make two groups one."""
    async with start_sidecar(trinity) as sidecar:
        await sidecar.group("a" * 63 + "1", ready=2)
        await sidecar.group("a" * 63 + "2", ready=4)
        await sidecar.commit()
        names = Counter(row.task_id for row in trinity.trained())
        assert sorted(names.values()) == [2, 2]
        assert max(len(name or "") for name in names) <= 64
