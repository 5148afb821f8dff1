"""Feedback and commit at a running sidecar."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from loops import Loop, RunLoop
from serving import until

import slipstream_client as slipstream
from slipstream_client.context import Context, Replay, entered
from slipstream_client.service import Committed

Ask = Callable[..., str]


@pytest.fixture
async def loop(run_loop: RunLoop) -> AsyncIterator[Loop]:
    async with run_loop(runs={"repeat_time": 2}) as loop:
        slipstream.configure(loop.url)
        yield loop


async def test_each_way_to_name_an_answer_finds_it(loop: Loop) -> None:
    answers = [
        await loop.chat(headers={"x-slipstream-task-id": f"order-{n}", "x-slipstream-session-id": f"customer-{n}"})
        for n in range(4)
    ]
    await until(lambda: loop.task("order-3"))

    slipstream.feedback(task_id="order-0", thumbs="up", source="user")
    slipstream.feedback(msg_id=answers[1]["id"], rating=2, comment="wo bleibt es? \ud83d" + "x" * 20_000)
    slipstream.feedback(session_id="customer-2", thumbs="down")
    slipstream.feedback(msg_ids=[answers[3]["id"]], reward=0.25)

    assert await asyncio.to_thread(slipstream.flush)
    assert slipstream.outbox_counts().sent == 4
    await until(lambda: _matched(loop, 4))


async def _matched(loop: Loop, count: int) -> bool:
    return bool((await loop.status())["feedback"].get("matched") == count)


async def test_the_policys_answer_gets_its_reward_and_a_commit_delivers_it(loop: Loop) -> None:
    await loop.chat(headers={"x-slipstream-task-id": "order-17"})
    await until(lambda: loop.ready(2))
    task = await loop.task("order-17")
    assert task is not None
    msg_ids = [run["msg_id"] for run in task["groups"][0]["runs"]]

    slipstream.feedback(msg_id=msg_ids[0], reward=1)
    slipstream.feedback(msg_id=msg_ids[1], reward=0.25)
    assert await asyncio.to_thread(slipstream.flush)
    await until(lambda: _rewards(loop, [1.0, 0.25]))
    delivered = await asyncio.to_thread(slipstream.commit)

    assert (delivered.groups, delivered.experiences) == (1, 2)
    assert sorted(one["reward"] for one in loop.explorer.committed[0]) == [0.25, 1.0]
    assert await slipstream.async_commit() == Committed(None, 0, 0, 0, 0)


async def _rewards(loop: Loop, rewards: list[float]) -> bool:
    task = await loop.task("order-17")
    assert task is not None
    return task["groups"][0]["state"] == "ready" and [run["reward"] for run in task["groups"][0]["runs"]] == rewards


async def test_what_the_sidecar_refuses_is_said_once_and_dropped(loop: Loop, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(3):
        slipstream.feedback(task_id="order-17", reward=2)
    slipstream.feedback(task_id="order-17", thumbs="up")
    assert await asyncio.to_thread(slipstream.flush)

    counts = slipstream.outbox_counts()
    assert (counts.refused, counts.sent, counts.waiting) == (3, 1, 0)
    [line] = [record for record in caplog.records if record.name == "slipstream_client"]
    assert line.levelno == logging.WARNING
    assert "422 reward: expected a number from 0 to 1, found 2 (said once)" in line.getMessage()


async def test_a_replay_says_nothing_of_productions_answers(loop: Loop) -> None:
    with entered(Context(replay=Replay("order-17", 0))):
        slipstream.feedback(task_id="order-17", thumbs="up")
        slipstream.mark_answer("a", task_id="order-17")
        with slipstream.mark("a", task_id="order-17"):
            assert slipstream.is_replay()
    counts = slipstream.outbox_counts()
    assert counts.waiting + counts.sent == 0


async def test_a_commit_says_what_is_wrong(loop: Loop) -> None:
    slipstream.configure("http://127.0.0.1:9")
    with pytest.raises(slipstream.SidecarAway, match="the sidecar at http://127\\.0\\.0\\.1:9 did not answer"):
        await slipstream.async_commit()
    slipstream.configure(f"{loop.url}/v2")
    with pytest.raises(slipstream.SidecarRefused, match="/v2/commit: 404") as refused:
        await asyncio.to_thread(slipstream.commit)
    assert refused.value.status == 404
    assert isinstance(refused.value, slipstream.SlipstreamError)


@pytest.mark.parametrize(
    ("fields", "error", "message"),
    [
        ({}, ValueError, "msg_id, msg_ids, task_id, session_id: give exactly one of them"),
        ({"task_id": "a", "msg_id": "b", "thumbs": "up"}, ValueError, "msg_id, msg_ids, task_id, session_id: give"),
        ({"task_id": "a"}, ValueError, "reward, rating, thumbs: give exactly one of them"),
        ({"task_id": "a", "thumbs": "up", "reward": 1}, ValueError, "reward, rating, thumbs: give exactly one"),
        ({"task_id": 1, "thumbs": "up"}, TypeError, "task_id: expected text"),
        ({"session_id": "", "thumbs": "up"}, ValueError, "session_id: expected 1 to 64 characters"),
        ({"msg_id": "a" * 257, "thumbs": "up"}, ValueError, "msg_id: expected 1 to 256 characters"),
        ({"msg_ids": "abc", "thumbs": "up"}, TypeError, "msg_ids: expected a list of text"),
        ({"msg_ids": [], "thumbs": "up"}, ValueError, "msg_ids: expected 1 to 1000 of them"),
        ({"msg_ids": ["a", 1], "thumbs": "up"}, TypeError, "msg_ids: expected text"),
        ({"task_id": "a", "thumbs": "Up"}, ValueError, "thumbs: expected 'up' or 'down', found 'Up'"),
        ({"task_id": "a", "rating": 6}, ValueError, "rating: expected an integer from 1 to 5, found 6"),
        ({"task_id": "a", "rating": 4.5}, TypeError, "rating: expected an integer"),
        ({"task_id": "a", "reward": "1"}, TypeError, "reward: expected a number"),
        ({"task_id": "a", "reward": True}, TypeError, "reward: expected a number"),
        ({"task_id": "a", "reward": float("nan")}, ValueError, "reward: expected a finite number"),
        ({"task_id": "a", "thumbs": "up", "source": ""}, ValueError, "source: expected 1 to 256 characters"),
        ({"task_id": "a", "thumbs": "up", "comment": 3}, TypeError, "comment: expected text"),
    ],
)
def test_what_cannot_be_feedback_is_refused_by_name(fields: dict[str, Any], error: Any, message: str) -> None:
    with pytest.raises(error, match=f"^{message}"):
        slipstream.feedback(**fields)
    assert slipstream.outbox_counts().waiting == 0
