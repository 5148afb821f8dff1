"""The way of a request, from the agent's call to the delivered experience."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from loops import Loop, RunLoop
from replaying import open_runs
from scripted import ScriptedExplorer
from serving import until
from sqlalchemy.exc import DataError, OperationalError
from stores import ON_BOTH_STORES
from structlog.testing import capture_logs

from slipstream.capture.writer import CaptureWriter
from slipstream.store import runs, sqlite


@ON_BOTH_STORES
async def test_a_call_becomes_a_delivered_experience(run_loop: RunLoop) -> None:
    async with run_loop(runs={"repeat_time": 3}) as loop:
        answer = await loop.chat("what is it?", {"x-slipstream-task-id": "t1"}, metadata={"tenant": "7"}, stream=False)
        assert answer["choices"][0]["message"]["content"] == "echo: what is it?"

        await until(lambda: loop.ready(3))
        counts = await loop.commit()
        assert (counts["groups"], counts["experiences"]) == (1, 3)

        [committed] = loop.explorer.committed
        assert sorted(e["run_id"] for e in committed) == [0, 1, 2]
        assert {e["task_id"] for e in committed} == {"t1.0"}
        assert {e["reward"] for e in committed} == {0.5}
        sent = loop.explorer.chats[0]
        assert sent == {
            "model": "/models/policy",
            "messages": [{"role": "user", "content": "what is it?"}],
            "n": 1,
            "stream": False,
        }, "the policy's name, no stream, and nothing that is production's own"


@ON_BOTH_STORES
async def test_each_call_of_a_task_is_a_group_of_its_own(run_loop: RunLoop) -> None:
    async with run_loop(runs={"repeat_time": 2}) as loop:
        task_id = await _tool_task(loop, "please use the tool")
        assert {e["task_id"] for e in loop.explorer.committed[0]} == {f"{task_id}.0", f"{task_id}.1"}


async def test_runs_are_scored_again_when_their_task_goes_on(run_loop: RunLoop) -> None:
    headers = {"x-slipstream-task-id": "t", "x-slipstream-metadata": '{"reference": "policy"}'}
    async with run_loop(rewards={"calculators": [{"contains": {}}]}) as loop:
        await loop.chat("one", headers)
        await until(lambda: loop.ready(1))
        await loop.chat("two", headers)

        async def scored_again() -> bool:
            return (await loop.status())["groups"] == {"dropped": 1, "ready": 1}

        await until(scored_again)
        await loop.commit()
        assert [e["task_id"] for e in loop.explorer.trained] == ["t.1"], "the reference is that of the last answer"


async def test_a_streamed_call_is_captured_whole(run_loop: RunLoop) -> None:
    async with run_loop() as loop:
        body = {"model": "prod", "messages": [{"role": "user", "content": "a b c"}], "stream": True}
        response = await loop.client.post(
            "/v1/chat/completions", json=body, headers={"x-slipstream-task-id": "streamed"}
        )
        assert response.text.endswith("data: [DONE]\n\n")
        task = await until(lambda: loop.task("streamed"))
        assert task["calls"][0]["msg_id"].startswith("prod-")
        await until(lambda: loop.ready(1))
        assert loop.explorer.chats[0]["stream"] is False


async def test_the_explorer_never_sees_the_callers_secrets(run_loop: RunLoop) -> None:
    async with run_loop() as loop:
        secret = "sk-proj-abcdefghijklmnopqrstuvwxyz0123456789"
        await loop.chat(f"my key is {secret}", {"authorization": f"Bearer {secret}", "x-slipstream-task-id": "t"})
        await until(lambda: loop.ready(1))
        assert secret not in str(loop.explorer.headers) + str(loop.explorer.chats)
        assert "[redacted:api_key]" in loop.explorer.chats[0]["messages"][0]["content"]


async def test_nothing_of_the_caller_changes_how_answers_for_training_are_sampled(run_loop: RunLoop) -> None:
    """With its seed all runs of a group would be one answer; `logit_bias` has ids of production's tokenizer; with the
    others the Explorer records logprobs that the Trainer does not compute."""
    own = {"seed": 42, "logit_bias": {"50256": -100}, "top_p": 0.9, "presence_penalty": 1, "frequency_penalty": 0.5}
    async with run_loop(runs={"repeat_time": 2}) as loop:
        await loop.chat("hello", max_tokens=9, **own)
        await until(lambda: loop.ready(2))
        assert [asked["max_tokens"] for asked in loop.explorer.chats] == [9, 9]
        await open_runs(loop, "again", 1)
        asked = await loop.client.post("/runs/again/0/v1/chat/completions", json={**loop.explorer.chats[0], **own})
        assert asked.status_code == 200, asked.text
        assert [own.keys() & chat.keys() for chat in loop.explorer.chats] == [set()] * 3


async def test_opted_out_calls_are_not_stored(run_loop: RunLoop) -> None:
    async with run_loop() as loop:
        await loop.chat("one", {"x-slipstream-select": "never"})
        await loop.chat("two", store=False)
        await loop.chat("three", {"x-slipstream-task-id": "kept"})
        await until(lambda: loop.task("kept"))
        assert (await loop.status())["tasks"] == {"complete": 1}


@ON_BOTH_STORES
async def test_an_idle_task_is_complete(run_loop: RunLoop) -> None:
    async with run_loop(capture={"task_idle": "100ms"}) as loop:
        await loop.chat("use the tool and never come back", {"x-slipstream-task-id": "idle"})
        await until(lambda: loop.ready(1))
        task = await loop.task("idle")
        assert task is not None
        assert task["state"] == "complete"


@pytest.mark.slow
@ON_BOTH_STORES
async def test_status_tells_why_nothing_is_selected(run_loop: RunLoop) -> None:
    async with run_loop(selection={"explicit_mark": {}}) as loop:
        await loop.chat("one", {"x-slipstream-task-id": "t"})

        async def decided() -> Any:
            return (await loop.status())["selection"]["not_selected"].get("no_mark")

        assert await until(decided) == 1

        async def counted() -> bool:
            line = 'slipstream_selection_decisions_total{reason="no_mark",selected="false"} 1.0'
            return line in (await loop.client.get("/metrics")).text

        await until(counted)


@pytest.mark.slow
@ON_BOTH_STORES
async def test_runs_that_do_not_fit_the_queue_are_dropped_and_counted(run_loop: RunLoop) -> None:
    async with run_loop(runs={"queue": 2, "repeat_time": 2, "concurrency": 1}) as loop:
        loop.explorer.hold.clear()
        await loop.chat("one", {"x-slipstream-task-id": "fits"})
        await until(lambda: loop.explorer.chats)
        await loop.chat("two", {"x-slipstream-task-id": "too-much"})

        async def dropped() -> bool:
            return 'slipstream_dropped_total{cause="runs_queue_full"} 1.0' in (await loop.client.get("/metrics")).text

        await until(dropped)
        loop.explorer.hold.set()
        await until(lambda: loop.ready(2))
        assert len(loop.explorer.chats) == 2


@pytest.mark.slow
async def test_a_busy_explorer_is_asked_again_and_a_refusal_is_not(run_loop: RunLoop) -> None:
    async with run_loop(runs={"max_attempts": 3}) as loop:
        loop.explorer.faults["/v1/chat/completions"] = [429, 500]
        await loop.chat("patience", {"x-slipstream-task-id": "busy"})
        await until(lambda: loop.ready(1))
        assert len(loop.explorer.chats) == 3

        loop.explorer.faults["/v1/chat/completions"] = [400]
        await loop.chat("too long", {"x-slipstream-task-id": "refused"})

        async def failed() -> Any:
            return (await loop.status())["failed_runs"]

        [failure] = await until(failed)
        assert "400" in failure["reason"]
        assert len(loop.explorer.chats) == 4, "a refusal is final"


async def test_the_commit_happens_by_size_by_timer_and_at_shutdown(run_loop: RunLoop) -> None:
    async with run_loop(commit={"interval": "1h", "max_pending": 2}) as loop:
        await asyncio.gather(*(loop.chat(f"{i}", {"x-slipstream-task-id": f"size-{i}"}) for i in range(2)))
        await until(lambda: loop.explorer.committed)
        assert len(loop.explorer.committed[0]) == 2
    async with run_loop(commit={"interval": "200ms", "min_experiences": 3}) as loop:
        for i in range(3):
            await loop.chat(f"{i}", {"x-slipstream-task-id": f"timer-{i}"})
        await until(lambda: loop.explorer.committed)
        assert len(loop.explorer.committed[0]) == 3, "not before there are min_experiences"
    async with run_loop() as loop:
        await loop.chat("last", {"x-slipstream-task-id": "last"})
        await until(lambda: loop.explorer.chats)
    assert len(loop.explorer.committed[0]) == 1
    async with run_loop(commit={"interval": "1h", "on_shutdown": False}) as loop:
        await loop.chat("left", {"x-slipstream-task-id": "left"})
        await until(lambda: loop.ready(1))
    assert loop.explorer.committed == []


async def test_what_is_being_captured_at_the_end_is_stored(run_loop: RunLoop, monkeypatch: pytest.MonkeyPatch) -> None:
    keep, keeping = CaptureWriter._pack, threading.Event()

    def slowly(self: CaptureWriter, batch: Any) -> Any:
        keeping.set()
        time.sleep(0.3)
        return keep(self, batch)

    with monkeypatch.context() as slow:
        slow.setattr(CaptureWriter, "_pack", slowly)
        async with run_loop() as loop:
            await loop.chat("the last words", {"x-slipstream-task-id": "last"})
            await until(keeping.is_set)
    async with run_loop() as loop:
        assert await loop.task("last") is not None


async def test_a_store_that_takes_no_writes_costs_production_nothing_and_is_caught_up_with(
    run_loop: RunLoop, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(sqlite, "BUSY_TIMEOUT_MS", 50)
    async with run_loop() as loop:
        await loop.chat("before", {"x-slipstream-task-id": "before"})
        await until(lambda: loop.ready(1))
        with sqlite3.connect(tmp_path / "slipstream.db", isolation_level=None) as other:
            other.execute("BEGIN IMMEDIATE")
            for path, body in (
                ("/feedback", {"task_id": "before", "thumbs": "up"}),
                ("/marks", {"task_id": "before"}),
                ("/commit", {}),
            ):
                response = await loop.client.post(path, json=body)
                assert (response.status_code, response.json()["error"]["code"]) == (503, "store_failed"), path
                assert response.headers["retry-after"]
            await loop.chat("meanwhile", {"x-slipstream-task-id": "meanwhile"})
            for path in ("/status", "/metrics", "/healthz", "/readyz", "/tasks/before"):
                assert (await loop.client.get(path)).status_code == 200, path
            other.execute("ROLLBACK")
        other.close()
        await until(lambda: loop.ready(2))
        assert (await loop.commit())["experiences"] == 2


async def test_metrics_are_told_though_the_store_does_not_answer(
    run_loop: RunLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(session: Any) -> int:
        raise OperationalError("", {}, Exception("gone"))

    async with run_loop() as loop:

        async def found() -> bool:
            return bool((await loop.status())["explorer"]["up"])

        await until(found)
        with monkeypatch.context() as broken:
            broken.setattr(runs, "waiting", away)
            response = await loop.client.get("/metrics")
        assert response.status_code == 200
        assert "slipstream_explorer_up 1.0" in response.text


@pytest.mark.slow
@ON_BOTH_STORES
async def test_answers_wait_for_a_store_that_takes_no_writes(
    run_loop: RunLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer, failures = runs.answer, iter([OperationalError("", {}, Exception("disk full"))])

    async def fails_once(session: Any, answers: Any, now: float) -> int:
        for error in failures if answers else ():
            raise error
        return await answer(session, answers, now)

    monkeypatch.setattr(runs, "answer", fails_once)
    async with run_loop() as loop:
        await loop.chat("hello")
        await until(lambda: loop.ready(1))
        assert len(loop.explorer.chats) == 1


@pytest.mark.slow
@ON_BOTH_STORES
async def test_a_run_whose_answer_the_store_does_not_take_is_sent_again_alone(
    run_loop: RunLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer, refused = runs.answer, set[str]()

    async def refuses_one(session: Any, answers: Any, now: float) -> int:
        refused.update([answers[0].msg_id] if answers and not refused else [])
        if refused & {one.msg_id for one in answers}:
            raise DataError("", {}, Exception("what no column holds"))
        return await answer(session, answers, now)

    monkeypatch.setattr(runs, "answer", refuses_one)
    async with run_loop(runs={"repeat_time": 4}) as loop:
        await loop.chat("hello")
        await until(lambda: loop.ready(4))
        assert len(loop.explorer.chats) == 5


@ON_BOTH_STORES
async def test_a_new_version_is_recorded_with_what_it_can_have_been_trained_on(run_loop: RunLoop) -> None:
    async with run_loop() as loop:
        await loop.chat("one")
        await until(lambda: loop.ready(1))
        counts = await loop.commit()
        loop.explorer.version = 4

        async def policy() -> Any:
            policy = (await loop.status())["policy"]
            return policy["version"] == 4 and policy

        found = await until(policy)
        assert found["trained_on_commits_up_to"] == counts["commit"]


@pytest.mark.slow
@ON_BOTH_STORES
async def test_a_rollback_is_told_until_training_has_passed_it(run_loop: RunLoop) -> None:
    """Also one that was made while the sidecar was stopped, as `slipstream up` stops all."""
    explorer = ScriptedExplorer()

    async def policy(loop: Loop, version: int) -> Any:
        async def served() -> Any:
            policy = (await loop.status())["policy"]
            return policy["version"] == version and policy

        found = await until(served)
        return found["rolled_back_from"], found["trained_on_commits_up_to"]

    async def committed(loop: Loop, prompt: str) -> int:
        await loop.chat(prompt)
        await until(lambda: loop.ready(1))
        number: int = (await loop.commit())["commit"]
        return number

    async with run_loop(explorer) as loop:
        first = await committed(loop, "one")
        explorer.version = 4
        assert await policy(loop, 4) == (None, first)
        second = await committed(loop, "two")
        explorer.version = 5
        assert await policy(loop, 5) == (None, second)
        explorer.version = 6
        assert await policy(loop, 6) == (None, second)
    explorer.version = 4
    with capture_logs() as logs:
        async with run_loop(explorer) as loop:
            assert await policy(loop, 4) == (6, first)
            third = await committed(loop, "three")
            explorer.version = 5
            assert await policy(loop, 5) == (6, third), "trained anew, on what was committed since"
            explorer.version = 7
            assert await policy(loop, 7) == (None, third)
    told = [line for line in logs if line["event"] == "policy_rolled_back"]
    assert [(line["version"], line["instead_of"], line["log_level"]) for line in told] == [(4, 6, "warning")]


@pytest.mark.slow
@ON_BOTH_STORES
async def test_retention_deletes_what_is_due(run_loop: RunLoop) -> None:
    async with run_loop() as loop:
        await loop.chat("soon gone", {"x-slipstream-task-id": "old"})
        await until(lambda: loop.task("old"))
    async with run_loop(capture={"retention": "300ms"}) as loop:

        async def gone() -> bool:
            return await loop.task("old") is None and (await loop.status())["runs"] == {}

        await until(gone)


async def _tool_task(loop: Loop, request: str) -> str:
    """One task of two calls, a tool call and then the answer, run twice each and delivered. Returns its id."""
    tools = [{"type": "function", "function": {"name": "look_up", "parameters": {"type": "object"}}}]
    messages: list[dict[str, Any]] = [{"role": "user", "content": request}]
    first = await loop.chat(messages, tools=tools)
    message = first["choices"][0]["message"]
    messages += [message, {"role": "tool", "tool_call_id": message["tool_calls"][0]["id"], "content": "42"}]
    last = await loop.chat(messages, tools=tools)
    assert last["choices"][0]["message"]["content"] == "echo: 42"
    await until(lambda: loop.ready(4))
    await loop.commit()
    [task_id] = {experience["task_id"].rpartition(".")[0] for experience in loop.explorer.committed[-1]}
    return task_id
