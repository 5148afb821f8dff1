"""Pages of tasks: each task once, the newest first, and nothing beyond what was asked for."""

from __future__ import annotations

import base64
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from filled import fill
from sqlalchemy import event
from stores import ON_BOTH_STORES

from slipstream.dialects.form import Dialect
from slipstream.store.bodies import pack
from slipstream.store.database import Database
from slipstream.store.states import RunState
from slipstream.store.tables.capture import CallRow, TaskRow
from slipstream.store.tables.runs import GroupRow, RunRow
from slipstream.store.task_figures import FigureConditions
from slipstream.store.task_pages import BadCursor, Wanted, page
from slipstream.tenants import DEFAULT, qualified


def task(tenant: str, name: str, at: float, **fields: Any) -> TaskRow:
    session = qualified(tenant, fields.pop("session", "s"))
    given = {"state": "complete", "labels": [], "created_at": at, "updated_at": at} | fields
    return TaskRow(id=qualified(tenant, name), session_id=session, tenant=tenant, **given)


async def paged(database: Database, limit: int, **wanted: Any) -> list[list[tuple[str, str]]]:
    """All pages; of each task its tenant and its id."""
    pages, cursor = [], None
    while True:
        async with database.read() as session:
            found = await page(session, Wanted(**wanted), limit, cursor)
        pages.append([(task["tenant"], task["task_id"]) for task in found.tasks])
        if (cursor := found.next) is None:
            return pages


@ON_BOTH_STORES
async def test_each_task_is_on_one_page_though_many_have_the_same_time(database: Database) -> None:
    whose = ("acme", "Beta", DEFAULT)
    async with database.write() as session:
        # a batch of calls is stored at one time, and PostgreSQL orders capitals in its own way
        rows = [task(tenant, f"{case}{number}", at) for tenant in whose for at in (1.0, 2.5) for case in "aBc"
                for number in (int(at),)]  # fmt: skip
        session.add_all(rows)
    expected = sorted((row.tenant, row.id.rpartition("/")[2]) for row in rows)
    for limit in (1, 2, 5, 17, 18, 200):
        pages = await paged(database, limit)
        assert sorted(chain.from_iterable(pages)) == expected
        assert {len(some) for some in pages[:-1]} <= {limit}
        assert pages[-1] != []
        one = await paged(database, limit, tenant="acme")
        assert sorted(chain.from_iterable(one)) == [name for name in expected if name[0] == "acme"]
    (newest_first,) = await paged(database, 200)
    assert [name[-1] for _, name in newest_first] == ["2"] * 9 + ["1"] * 9


@ON_BOTH_STORES
async def test_each_filter_leaves_out_what_it_says(database: Database) -> None:
    async with database.write() as session:
        session.add_all(
            [
                task("acme", "a", 1.0, labels=["vip", "eu"], selected=True),
                task("acme", "b", 2.0, state="open", session="chat"),
                task("beta", "c", 3.0, labels=["vip"], session="chat"),
            ]
        )

    async def names(**wanted: Any) -> str:
        return "".join(name for some in await paged(database, 1, **wanted) for _, name in some)

    assert await names() == "cba"
    assert await names(tenant="acme") == "ba"
    assert await names(tenant="nobody") == ""
    assert await names(session_id="chat") == "cb"
    assert await names(session_id="chat", tenant="beta") == "c"
    assert await names(session_id="tenant=beta/chat", tenant="acme") == ""
    assert await names(state="open") == "b"
    assert await names(selected=True) == "a"
    assert await names(selected=False) == "cb"
    assert await names(label="vip") == "ca"
    assert await names(since=2.0) == "cb"
    assert await names(until=2.0) == "a"
    assert await names(since=1.5, until=2.5, state="open") == "b"


@ON_BOTH_STORES
async def test_figures_are_shown_and_filtered_by(database: Database) -> None:
    def call(task_id: str, position: int, **fields: Any) -> CallRow:
        given = {"request": b"", "answer": b"", "latency": 0.5, "started_at": 1.0, "dialect": "chat"} | fields
        return CallRow(task_id=task_id, position=position, **given)

    def run(group: str, run_id: int, state: RunState, reward: float | None, version: int | None) -> RunRow:
        shown = {"reward": reward, "policy_version": version}
        return RunRow(group_id=group, run_id=run_id, state=state, updated_at=1.0, **shown)

    async with database.write() as session:
        ids = ["a", "tenant=acme/b", "c", "order-1"]
        session.add_all([task(tenant, id_.rpartition("/")[2], at, selected=True) for at, (tenant, id_) in enumerate(
            zip((DEFAULT, "acme", DEFAULT, DEFAULT), ids, strict=True), start=1)])  # fmt: skip
        await session.flush()
        session.add_all(
            [
                call("a", 0, dialect="messages"),
                call("a", 1, latency=0.25, variant="version:7"),
                call("tenant=acme/b", 0, dialect="responses", problem="history_unseen"),
                *(call("order-1", place, problem="history_unseen" if place == 0 else None) for place in range(30)),
            ]
        )
        groups = {"a.0": ("a", "rerun"), "a.1": ("a", "delivered"), "tenant=acme/b.0": ("tenant=acme/b", "ready")}
        rows = [GroupRow(id=id_, task_id=of, state=state, updated_at=1.0) for id_, (of, state) in groups.items()]
        session.add_all(rows)
        await session.flush()
        session.add_all(
            [
                run("a.0", 0, RunState.SCORED, 0.125, 9),
                run("a.1", 0, RunState.SCORED, 0.25, 7),
                run("a.1", 1, RunState.SCORED, 0.75, 8),
                run("a.1", 2, RunState.FAILED, None, 8),
                run("tenant=acme/b.0", 0, RunState.PENDING, None, None),
            ]
        )
    async with database.read() as session:
        found = {each["task_id"]: each["figures"] for each in (await page(session, Wanted(), 9)).tasks}
    assert found["a"] == {
        "calls": 2, "latency": 0.25, "dialect": "chat", "answered_by": "version:7", "problem": None, "runs": 3,
        "failed_runs": 1, "scored_runs": 2, "reward": {"mean": 0.5, "least": 0.25, "most": 0.75}, "policy_version": 8,
    }  # fmt: skip
    assert (found["b"]["problem"], found["b"]["runs"], found["b"]["reward"]) == ("history_unseen", 1, None)
    assert (found["c"]["calls"], found["c"]["latency"], found["c"]["runs"]) == (0, None, 0)
    assert (found["order-1"]["calls"], found["order-1"]["problem"]) == (30, None), "the problem is too long ago"

    async def names(id_prefix: str | None = None, **conditions: Any) -> list[str]:
        wanted = {"id_prefix": id_prefix, "figures": FigureConditions(**conditions)}
        return [name for some in await paged(database, 1, **wanted) for _, name in some]

    assert await names(dialect=Dialect.CHAT) == ["order-1", "a"]
    assert await names(dialect=Dialect.RESPONSES) == ["b"]
    assert await names(version=7) == await names(version=8) == ["a"]
    assert await names(version=9) == [], "another group has taken that one's place"
    assert await names(version=7, reward_below=0.5) == await names(reward_above=0.7) == ["a"]
    assert await names(version=8, reward_below=0.5) == await names(reward_below=0.25) == []
    assert await names(version=8, dialect=Dialect.MESSAGES) == []
    assert await names(id_prefix="ord") == ["order-1"]
    assert await names(id_prefix="b") == ["b"], "without its tenant"


@ON_BOTH_STORES
async def test_what_was_said_is_looked_through(database: Database) -> None:
    long = {"messages": [{"role": "user", "content": "heron " + "".join(map(str, range(60_000)))}]}
    requests: dict[str, Any] = {
        "plain": {"messages": [{"role": "user", "content": "Where is the HERON?"}]},
        "parts": {"messages": [{"role": "user", "content": [{"type": "text", "text": "a heron"}, {"type": "file"}]}]},
        "tool": {
            "messages": [{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "heron"}}]}]
        },
        "operator": {"messages": [{"role": "system", "content": "heron"}, {"role": "developer", "content": "heron"}]},
        "odd": {"messages": {"heron": 1}, "heron": ["heron"]},
        "long": long,
        "earlier": {"messages": [{"role": "user", "content": "heron"}]},
    }
    answer = {"choices": [{"message": {"content": "Straße"}}, "heron", {"message": ["heron"]}]}
    async with database.write() as session:
        session.add_all([task(DEFAULT, name, at) for at, name in enumerate(requests, start=1)])
        await session.flush()
        for name, request in requests.items():
            bodies = [(request, answer)] + 10 * [({"messages": []}, {})] * (name == "earlier")
            for position, (asked, answered) in enumerate(bodies):
                packed = {"request": pack(asked), "answer": pack(answered)}
                session.add(CallRow(task_id=name, position=position, latency=0.5, started_at=1.0, **packed))

    async def names(text: str) -> list[str]:
        return [name for some in await paged(database, 2, text=text) for _, name in some]

    assert await names("Heron") == ["tool", "parts", "plain"], "not of operators, of long texts, of many calls ago"
    assert await names("STRASSE") == ["long", "odd", "operator", "tool", "parts", "plain"]
    assert await names("never") == []


@pytest.mark.parametrize(
    "text", ["null", "[1, 2]", "[1.0]", '[NaN, "t"]', '[1.0, "\\ud800"]', '[1.0, "\\u0000"]', "[" * 700, "\xff"]
)
async def test_what_is_no_cursor_is_refused(database: Database, text: str) -> None:
    for cursor in (text, base64.urlsafe_b64encode(text.encode("latin-1")).decode().rstrip("=")):
        async with database.read() as session:
            with pytest.raises(BadCursor):
                await page(session, Wanted(), 1, cursor)


async def test_a_page_costs_the_same_however_much_the_store_holds(tmp_path: Path) -> None:
    path = tmp_path / "slipstream.db"
    database = Database(f"sqlite+aiosqlite:///{path}")
    await database.open()
    await database.close()
    fill(path, 40_000, every=1000)
    steps = [0]

    def count() -> None:
        steps[0] += 100

    @event.listens_for(database._engine.sync_engine, "connect")
    def watch(connection: Any, record: object) -> None:
        connection.run_async(lambda driver: driver.set_progress_handler(count, 100))

    await database.open()
    try:
        for wanted in (
            {},
            {"session_id": "service"},
            {"label": "nobody's"},
            {"session_id": "service", "state": "open"},
            {"figures": FigureConditions(version=2**31 - 1)},
            {"figures": FigureConditions(dialect=Dialect.MESSAGES)},
            {"text": "never said"},
        ):
            cursor = None
            for _ in range(3):
                async with database.read() as session:
                    steps[0] = 0
                    found = await page(session, Wanted(**wanted), 50, cursor)  # type: ignore[arg-type]
                    assert 0 < steps[0] < 60_000, f"{wanted}: to go through the store takes more"
                cursor = found.next
                assert cursor is not None
                assert len(found.tasks) == (0 if {"label", "state", "figures", "text"} & set(wanted) else 50)
    finally:
        await database.close()
