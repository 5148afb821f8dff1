"""TrainingRunner: an agent's calls, run again on the policy model of a real sidecar."""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import openai
import pytest
from loops import Loop, RunLoop
from serving import until

import slipstream_client as slipstream

NOT_SHADOWED: dict[str, Any] = {"selection": {"sampling": {"rate": 0.0}}}
"""Only what the runner replays is trained on."""

ALWAYS = slipstream.SamplingRate(1.0)


def asked(client: openai.OpenAI, messages: list[dict[str, Any]]) -> str:
    """One call of a model, added to the conversation."""
    answer = client.chat.completions.create(model="prod", messages=messages)  # type: ignore[arg-type]
    text = str(answer.choices[0].message.content)
    messages.append({"role": "assistant", "content": text})
    return text


def two_steps(client: openai.OpenAI) -> Callable[[str], str]:
    def agent(question: str) -> str:
        messages: list[dict[str, Any]] = [{"role": "user", "content": question}]
        asked(client, messages)
        messages.append({"role": "user", "content": f"{question}, really?"})
        return asked(client, messages)

    return agent


def delivered(loop: Loop) -> list[dict[str, Any]]:
    return loop.explorer.trained


async def run_of(loop: Loop, task_id: str) -> dict[str, Any]:
    response = await loop.client.get(f"/runs/{task_id}")
    assert response.status_code == 200, response.text
    group: dict[str, Any] = response.json()
    return group


async def test_the_caller_has_productions_answer_and_stop_delivers_four_runs(run_loop: RunLoop) -> None:
    seen: list[slipstream.RunResult] = []

    def reward(run: slipstream.RunResult) -> float:
        seen.append(run)
        return 0.75 if run.output.startswith("policy says") and run.metadata["reference"] == "42" else 0.0

    def program(url: str) -> tuple[str, slipstream.RunnerStats]:
        slipstream.configure(url)
        runner = slipstream.TrainingRunner(selection=ALWAYS, reward=reward, repeat_time=4)
        with slipstream.openai() as client, runner:
            support_agent = runner.agent(two_steps(client))
            with slipstream.mark("good", task_id="order-17", session_id="customer-7", reference="42"):
                answer = support_agent("Where is my parcel?")
        return answer, runner.stats

    async with run_loop(**NOT_SHADOWED) as loop:
        answer, stats = await asyncio.to_thread(program, loop.url)
        group = await run_of(loop, "order-17")
        experiences = delivered(loop)

    assert answer == "echo: Where is my parcel?, really?"
    assert (stats.calls, stats.selected, stats.finished, stats.commits) == (1, 1, 4, 1)
    assert (stats.dropped, stats.failed, stats.waiting, stats.running) == ({}, {}, 0, 0)
    assert group["state"] == "delivered"
    assert [run["reward"] for run in group["runs"]] == [0.75] * 4
    by_run = {run["run_id"]: run["msg_ids"] for run in group["runs"]}
    assert len({msg_id for msg_ids in by_run.values() for msg_id in msg_ids}) == 8
    assert {experience["reward"] for experience in experiences} == {0.75}
    for run_id, msg_ids in by_run.items():
        assert [experience["msg_id"] for experience in experiences if experience["run_id"] == run_id] == msg_ids
    for run in seen:
        assert list(run.msg_ids) == by_run[run.run_id]
        assert (run.args, run.kwargs, run.labels) == (("Where is my parcel?",), {}, ("good",))
        assert run.production_output == answer
        assert run.latency > 0
    assert [chat["messages"][0]["content"] for chat in loop.explorer.chats] == ["Where is my parcel?"] * 8


async def test_an_async_agent_shares_the_event_loop_of_async_with(run_loop: RunLoop) -> None:
    loops: set[asyncio.AbstractEventLoop] = set()

    class Judge:
        async def calculate(self, run: slipstream.RunResult) -> slipstream.Reward:
            loops.add(asyncio.get_running_loop())
            return slipstream.Reward(0.25, {"short": 0.5, "polite": 0})

    async with run_loop(**NOT_SHADOWED) as loop:
        slipstream.configure(loop.url)
        runner = slipstream.TrainingRunner(ALWAYS, Judge(), repeat_time=2)
        async with slipstream.async_openai() as client, runner:

            @runner.agent
            async def agent(question: str) -> str:
                loops.add(asyncio.get_running_loop())
                messages = [{"role": "user", "content": question}]
                answer = await client.chat.completions.create(model="prod", messages=messages)  # type: ignore[arg-type]
                return str(answer.choices[0].message.content)

            with slipstream.mark(task_id="a"):
                assert await agent("hello") == "echo: hello"
        group = await run_of(loop, "a")

    assert group["state"] == "delivered"
    assert [run["breakdown"] for run in group["runs"]] == [{"short": 0.5, "polite": 0.0}] * 2
    assert loops == {asyncio.get_running_loop()}


@pytest.mark.slow
async def test_a_client_that_production_shares_with_replays_on_another_loop_works_for_both(run_loop: RunLoop) -> None:
    async with run_loop(**NOT_SHADOWED) as loop:
        slipstream.configure(loop.url)
        runner = slipstream.TrainingRunner(ALWAYS, lambda run: 1.0, repeat_time=3)
        loops = set()
        async with slipstream.async_openai(max_retries=0) as client:

            @runner.agent
            async def agent(question: str) -> str:
                loops.add(asyncio.get_running_loop())
                messages = [{"role": "user", "content": question}]
                answer = await client.chat.completions.create(model="prod", messages=messages)  # type: ignore[arg-type]
                return str(answer.choices[0].message.content)

            await asyncio.to_thread(runner.start)
            for number in range(10):
                assert await agent(f"{number}") == f"echo: {number}"
            await asyncio.to_thread(runner.stop)
            assert await agent("after") == "echo: after"

    assert runner.stats.finished == 30
    assert len(loops) == 2


async def test_without_a_reward_the_sidecars_calculators_give_it(run_loop: RunLoop) -> None:
    async with run_loop(**NOT_SHADOWED) as loop:
        slipstream.configure(loop.url)
        runner = slipstream.TrainingRunner(ALWAYS, repeat_time=2)

        def program() -> None:
            with slipstream.openai() as client, runner, slipstream.mark(task_id="a"):
                runner.agent(two_steps(client))("hello")

        await asyncio.to_thread(program)

        async def ended() -> bool:
            return await loop.ready(4) or bool(delivered(loop))

        await until(ended)
        await loop.commit()
        group = await run_of(loop, "a")

    assert [run["reward"] for run in group["runs"]] == [0.5, 0.5]
    assert group["state"] == "delivered"


async def _raise_later(run: slipstream.RunResult) -> float:
    raise RuntimeError("no judge today")


@pytest.mark.parametrize(
    ("reward", "reason"),
    [
        (_raise_later, "reward_raised"),
        (lambda run: math.nan, "bad_reward"),
        (lambda run: 2.0, "invalid_request"),
    ],
    ids=["raises", "nan", "out_of_range"],
)
async def test_a_run_without_a_right_reward_is_dropped(
    run_loop: RunLoop, reward: Any, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with run_loop(**NOT_SHADOWED) as loop:
        slipstream.configure(loop.url)
        runner = slipstream.TrainingRunner(ALWAYS, reward, repeat_time=3)

        def program() -> str:
            with slipstream.openai() as client, runner, slipstream.mark(task_id="a"):
                return runner.agent(two_steps(client))("hello")

        assert await asyncio.to_thread(program) == "echo: hello, really?"
        await loop.commit()
        group = await run_of(loop, "a")

    assert runner.stats.failed == {reason: 3}
    assert (runner.stats.finished, runner.stats.running) == (0, 0)
    assert [run["state"] for run in group["runs"]] == ["failed"] * 3
    assert all(run["error"] for run in group["runs"])
    assert delivered(loop) == []
    assert sum("a replay is dropped" in message for message in caplog.messages) == 1


async def test_a_replay_that_raises_is_dropped_whole_and_the_others_go_on(run_loop: RunLoop) -> None:
    async with run_loop(**NOT_SHADOWED) as loop:
        slipstream.configure(loop.url)
        runner = slipstream.TrainingRunner(ALWAYS, lambda run: 0.5, repeat_time=3)
        replays = iter(range(3))

        def program() -> str:
            with slipstream.openai() as client, runner, slipstream.mark(task_id="a"):
                steps = two_steps(client)

                @runner.agent
                def agent(question: str) -> str:
                    answer = steps(question)
                    if slipstream.is_replay() and next(replays) == 0:
                        raise SystemExit("a tool ended the program")
                    return answer

                return agent("hello")

        assert await asyncio.to_thread(program) == "echo: hello, really?"
        group = await run_of(loop, "a")

    assert runner.stats.failed == {"agent_raised": 1}
    assert runner.stats.finished == 2
    assert sorted(run["state"] for run in group["runs"]) == ["failed", "scored", "scored"]
    [dropped] = [run for run in group["runs"] if run["state"] == "failed"]
    assert "a tool ended the program" in dropped["error"]
    assert len(dropped["msg_ids"]) == 2
    assert len(delivered(loop)) == 4
    assert not {experience["msg_id"] for experience in delivered(loop)} & set(dropped["msg_ids"])


@pytest.mark.slow
async def test_a_replay_that_takes_too_long_is_closed_and_keeps_its_slot_until_it_ends(run_loop: RunLoop) -> None:
    go_on, ended = threading.Event(), threading.Event()
    statuses: list[int] = []

    async with run_loop(**NOT_SHADOWED) as loop:
        slipstream.configure(loop.url)
        runner = slipstream.TrainingRunner(ALWAYS, lambda run: 0.5, repeat_time=1, timeout=3)

        def program() -> None:
            with slipstream.openai() as client:
                steps = two_steps(client)

                @runner.agent
                def agent(question: str) -> str:
                    if slipstream.is_replay():
                        try:
                            steps(question)
                            assert go_on.wait(30)
                            steps(question)
                        except openai.APIStatusError as error:
                            statuses.append(error.status_code)
                            raise
                        finally:
                            ended.set()
                    return steps(question)

                runner.start()
                with slipstream.mark(task_id="a"):
                    assert agent("hello") == "echo: hello, really?"
                assert ended.wait(30)

        running = asyncio.create_task(asyncio.to_thread(program))
        await until(lambda: runner.stats.failed, 30)
        group = await run_of(loop, "a")
        assert runner.stats.running == 1
        go_on.set()
        await running
        await until(lambda: runner.stats.running == 0)
        await asyncio.to_thread(runner.stop)
        chats = len(loop.explorer.chats)

    assert runner.stats.failed == {"agent_timeout": 1}
    assert [run["state"] for run in group["runs"]] == ["failed"]
    assert statuses == [410]
    assert chats == 2


@pytest.mark.slow
async def test_an_async_replay_that_takes_too_long_is_cancelled(run_loop: RunLoop) -> None:
    cancelled = asyncio.Event()
    async with run_loop(**NOT_SHADOWED) as loop:
        slipstream.configure(loop.url)
        runner = slipstream.TrainingRunner(ALWAYS, lambda run: 0.5, repeat_time=1, timeout=2)
        async with runner:

            @runner.agent
            async def agent() -> str:
                if slipstream.is_replay():
                    try:
                        await asyncio.Event().wait()
                    finally:
                        cancelled.set()
                return "production"

            assert await agent() == "production"
            await asyncio.wait_for(cancelled.wait(), 30)
            await until(lambda: runner.stats.running == 0)
    assert runner.stats.failed == {"agent_timeout": 1}


async def test_an_async_replay_that_ends_the_program_ends_itself(run_loop: RunLoop) -> None:
    async with run_loop(**NOT_SHADOWED) as loop:
        slipstream.configure(loop.url)
        runner = slipstream.TrainingRunner(ALWAYS, lambda run: 0.5, repeat_time=1)
        async with runner:

            @runner.agent
            async def agent() -> str:
                if slipstream.is_replay():
                    raise SystemExit(1)
                return "production"

            assert await agent() == "production"
            await until(lambda: runner.stats.failed)
    assert runner.stats.failed == {"agent_raised": 1}


async def test_a_call_that_fails_at_the_explorer_drops_the_run_without_asking_for_a_reward(run_loop: RunLoop) -> None:
    asked_about: list[int] = []
    async with run_loop(**NOT_SHADOWED) as loop:
        slipstream.configure(loop.url)
        loop.explorer.faults["/v1/chat/completions"] = [400]
        runner = slipstream.TrainingRunner(ALWAYS, lambda run: asked_about.append(run.run_id) or 0.5, repeat_time=1)

        def program() -> str:
            with slipstream.openai(max_retries=0) as client, runner, slipstream.mark(task_id="a"):
                steps = two_steps(client)

                @runner.agent
                def agent(question: str) -> str:
                    with suppress(openai.APIError):  # an agent that makes do without an answer
                        return steps(question)
                    return "sorry"

                return agent("hello")

        assert await asyncio.to_thread(program) == "echo: hello, really?"
        group = await run_of(loop, "a")
    assert runner.stats.failed == {"call_failed": 1}
    assert [run["state"] for run in group["runs"]] == ["failed"]
    assert asked_about == []


@pytest.mark.slow
async def test_the_reward_of_a_run_may_ask_a_model_which_is_no_part_of_the_run(run_loop: RunLoop) -> None:
    async with run_loop() as loop:  # which selects everything
        slipstream.configure(loop.url)

        def program() -> None:
            with slipstream.openai() as client:

                def judge(run: slipstream.RunResult) -> float:
                    assert not slipstream.is_replay()
                    return 1.0 if asked(client, [{"role": "user", "content": "judge"}]) == "echo: judge" else 0.0

                runner = slipstream.TrainingRunner(ALWAYS, judge, repeat_time=2)
                with runner, slipstream.mark(task_id="a"):
                    runner.agent(two_steps(client))("hello")

        await asyncio.to_thread(program)
        group = await run_of(loop, "a")
        status = await loop.status()

    assert [run["reward"] for run in group["runs"]] == [1.0, 1.0]
    assert [len(run["msg_ids"]) for run in group["runs"]] == [2, 2]
    assert "judge" not in str([chat["messages"] for chat in loop.explorer.chats])
    assert status


@pytest.mark.slow
async def test_a_commit_is_made_in_turn_while_the_runner_is_started(run_loop: RunLoop) -> None:
    async with run_loop(**NOT_SHADOWED) as loop:
        slipstream.configure(loop.url)
        runner = slipstream.TrainingRunner(ALWAYS, lambda run: 0.5, repeat_time=2, commit_interval=0.05)
        async with slipstream.async_openai() as client, runner:

            @runner.agent
            async def agent() -> None:
                await client.chat.completions.create(model="prod", messages=[{"role": "user", "content": "hello"}])

            await agent()
            await until(lambda: len(delivered(loop)) == 2)
            await until(lambda: runner.stats.commits)


@pytest.mark.slow
async def test_the_same_task_is_not_opened_twice_at_a_time(run_loop: RunLoop) -> None:
    async with run_loop(**NOT_SHADOWED) as loop:
        slipstream.configure(loop.url)
        runner = slipstream.TrainingRunner(ALWAYS, lambda run: 0.5, repeat_time=2)
        async with slipstream.async_openai() as client, runner:

            @runner.agent
            async def agent() -> None:
                await client.chat.completions.create(model="prod", messages=[{"role": "user", "content": "hello"}])

            with slipstream.mark(task_id="a"):
                await agent()
                await agent()
    assert runner.stats.dropped == {"already_open": 1}
    assert runner.stats.finished == 2
