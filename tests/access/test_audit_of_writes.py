"""The audit: each write names its key, in its own transaction, and what is written there stays."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from scripted import ScriptedExplorer
from serving import until
from shared_by_tenants import RunShared, Shared
from sqlalchemy import text, update
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection, create_async_engine
from stores import ON_BOTH_STORES

from slipstream.capture.retention import Retention
from slipstream.metrics import Metrics
from slipstream.store import audit
from slipstream.store.audit import Action, Author, Wanted, Write
from slipstream.store.database import Database
from slipstream.store.states import TaskState
from slipstream.store.tables.capture import TaskRow

DAY = 86400.0


async def entries(shared: Shared, key: str = "admin", **filters: Any) -> list[dict[str, Any]]:
    """All that this key sees, the newest first."""
    answer = await shared.ask(key, "GET", "/audit", params=filters)
    assert answer.status_code == 200, answer.text
    found: list[dict[str, Any]] = answer.json()["entries"]
    return found


async def written(shared: Shared) -> dict[str, Any]:
    """One write of each kind; returns the id of what was written, by action."""
    answer = (await shared.chat("agent-a", "hello", task_id="order-1", session_id="chat-7"))["id"]
    feedback = await shared.ask("backend-a", "POST", "/feedback", json={"msg_id": answer, "thumbs": "up"})
    mark = await shared.ask("agent-b", "POST", "/marks", json={"task_id": "order-2"})
    await shared.ask("agent-a", "POST", "/runs/replayed", json={"runs": 1})
    body = {"messages": [{"role": "user", "content": "hello"}]}
    await shared.ask("agent-a", "POST", "/runs/replayed/0/v1/chat/completions", json=body)
    ended = await shared.ask("backend-a", "POST", "/runs/replayed/0/finish", json={"reward": 1.0})
    assert ended.status_code == 200, ended.text
    chat = await shared.ask("admin", "POST", "/explorer/v1/chat/completions", json=body)
    reward = {"msg_ids": [chat.json()["id"]], "reward": 1.0, "group_size": 1}
    assert (await shared.ask("admin", "POST", "/explorer/feedback", json=reward)).status_code == 200

    async def committed() -> int | None:
        done = await shared.ask("admin-a", "POST", "/commit")
        commit: int | None = done.json()["commit"]
        return commit

    commit = await until(committed)
    await shared.ask("admin-a", "DELETE", "/data", params={"session_id": "chat-7"})
    return {
        "answer": answer,
        "chat": chat.json()["id"],
        "feedback": feedback.json()["id"],
        "mark": mark.json()["id"],
        "commit": commit,
    }


@ON_BOTH_STORES
async def test_each_write_names_its_key_and_a_tenant_sees_its_own(run_shared: RunShared) -> None:
    async with run_shared(ScriptedExplorer(), facade={"group_size": 1}) as shared:
        ids = await written(shared)
        found = await entries(shared)
        told = {(each["action"], each["key"], each["tenant"], each["written"], tuple(each["names"])) for each in found}
        assert told == {
            ("feedback", "backend-a", "acme", ids["feedback"], (ids["answer"],)),
            ("mark", "agent-b", "beta", ids["mark"], ("order-2",)),
            ("run_end", "backend-a", "acme", "0", ("replayed",)),
            ("facade_feedback", "admin", "default", None, (ids["chat"],)),
            ("commit", "admin-a", "acme", str(ids["commit"]), ()),
            ("erasure", "admin-a", "acme", None, ("chat-7",)),
        }
        assert [each["id"] for each in found] == sorted((each["id"] for each in found), reverse=True)
        assert {each["tenant"] for each in await entries(shared, "admin-b")} == {"beta"}
        assert {each["action"] for each in await entries(shared, key="admin", action="erasure")} == {"erasure"}
        assert (await shared.ask("agent-a", "GET", "/audit")).status_code == 403

        first = (await shared.ask("admin", "GET", "/audit", params={"limit": 4})).json()
        rest = (await shared.ask("admin", "GET", "/audit", params={"cursor": first["next"]})).json()
        assert first["entries"] + rest["entries"] == found
        assert rest["next"] is None
        of_key = await shared.ask("admin", "GET", "/audit", params={"key": "backend-a"})
        assert [each["action"] for each in of_key.json()["entries"]] == ["run_end", "feedback"]
        third = found[2]["at"]
        earlier, later = await entries(shared, until=third), await entries(shared, since=third)
        assert later + earlier == found
        assert found[2] in later


async def test_a_write_that_fails_leaves_no_entry_and_no_write_is_without_one(run_shared: RunShared) -> None:
    async with run_shared() as shared:
        refused = await shared.ask("backend-a", "POST", "/feedback", json={"msg_id": "m", "reward": 7.0})
        assert refused.status_code == 422
        lost = await shared.ask("admin", "POST", "/runs/never/0/finish", json={"reward": 1.0})
        assert lost.status_code == 404
        await shared.ask("admin", "POST", "/commit")
        assert await entries(shared) == [], "nothing was written, and there was nothing to deliver"


@ON_BOTH_STORES
async def test_what_is_set_apart_is_not_released_without_an_entry(run_shared: RunShared, store_url: str) -> None:
    async with run_shared() as shared:
        longest = "order-".ljust(64, "2")
        for name in ("order-1", longest):
            await shared.chat("agent-a", "hello", task_id=name)

        async def decided(name: str) -> bool:
            task = await shared.ask("admin-a", "GET", f"/tasks/{name}")
            return task.status_code == 200 and task.json()["decided"]

        for name in ("order-1", longest):
            await until(partial(decided, name))
        engine = create_async_engine(store_url)
        async with engine.begin() as connection:
            await connection.execute(update(TaskRow).values(state=TaskState.QUARANTINED, decided=False))
        await engine.dispose()

        async def release(key: str, action: str, **only: str) -> int:
            answer = await shared.ask(key, "POST", "/quarantine", json={"action": action, **only})
            assert answer.status_code == 200, answer.text
            changed: int = answer.json()["changed"]
            return changed

        assert await release("admin-b", "retry") == 0
        assert await entries(shared) == [], "there was nothing of this tenant"
        listed = (await shared.ask("admin-a", "GET", "/quarantine")).json()["quarantined"]
        [only] = [each["id"] for each in listed if each["task_id"] == longest]
        assert await release("admin-a", "drop", kind="task", id=only) == 1
        assert await release("admin-a", "drop") == 1
        assert await release("admin-a", "drop") == 0
        every, one = await entries(shared)
        for entry, named, name in ((every, None, "order-1"), (one, longest, longest)):
            assert (entry["action"], entry["key"], entry["tenant"]) == ("quarantine_drop", "admin-a", "acme")
            assert (entry["written"], entry["kind"], entry["names"]) == (named, "task_id", [name])


async def test_the_facades_own_key_has_a_name_too(run_shared: RunShared) -> None:
    async with run_shared(facade={"api_key": "trinity's"}) as shared:
        headers = {"authorization": "Bearer trinity's"}
        body = {"msg_ids": ["unknown"], "reward": 1.0}
        answer = await shared.loop.client.post("/explorer/feedback", json=body, headers=headers)
        assert answer.status_code == 200
        [entry] = await entries(shared)
        assert entry["key"] == "(facade)"


@pytest.mark.slow
async def test_the_command_shows_it(run_shared: RunShared) -> None:
    async with run_shared() as shared:
        for number in range(3):
            await shared.ask("backend-a", "POST", "/marks", json={"task_id": f"order-{number}"})

        async def shown(*arguments: str) -> tuple[int | None, str]:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "slipstream", "audit", "--url", shared.loop.url, *arguments),
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
                env={**os.environ, "COLUMNS": "200", "SLIPSTREAM_API_KEY": shared.keys["admin"]},
            )
            out, _ = await process.communicate()
            return process.returncode, out.decode()

        code, out = await shown("--json", "--limit", "2", "--by", "backend-a")
        assert (code, [json.loads(line)["names"] for line in out.splitlines()]) == (0, [["order-2"], ["order-1"]])
        code, out = await shown("--action", "mark")
        assert code == 0
        assert all(f"task_id: order-{number}" in out for number in range(3))
        code, out = await shown("--action", "nothing")
        assert code == 2
        assert "action" in out


@asynccontextmanager
async def beside(store_url: str) -> AsyncIterator[AsyncConnection]:
    """A connection of somebody who is not the sidecar."""
    engine = create_async_engine(store_url)
    try:
        async with engine.begin() as connection:
            yield connection
    finally:
        await engine.dispose()


async def noted(database: Database, at: float) -> None:
    async with database.write() as session:
        await audit.note(session, Write(Action.MARK, "m", "task_id", ["t"]), Author("k", "default"), at)


async def times(database: Database) -> list[float]:
    async with database.read() as session:
        found, _ = await audit.page(session, Wanted(), 100)
    return [each["at"] for each in found]


@ON_BOTH_STORES
@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE audit SET key = 'another'",
        "DELETE FROM audit",
        "TRUNCATE audit",
        "UPDATE audit_prunings SET before = 1e12",
        "DELETE FROM audit_prunings",
    ],
)
async def test_the_database_refuses_to_change_an_entry(statement: str, database: Database, store_url: str) -> None:
    now = time.time()
    for at in (now - 10 * DAY, now):
        await noted(database, at)
    async with database.write() as session:
        assert await audit.prune(session, now - 5 * DAY, now, 100) == 1
    with pytest.raises(DBAPIError, match=r"only grows|syntax error"):  # SQLite has no TRUNCATE
        async with beside(store_url) as connection:
            await connection.execute(text(statement))
    assert await times(database) == [now]


@ON_BOTH_STORES
async def test_retention_deletes_whole_days_and_leaves_a_row_that_says_so(database: Database, store_url: str) -> None:
    midnight = 20_000 * DAY
    at = [midnight - 1, midnight, midnight + 100]
    for each in at:
        await noted(database, each)
    now = midnight + 400 * DAY + 3600
    retention = Retention(
        database,
        Metrics(CollectorRegistry()),
        retention=DAY,
        audit_retention=400 * DAY,
        clock=lambda: now,
    )
    for _ in range(2):
        await retention.step()
    assert await times(database) == at[:0:-1], "what is younger than a year stays, and the day that it is of"
    async with beside(store_url) as connection:
        assert (await connection.execute(text("SELECT before, at FROM audit_prunings"))).all() == [(midnight, now)]


@ON_BOTH_STORES
async def test_an_entry_is_stored_with_its_write_or_not_at_all(database: Database) -> None:
    async def cut_off() -> None:
        async with database.write() as session:
            await audit.note(session, Write(Action.MARK, "m"), Author("k", None), 1.0)
            raise RuntimeError("amid")

    with pytest.raises(RuntimeError, match="amid"):
        await cut_off()
    assert await times(database) == []


async def test_a_long_list_of_names_is_kept_in_part_and_counted(database: Database) -> None:
    async with database.write() as session:
        many = [f"m{number}" for number in range(1000)]
        await audit.note(session, Write(Action.FEEDBACK, "f", "msg_id", many), Author(None, None), 1.0)
    async with database.read() as session:
        [entry], after = await audit.page(session, Wanted(), 1)
    assert (entry["names"], entry["named"], after) == (many[:20], 1000, None)
