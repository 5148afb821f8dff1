"""Shadow calls through Trinity: whole answers, each recorded once, whatever the agent's own request was."""

from __future__ import annotations

import httpx
import pytest
from real_sidecar import StartSidecar, StartTrinity
from real_trinity import RealTrinity
from scripted_engine import ScriptedEngine
from serving import serving, until


async def test_a_streaming_agent_is_shadowed_without_a_stream(
    trinity: RealTrinity, engine: ScriptedEngine, start_sidecar: StartSidecar
) -> None:
    """Of a stream that is cut Trinity records what there is; the engine would cut this one."""
    async with start_sidecar(trinity) as sidecar:
        body = {"model": "prod", "messages": [{"role": "user", "content": "[cut] hello"}], "stream": True}
        headers = {"x-slipstream-task-id": "t"}
        response = await sidecar.client.post("/v1/chat/completions", json=body, headers=headers)
        assert response.text.endswith("data: [DONE]\n\n")
        await until(lambda: len(engine.chats) >= 2, 30)
        assert [chat["stream"] for chat in engine.chats] == [False, False]
        await sidecar.settled("t")
        await sidecar.commit()
        assert [row.response_tokens for row in trinity.trained()] == [2, 2]


@pytest.mark.slow
async def test_the_trap_itself_trinity_records_the_part_of_a_stream_that_was_cut(
    trinity: RealTrinity, engine: ScriptedEngine
) -> None:
    async with httpx.AsyncClient(base_url=trinity.url, timeout=30) as client:
        body = {"model": "policy", "messages": [{"role": "user", "content": "[cut] hello"}], "stream": True}
        with pytest.raises(httpx.RemoteProtocolError):
            await client.post("/v1/chat/completions", json=body)
        await until(trinity.history)


async def test_several_choices_are_asked_for_one_by_one(
    trinity: RealTrinity, engine: ScriptedEngine, start_sidecar: StartSidecar
) -> None:
    """With n above 1 Trinity gives all choices one msg_id, and with it one reward."""
    async with start_sidecar(trinity) as sidecar:
        await sidecar.chat("hello", {"x-slipstream-task-id": "t"}, n=3)
        await until(lambda: len(engine.chats) >= 2, 30)
        assert [chat["n"] for chat in engine.chats] == [1, 1]
        await sidecar.settled("t")
        await sidecar.commit()
        assert sorted(row.reward for row in trinity.trained()) == [0.0, 1.0]


async def test_nothing_of_the_caller_changes_how_answers_are_sampled(
    trinity: RealTrinity, engine: ScriptedEngine, start_sidecar: StartSidecar
) -> None:
    """Trinity passes these on, and its engine records the logprobs of the distribution that they leave."""
    async with start_sidecar(trinity) as sidecar:
        own = {"seed": 1, "logit_bias": {"50256": -100}, "top_p": 0.5, "presence_penalty": 1, "frequency_penalty": 1}
        await sidecar.chat("hello", {"x-slipstream-task-id": "t"}, max_tokens=9, **own)
        await until(lambda: len(engine.chats) >= 2, 30)
        assert [(chat["max_tokens"], own.keys() & chat.keys()) for chat in engine.chats] == [(9, set())] * 2


async def test_nothing_of_the_callers_headers_reaches_the_engine(
    trinity: RealTrinity, engine: ScriptedEngine, start_sidecar: StartSidecar
) -> None:
    """Trinity forwards what it is sent."""
    async with start_sidecar(trinity) as sidecar:
        secret = {"authorization": "Bearer sk-production", "cookie": "session=1", "x-tenant": "acme"}
        await sidecar.chat("hello", secret)
        await until(lambda: sidecar.ready(2), 30)
        for headers in engine.headers:
            assert not {"authorization", "cookie", "x-tenant"} & set(headers)


async def test_an_empty_completion_costs_its_run_an_attempt_and_no_other_run_anything(
    trinity: RealTrinity, engine: ScriptedEngine, start_sidecar: StartSidecar
) -> None:
    """Trinity says 500 to it, as it does without an engine."""
    async with start_sidecar(trinity, runs={"concurrency": 4}) as sidecar:
        engine.ways.extend(["empty", "no_ids"])
        await sidecar.group("once", ready=2)
        for number in range(6):
            await sidecar.planned(f"always-{number}", "[empty]")
        await sidecar.planned("as-ever")

        async def scored() -> bool:
            assert (await sidecar.status())["explorer"]["breaker"] == "closed"
            return [run["state"] for run in await sidecar.runs("as-ever")] == ["scored"] * 2

        await until(scored, 20)
        for number in range(6):
            await sidecar.ended(f"always-{number}", ["dropped"])
        assert "3 attempts" in (await sidecar.runs("always-0"))[0]["reason"]
        assert (await sidecar.commit())["experiences"] == 4


@pytest.mark.slow
async def test_a_prompt_that_the_engine_itself_fails_on_holds_up_the_others_for_seconds(
    trinity: RealTrinity, start_sidecar: StartSidecar
) -> None:
    async with start_sidecar(trinity, runs={"concurrency": 4}) as sidecar:
        for number in range(4):
            await sidecar.planned(f"always-{number}", "[fail]")

        async def breaker_opened() -> bool:
            return (await sidecar.status())["explorer"]["breaker"] != "closed"

        await until(breaker_opened)
        await sidecar.group("as-ever", ready=2)


@pytest.mark.slow
async def test_a_chat_that_outlasts_trinitys_patience_is_sent_again(
    engine: ScriptedEngine, start_trinity: StartTrinity, start_sidecar: StartSidecar
) -> None:
    async with serving(engine.app()) as engine_url:
        trinity = await start_trinity(engine_url, sync_timeout=1)
        async with start_sidecar(trinity) as sidecar:
            engine.hold.clear()
            await sidecar.planned("t")
            await until(lambda: sidecar.tried(), 30)
            engine.hold.set()
            await sidecar.settled("t")
            await sidecar.commit()
            assert sorted((row.task_id, row.run_id) for row in trinity.trained()) == [("t.0", 0), ("t.0", 1)]
        await trinity.kill()


@pytest.mark.slow
async def test_a_chat_that_the_sidecar_gave_up_leaves_no_experience_behind(
    trinity: RealTrinity, engine: ScriptedEngine, start_sidecar: StartSidecar
) -> None:
    """Trinity records its answer, when it comes: nobody feeds it back, so nobody trains on it."""
    async with start_sidecar(trinity, runs={"timeout": "500ms", "max_attempts": 9}) as sidecar:
        engine.hold.clear()
        await sidecar.planned("t")
        await until(lambda: sidecar.retried(), 30)
        engine.hold.set()
        await until(lambda: sidecar.ready(2), 30)
        await sidecar.commit()
        assert sorted(row.run_id for row in trinity.trained()) == [0, 1]
        await until(lambda: len(trinity.history()) > 2)


@pytest.mark.slow
async def test_the_first_answers_of_a_new_explorer_are_not_recorded_at_once(
    trinity: RealTrinity, engine: ScriptedEngine, start_sidecar: StartSidecar
) -> None:
    """Of a hundred at once, on a busy disk, each but a few got a 500 (`no such table: proxy_history_blob`), and so did
    all that came later."""
    async with start_sidecar(trinity, runs={"concurrency": 8, "repeat_time": 8}) as sidecar:
        engine.hold.clear()
        await sidecar.planned("first")
        await until(lambda: engine.chats, 30)
        await sidecar.planned("second")
        assert len(engine.chats) == 1
        engine.hold.set()
        await until(lambda: sidecar.ready(16), 30)


@pytest.mark.slow
async def test_more_runs_at_once_than_trinity_has_connections(
    trinity: RealTrinity, engine: ScriptedEngine, start_sidecar: StartSidecar
) -> None:
    async with start_sidecar(trinity, runs={"concurrency": 120, "repeat_time": 120}) as sidecar:
        engine.pause_after(1)
        await sidecar.planned("t")
        await until(lambda: engine.busiest == 100, 30, "Trinity's limit")
        engine.hold.set()
        await until(lambda: sidecar.ready(120), 60)
        assert (await sidecar.commit())["experiences"] == 120
        assert sorted(row.run_id for row in trinity.trained()) == list(range(120))


async def test_a_model_with_another_name_after_a_restart(
    trinity: RealTrinity, engine: ScriptedEngine, start_sidecar: StartSidecar
) -> None:
    """Trinity keeps the list of models as long as it lives, and the sidecar the name."""
    async with start_sidecar(trinity) as sidecar:
        await sidecar.group("first", ready=2)
        engine.model = "renamed"
        await trinity.restart()
        await sidecar.planned("second")
        await sidecar.settled("second")
        assert await sidecar.group_states("second") == ["ready"]
        assert engine.chats[-1]["model"] == "renamed"
