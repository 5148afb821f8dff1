"""A store that an earlier version wrote, opened by this one: nothing that it holds is lost.

`stores_of_before/NNNN.sql` is the dump of a SQLite store at that revision of the schema, written by the program of
then while it ran: calls, runs, a delivered commit, a group that is ready, feedback, a mark and an answer of the facade.
From 0017 on there is an agent replay too, which is to be scored.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from loops import Loop, RunLoop
from serving import until
from stores import stored_rows

DUMPS = sorted((Path(__file__).parent / "stores_of_before").glob("*.sql"))


@pytest.fixture(params=DUMPS, ids=lambda dump: dump.stem)
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    path = tmp_path / "slipstream.db"
    with contextlib.closing(sqlite3.connect(path)) as store:
        store.executescript(request.param.read_text(encoding="utf-8"))
        _bring_to_the_present(store)
    return f"sqlite+aiosqlite:///{path}"


def _bring_to_the_present(store: sqlite3.Connection) -> None:
    """Move each time in the store, so that the newest call was made now: what waits does not wait for ever."""
    [age] = store.execute("SELECT unixepoch() - max(started_at) FROM calls").fetchone()
    tables = [name for (name,) in store.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    for table in tables:
        for _, column, kind, *_ in store.execute(f"PRAGMA table_info({table})").fetchall():
            if kind == "DOUBLE":
                times = f"{column} > unixepoch('2026-01-01')"  # the other numbers are rewards and durations
                store.execute(f"UPDATE {table} SET {column} = {column} + ? WHERE {times}", (age,))
    store.commit()


@pytest.mark.sampled(1)
async def test_a_store_of_before_opens_with_all_that_it_holds(run_loop: RunLoop) -> None:
    async with run_loop() as loop:
        status = await loop.status()
        assert status["tasks"] == {"complete": 6}
        assert status["feedback"] == {"matched": 2, "waiting": 1}
        assert status["facade"]["answers"] == {"whole": 1, "not_whole": 0}
        assert status["experiences_delivered"] == 10
        tasks = (await loop.client.get("/tasks")).json()["tasks"]
        assert Counter(task["session_id"] == "session-a" for task in tasks) == {True: 3, False: 3}

        task = await loop.task("task-1")
        assert task is not None
        assert task["conversation"] == [{"role": "user", "content": "question 1"}]
        [group] = task["groups"]
        assert (group["state"], group["commit"]) == ("delivered", 1)
        assert [run["reward"] for run in group["runs"]] == [0.5, 0.5]
        liked = (await loop.client.get("/calls/prod-3")).json()
        assert liked["task_id"] in {each["task_id"] for each in tasks}

        # A conversation of then goes on: what was stored whole reads as it did, and so does what comes now.
        said = await _asked(loop, "prod-4")
        assert [message["role"] for message in said] == ["user", "assistant", "user"]
        for more in (1, 2):
            said = [*said, {"role": "user", "content": f"more {more}"}]
            answer = await loop.chat(said)
            await until(lambda: _is_newest(loop, answer["id"], said))  # noqa: B023 - it is called here

        # What waited then goes on: feedback finds its task, and the group that was ready is trained on.
        await loop.chat("at last", headers={"x-slipstream-task-id": "not-yet"})
        await until(lambda: _all_matched(loop), 20)
        await until(lambda: _delivered(loop, "task-open"), 20)


@pytest.mark.parametrize("store_url", DUMPS[-1:], ids=lambda dump: dump.stem, indirect=True)
async def test_the_policys_calls_of_before_read_as_they_did_and_are_scored(run_loop: RunLoop, store_url: str) -> None:
    async with run_loop() as loop:
        shadow = await stored_rows(store_url, "SELECT msg_id FROM runs WHERE group_id = 'task-1.0'")
        for (msg_id,) in shadow:
            request = (await loop.client.get(f"/calls/{msg_id}")).json()["request"]
            assert request == {
                "messages": [{"role": "user", "content": "question 1"}],
                "model": "/models/policy", "n": 1, "stream": False,
            }  # fmt: skip
        made = [msg_id for (msg_id,) in await stored_rows(store_url, "SELECT msg_id FROM run_calls ORDER BY id")]
        asked = [await _asked(loop, msg_id) for msg_id in made]
        assert [len(messages) for messages in asked] == [2, 4, 6, 8]
        assert all(later[: len(messages)] == messages for messages, later in pairwise(asked))

        liked = {"msg_id": made[0], "thumbs": "up"}
        assert (await loop.client.post("/feedback", json=liked)).status_code == 202
        await until(lambda: _has_reward(loop, "task-2"))
        assert (await loop.client.delete("/data", params={"task_id": "task-2"})).status_code == 200
        assert await stored_rows(store_url, "SELECT id FROM run_calls") == []


async def _asked(loop: Loop, msg_id: str) -> Any:
    """The messages of the newest call whose answer has this id: the production model counts anew."""
    return (await loop.client.get(f"/calls/{msg_id}")).json()["request"]["messages"]


async def _is_newest(loop: Loop, msg_id: str, messages: Any) -> bool:
    return bool(await _asked(loop, msg_id) == messages)


async def _all_matched(loop: Loop) -> bool:
    return (await loop.status())["feedback"] == {"matched": 3}


async def _has_reward(loop: Loop, task_id: str) -> bool:
    """Return whether the first run of the task's last group has the reward of a thumb up."""
    task = await loop.task(task_id)
    assert task is not None
    return bool(task["groups"][-1]["runs"][0]["reward"] == 1.0)


async def _delivered(loop: Loop, task_id: str) -> bool:
    """Ask for a commit, and look whether the task's last group is in one by now."""
    await loop.commit()
    task = await loop.task(task_id)
    assert task is not None
    return bool(task["groups"][-1]["state"] == "delivered")
