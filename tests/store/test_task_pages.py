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

from slipstream.store.database import Database
from slipstream.store.tables.capture import TaskRow
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
        ):
            cursor = None
            for _ in range(3):
                async with database.read() as session:
                    steps[0] = 0
                    found = await page(session, Wanted(**wanted), 50, cursor)  # type: ignore[arg-type]
                    assert 0 < steps[0] < 60_000, f"{wanted}: to go through the store takes more"
                cursor = found.next
                assert cursor is not None
                assert len(found.tasks) == (0 if {"label", "state"} & set(wanted) else 50)
    finally:
        await database.close()
