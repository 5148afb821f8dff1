"""The agent-training articles' online trainer and collector at a real sidecar."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from loops import Loop, RunLoop
from serving import until

import slipstream_client as slipstream
from slipstream.agent_training.collecting import DataCollector
from slipstream.agent_training.online import OnlineTrainer, TrinityRFT
from slipstream.agent_training.runtime import RLRuntime

NOT_SHADOWED: dict[str, Any] = {"selection": {"sampling": {"rate": 0.0}}}


async def test_a_trajectory_is_collected_and_its_feedback_posted(run_loop: RunLoop) -> None:
    async with run_loop(**NOT_SHADOWED) as loop:
        slipstream.configure(loop.url, timeout=30)

        def agent(question: str) -> str:
            with slipstream.openai() as client:
                asked: list[Any] = [{"role": "user", "content": question}]
                answer = client.chat.completions.create(model="prod", messages=asked)
            return f"<think>easy</think>{answer.choices[0].message.content}"

        collector = DataCollector({"tool_calls": False})
        found = await asyncio.to_thread(
            collector.collect, agent, "Where is it?", {"rating": 4, "comment": "quick"}, {"efficiency": 0.5}
        )
        assert await asyncio.to_thread(slipstream.flush)
        await until(lambda: _matched(loop, 1))
        task = await until(lambda: loop.task(found["conversation_id"]))

    assert task["calls"]
    assert found["thoughts"] == [{"step": 1, "content": "easy"}]
    assert found["rewards"] == {"efficiency": 0.5, "user_satisfaction": 0.75}
    assert (found["total_reward"], found["reward"]) == (1.25, 0.625)
    assert "tool_calls" not in found
    json.dumps(found)


@pytest.mark.slow
async def test_the_trainer_waits_for_enough_and_then_commits(run_loop: RunLoop) -> None:
    async with run_loop(runs={"repeat_time": 2}, rewards={"calculators": [{"feedback": {"default": 0.0}}]}) as loop:
        slipstream.configure(loop.url, timeout=30)
        await loop.chat(headers={"x-slipstream-task-id": "order-17"})
        await until(lambda: loop.ready(2))
        task = await loop.task("order-17")
        assert task is not None
        msg_ids = [run["msg_id"] for run in task["groups"][0]["runs"]]
        trainer = await asyncio.to_thread(OnlineTrainer, min_samples=2)
        trainer.add_trajectory({"msg_ids": msg_ids[:1], "total_reward": 2.2})
        assert await asyncio.to_thread(trainer.train_step) is None
        trainer.add_trajectory({"msg_ids": msg_ids[1:], "total_reward": 3.0, "reward": 0.25})
        assert await asyncio.to_thread(slipstream.flush)
        await until(lambda: _matched(loop, 2))
        await until(lambda: loop.ready(2))
        committed = await asyncio.to_thread(trainer.train_step)
        updates = await asyncio.to_thread(trainer.should_update)

        assert committed is not None
        assert (committed.groups, trainer.steps, len(trainer.buffer)) == (1, 1, 0)
        assert sorted(each["reward"] for each in loop.explorer.trained) == [0.25, 1.0]  # the sidecar would refuse 2.2
        assert updates is False


async def test_the_runtime_runs_calls_again_and_commits_after_each_interval(run_loop: RunLoop) -> None:
    async with run_loop(**NOT_SHADOWED) as loop:

        def program() -> list[str]:
            slipstream.configure(loop.url, timeout=30)
            with slipstream.openai() as client:

                def agent(question: str) -> str:
                    asked: list[Any] = [{"role": "user", "content": question}]
                    answer = client.chat.completions.create(model="prod", messages=asked)
                    return str(answer.choices[0].message.content)

                config = {"train_interval": 2, "repeat_time": 2}
                runtime = RLRuntime(agent, config, reward=lambda run: float("policy" in run.output))
                runtime.start()
                try:
                    answers = [runtime.agent(f"question {number}") for number in range(2)]
                finally:
                    runtime.stop()
            return [*answers, str(runtime.trainer.steps)]

        *answers, steps = await asyncio.to_thread(program)
        delivered = loop.explorer.trained

    assert not any("policy" in answer for answer in answers)
    assert steps == "1"
    assert len(delivered) == 4


async def test_an_async_agent_runs_again_on_the_loop_of_its_program(run_loop: RunLoop) -> None:
    loops = set()
    async with run_loop(**NOT_SHADOWED) as loop:
        slipstream.configure(loop.url, timeout=30)
        async with slipstream.async_openai() as client:

            async def agent(question: str) -> str:
                loops.add(asyncio.get_running_loop())
                asked: list[Any] = [{"role": "user", "content": question}]
                answer = await client.chat.completions.create(model="prod", messages=asked)
                return str(answer.choices[0].message.content)

            config = {"train_interval": 2, "repeat_time": 2}
            async with RLRuntime(agent, config, reward=lambda run: float("policy" in run.output)) as runtime:
                answers = [await runtime.agent(f"question {number}") for number in range(2)]
        delivered = loop.explorer.trained

    assert not any("policy" in answer for answer in answers)
    assert (runtime.trainer.steps, len(delivered)) == (1, 4)
    assert loops == {asyncio.get_running_loop()}


async def test_an_async_agent_is_not_started_beside_its_loop() -> None:
    async def agent(question: str) -> str:
        return question

    runtime = RLRuntime(agent)
    with pytest.raises(RuntimeError, match="async with runtime"):
        runtime.start()
    assert await runtime.agent("hello") == "hello"
    runtime.stop()
    await asyncio.to_thread(runtime.start)  # where no loop runs, as in a program that calls asyncio.run later
    await asyncio.to_thread(runtime.stop)


async def test_a_runtime_that_cannot_be_stopped_on_its_loop_ends_with_its_block() -> None:
    async def agent(question: str) -> str:
        return question

    async with RLRuntime(agent) as runtime:
        with pytest.raises(RuntimeError, match="leave `async with`"):
            runtime.stop()
    async with runtime:  # it has stopped, and starts again
        pass


def test_the_framework_is_files_of_a_job() -> None:
    ppo = TrinityRFT("ppo", {"base_model": "models/qwen", "lora_rank": 8}, {"learning_rate": 1e-5, "batch_size": 16})
    overlay = ppo.job().overlay

    assert any("embedded engine" in note for note in ppo.job().notes)
    assert overlay["model"] == {"model_path": "models/qwen", "lora_configs": [{"lora_rank": 8}]}
    assert overlay["buffer"]["train_batch_size"] == 64
    assert overlay["algorithm"]["algorithm_type"] == "ppo"
    rft = TrinityRFT("rft").job()
    assert rft.data is not None
    assert rft.overlay["algorithm"]["algorithm_type"] == "sft"
    with pytest.raises(ValueError, match=r"model_config: expected base_model, lora_rank, found rank"):
        TrinityRFT("ppo", {"rank": 8}).job()


def test_what_cannot_be_used_is_named() -> None:
    with pytest.raises(ValueError, match=r"collect_fields: expected messages, .* found mood"):
        DataCollector({"mood": True})
    with pytest.raises(ValueError, match="trainer_config: expected algorithm"):
        RLRuntime(str, {"interval": 3})
    with pytest.raises(ValueError, match="train_interval: expected a number of 1 or more, found 0"):
        RLRuntime(str, {"train_interval": 0})

    async def agent(question: str) -> str:
        return question

    with pytest.raises(ValueError, match="agent: expected a plain function"):
        DataCollector().collect(agent, "hello")


async def _matched(loop: Loop, count: int) -> bool:
    return bool((await loop.status())["feedback"].get("matched") == count)
