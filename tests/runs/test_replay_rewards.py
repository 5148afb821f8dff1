"""The reward of an agent replay: of its agent, of calculators, of feedback."""

from __future__ import annotations

import pytest
from loops import Loop, RunLoop
from replaying import ask, finish, open_runs, posted, replay, sdk
from scripted import ScriptedExplorer
from serving import until
from stores import ON_BOTH_STORES


@pytest.mark.slow
@ON_BOTH_STORES
async def test_without_a_reward_the_calculators_see_the_whole_run(run_loop: RunLoop) -> None:
    async with run_loop(rewards={"calculators": [{"python": "replaying:about_replay"}]}) as loop:
        [run] = (await open_runs(loop, metadata={"reference": "42", "tool": "of the task"}))["runs"]
        async with sdk(loop, run) as client:
            await ask(client, "one")
            await ask(client, "two")
        ended = await finish(loop, metadata={"tool": "of the run"}, side_effects=[{"tool": "m", "outcome": "blocked"}])
        assert ended["state"] == "answered"
        await until(lambda: loop.ready(2))
        [seen] = (await replay(loop))["runs"]
        assert seen["breakdown"] == {
            "python": 0.5, "python.calls": 2.0, "python.metadata": 1.0, "python.production": 0.0, "python.blocked": 1.0,
        }  # fmt: skip
        assert seen["side_effects"] == [{"tool": "m", "outcome": "blocked"}]


@ON_BOTH_STORES
async def test_feedback_on_an_answer_is_the_runs_reward(run_loop: RunLoop) -> None:
    async with run_loop(rewards={"calculators": [{"constant": {"value": 0.5}}], "grace": "1h"}) as loop:
        for run in (await open_runs(loop, runs=3))["runs"]:
            async with sdk(loop, run) as client:
                answers = [await ask(client), await ask(client)]
            if run["run_id"] == 0:  # before its end, each answer named
                receipt = await posted(loop, {"msg_ids": answers, "reward": 0.125})
            await finish(loop, run_id=run["run_id"], **({"reward": 0.25} if run["run_id"] == 2 else {}))
            if run["run_id"] == 1:  # after it, in the place of the calculators'
                await posted(loop, {"msg_id": answers[0], "thumbs": "up"})
            if run["run_id"] == 2:  # a later word than the agent's own
                await posted(loop, {"msg_id": answers[1], "reward": 0.75})
        assert [target["state"] for target in receipt["targets"]] == ["matched", "matched"]
        await _scored(loop, 1, 1.0)
        await _scored(loop, 2, 0.75)
        seen = (await replay(loop))["runs"][0]
        assert seen["state"] == "answered", "the grace goes on: the feedback came before there was an end to wait for"


@ON_BOTH_STORES
async def test_a_replay_is_to_differ_from_the_last_answer_of_the_task_if_users_disliked_it(run_loop: RunLoop) -> None:
    rewards = {"calculators": [{"agreement": {"with_feedback": True}}]}
    async with run_loop(ScriptedExplorer(answer="echo: hello"), rewards=rewards) as loop:
        answers = [await loop.chat(text, {"x-slipstream-task-id": "t"}) for text in ("one", "hello")]

        async def stored() -> bool:
            task = await loop.task("t")
            return task is not None and len(task["calls"]) == 2

        await until(stored)
        await posted(loop, {"msg_id": answers[0]["id"], "thumbs": "down"})
        runs = (await open_runs(loop, runs=3))["runs"]
        for run in runs:
            async with sdk(loop, run) as client:
                await ask(client)
        await finish(loop, run_id=0)
        await finish(loop, run_id=1, reward=0.25)
        await _scored(loop, 0, 1.0)  # word for word; what was disliked is an answer before it
        await posted(loop, {"task_id": "t", "thumbs": "down"})
        await _scored(loop, 0, 0.0)
        await finish(loop, run_id=2)
        await _scored(loop, 2, 0.0)
        await posted(loop, {"msg_id": answers[1]["id"], "thumbs": "up"})
        for run_id in (0, 2):
            await _scored(loop, run_id, 1.0)
        assert (await replay(loop))["runs"][1]["reward"] == 0.25, "its agent's own"


@pytest.mark.slow
async def test_a_mark_has_runs_scored_again_but_for_the_agents_own_reward(run_loop: RunLoop) -> None:
    async with run_loop(rewards={"calculators": [{"python": "replaying:about_replay"}]}) as loop:
        for run in (await open_runs(loop, runs=2, metadata={"tool": "of the run"}))["runs"]:
            async with sdk(loop, run) as client:
                await ask(client)
            await finish(loop, run_id=run["run_id"], **({"reward": 1} if run["run_id"] else {}))
        await until(lambda: loop.ready(2))
        assert (await replay(loop))["runs"][0]["breakdown"]["python.metadata"] == 0
        marked = await loop.client.post("/marks", json={"task_id": "t", "metadata": {"reference": "42"}})
        assert marked.json()["state"] == "applied"

        async def scored_again() -> bool:
            return bool(((await replay(loop))["runs"][0]["breakdown"] or {}).get("python.metadata") == 1)

        await until(scored_again)
        assert (await replay(loop))["runs"][1]["reward"] == 1
        task = await loop.task("t")
        assert task is not None
        await until(lambda: _decided(loop))


async def _scored(loop: Loop, run_id: int, reward: float) -> None:
    async def there() -> bool:
        return bool((await replay(loop))["runs"][run_id]["reward"] == reward)

    await until(there)


async def _decided(loop: Loop) -> bool:
    task = await loop.task("t")
    return bool(task and task["decided"] and task["reason"] == "replayed by its client")
