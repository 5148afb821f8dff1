"""The store reads by index: what the stages and routes ask costs the same however much lies behind."""

from __future__ import annotations

import asyncio
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import facade_client
import pytest
import replaying
from filled import fill
from loops import Loop, RunLoop
from serving import until
from sqlalchemy import Engine, event

from slipstream.store.database import Database

_CALLS = 40_000
_STEPS, _STEPS_EACH = 45_000, 500
"""Of SQLite's machine, in one statement, and more for each row that it names: the newest thousand rows take some thirty
thousand, a task that retention deletes some hundred. To go through a table of this store takes more."""
_SMALL = {
    "alembic_version", "versions", "sidecars", "store_keys", "quarantined_exchanges", "sqlite_sequence", "rollouts",
    "experiments", "evaluations", "preference_pairs", "preference_offers",
}  # fmt: skip
"""A version comes with a training step, a rollout, an experiment or an evaluation with a version, a sidecar or a key
with a start, an exchange is set apart after three deaths of the training side, a pair is judged by a person; none comes
with a call. SQLite's own table of sequences has a row for each table."""


class Asked:
    """The statements that were executed, each with the most steps that it took beyond those for the rows it names."""

    def __init__(self) -> None:
        self.steps: dict[str, int] = {}
        self.parameters: dict[str, Any] = {}
        self._counted: dict[int, int] = {}

    def connect(self, connection: Any, record: object) -> None:
        key = id(connection)
        self._counted[key] = 0

        def count() -> None:
            self._counted[key] += 100

        connection.run_async(lambda driver: driver.set_progress_handler(count, 100))

    def before(self, connection: Any, cursor: Any, statement: str, parameters: Any, context: Any, many: bool) -> None:
        self._counted[id(connection.connection.dbapi_connection)] = 0
        self.parameters[statement] = parameters[0] if many else parameters

    def after(self, connection: Any, cursor: Any, statement: str, parameters: Any, context: Any, many: bool) -> None:
        took = self._counted[id(connection.connection.dbapi_connection)]
        took -= sum(map(len, parameters)) * _STEPS_EACH if many else len(parameters) * _STEPS_EACH
        self.steps[statement] = max(took, self.steps.get(statement, 0))


@pytest.fixture
def asked() -> Iterator[Asked]:
    asked = Asked()
    listeners = {"connect": asked.connect, "before_cursor_execute": asked.before, "after_cursor_execute": asked.after}
    for name, listener in listeners.items():
        event.listen(Engine, name, listener)
    yield asked
    for name, listener in listeners.items():
        event.remove(Engine, name, listener)


async def test_no_statement_goes_through_a_table(tmp_path: Path, run_loop: RunLoop, asked: Asked) -> None:
    path = tmp_path / "slipstream.db"
    database = Database(f"sqlite+aiosqlite:///{path}")
    await database.open()
    await database.close()
    fill(path, _CALLS, every=2)
    asked.steps.clear()  # what the migrations took
    async with run_loop(capture={"retention": "23h", "task_idle": "100ms"}, runs={"repeat_time": 2}) as loop:
        await _everything(loop, path)
    assert any(statement.startswith("INSERT INTO calls") for statement in asked.steps), "the loop ran elsewhere"
    assert {statement: steps for statement, steps in asked.steps.items() if steps > _STEPS} == {}
    assert _scans(path, asked) == []


async def _everything(loop: Loop, path: Path) -> None:
    """A task's way to its delivery, and each route over the store."""
    await loop.chat("use the tool and never come back", {"x-slipstream-task-id": "idle"})
    answer = await loop.chat("hello", {"x-slipstream-task-id": "t", "x-slipstream-session-id": "service"})
    task = await until(lambda: loop.task("t"))
    await until(lambda: loop.ready(4))
    policy = (await loop.task("t") or task)["groups"][0]["runs"][0]["msg_id"]
    for named in ({"msg_id": answer["id"]}, {"msg_id": policy}, {"task_id": "t"}, {"session_id": "service"},
                  {"msg_id": "never seen"}):  # fmt: skip
        posted = await loop.client.post("/feedback", json={**named, "thumbs": "up"})
        assert posted.status_code == 202, posted.text
        assert (await loop.client.get(f"/feedback/{posted.json()['id']}")).status_code == 200
    for named in ({"msg_id": answer["id"]}, {"task_id": "t"}, {"task_id": "never seen"}):
        assert (await loop.client.post("/marks", json=named)).status_code == 202
    await until(lambda: loop.ready(4))
    await _replays(loop, path)
    assert (await loop.commit())["experiences"] == 6
    queries = (
        "",
        "?label=vip",
        "?session_id=service",
        "?since=1&until=2",
        "?version=1&reward_below=1&dialect=chat",
        "?text=hello",
    )
    for about in (*queries, "/t", "/replayed"):
        assert (await loop.client.get(f"/tasks{about}")).status_code == 200
    for msg_id in (answer["id"], policy):
        assert (await loop.client.get(f"/calls/{msg_id}")).status_code == 200
    pair = (await loop.client.get("/preferences/next?annotator=ann")).json()["pair"]
    judged = {"pair_id": pair["pair_id"], "choice": "a", "annotator": "ann"}
    assert (await loop.client.post("/preferences", json=judged)).status_code == 200
    of_all = ("/metrics", "/readyz", "/preferences", "/preferences/export", "/events?seconds=0", "/learning")
    for path in (*of_all, "/learning/compare?a=0&b=0"):
        assert (await loop.client.get(path)).status_code == 200
    for task_id in ("f", None):
        await facade_client.run(loop, task_id)
    await facade_client.commit(loop)
    assert (await loop.client.get("/status")).status_code == 200


async def _replays(loop: Loop, path: Path) -> None:
    """An agent's way to a delivery, and one that nobody ends."""
    for task_id in ("replayed", "left alone"):
        for run in (await replaying.open_runs(loop, task_id, 2))["runs"]:
            async with replaying.sdk(loop, run) as client:
                msg_id = await replaying.ask(client)
            assert (await loop.client.post("/feedback", json={"msg_id": msg_id, "reward": 1})).status_code == 202
            if task_id == "replayed":
                await replaying.finish(loop, task_id, run["run_id"], **({"reward": 1} if run["run_id"] else {}))
        assert (await replaying.replay(loop, task_id))["task_id"] == task_id

    def nothing_is_heard_any_more() -> None:
        with closing(sqlite3.connect(path, timeout=60)) as store, store:
            store.execute("UPDATE runs SET due_at = 0 WHERE state = 'open'")

    await asyncio.to_thread(nothing_is_heard_any_more)

    async def given_up() -> bool:
        return bool((await replaying.replay(loop, "left alone"))["state"] == "dropped")

    await until(given_up)
    await until(lambda: loop.ready(6))


def _scans(path: Path, asked: Asked) -> list[tuple[str, str]]:
    """Plans that begin at a table's beginning. With a limit they may: how far they go is seen by their steps."""
    found = []
    with closing(sqlite3.connect(path)) as store:
        for statement in asked.steps:
            if re.match(r"SELECT|UPDATE|DELETE|WITH", statement) and " LIMIT " not in statement:
                plan = store.execute(f"EXPLAIN QUERY PLAN {statement}", asked.parameters[statement])
                found += [(detail, statement) for *_, detail in plan if _goes_through_a_table(store, detail)]
    return found


def _goes_through_a_table(store: sqlite3.Connection, detail: str) -> bool:
    scan = re.match(r"SCAN (\w+)(?: USING (?:COVERING )?INDEX (\w+))?", detail)
    if scan is None or scan[1] in _SMALL:
        return False
    kept = dict(store.execute("SELECT name, sql FROM sqlite_master"))
    partial = " WHERE " in (kept.get(scan[2]) or "")  # an index of what is under way alone
    return scan[1] in kept and not partial
