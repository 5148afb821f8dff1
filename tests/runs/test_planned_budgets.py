"""Budgets of selection, where a decision comes to nothing: the tasks that hold are counted, and no others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from contexts import context
from prometheus_client import CollectorRegistry

from slipstream.metrics import Metrics
from slipstream.runs.planning import Planner
from slipstream.selection import Selector
from slipstream.store import read_models, tasks
from slipstream.store.bodies import pack
from slipstream.store.database import Database
from slipstream.store.states import TaskState
from slipstream.store.tables.capture import CallRow, TaskRow
from slipstream.store.tasks import NewMark
from slipstream.tenants import DEFAULT, qualified

NOW = 1_000_000.0
REQUEST = {"model": "prod", "messages": [{"role": "user", "content": "hello"}]}
ANSWER = {"choices": [{"message": {"role": "assistant", "content": "hi"}, "finish_reason": "stop"}]}


class Planned:
    """A Planner whose tree selects as many tasks in an hour as its store gets."""

    def __init__(self, database: Database, count: int) -> None:
        self.database = database
        self.names = [qualified(DEFAULT, f"t{number}") for number in range(count)]
        selection = {"budget": {"tasks_per_hour": count}}
        made, _ = context(database, Metrics(CollectorRegistry()), lambda: NOW, selection=selection)
        self.membership = made.membership
        self.planner = Planner(made, Selector(made.settings.selection, lambda: 0.0))

    async def start(self) -> None:
        """Register with the store, and have the tasks in it."""
        await self.membership.start()
        for name in self.names:
            await self.add(name)

    async def add(self, name: str) -> None:
        """Have a complete task of one call in the store."""
        task = TaskRow(id=name, session_id=name, state=TaskState.COMPLETE, created_at=NOW, updated_at=NOW)
        said = {"request": pack(REQUEST), "answer": pack(ANSWER), "latency": 0.5, "started_at": NOW}
        async with self.database.write() as session:
            session.add(task)
            await session.flush()
            session.add(CallRow(task_id=name, position=0, **said))

    async def decisions(self) -> list[tuple[bool, str | None]]:
        """The decisions on the tasks once nothing more is to be decided."""
        while await self.planner.step():
            pass
        async with self.database.read() as session:
            rows = [await session.get_one(TaskRow, name) for name in self.names]
        return [(row.selected, row.reason) for row in rows]


@pytest.fixture
async def planned(database: Database) -> Planned:
    made = Planned(database, 3)
    await made.start()
    return made


@pytest.mark.parametrize("written", [False, True], ids=["before", "after"])
async def test_a_write_that_fails_spends_nothing(
    planned: Planned, monkeypatch: pytest.MonkeyPatch, written: bool
) -> None:
    """The disk is full: what was decided is decided again, and would find no budget left."""
    whole = tasks.record_decisions

    async def full(*arguments: Any) -> None:
        if written:
            await whole(*arguments)
        raise OSError("no space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(tasks, "record_decisions", full)
        for _ in range(3):
            with pytest.raises(OSError, match="no space left"):
                await planned.planner.step()
    assert await planned.decisions() == [(True, "budget")] * 3


async def test_a_strategy_that_fails_spends_nothing_for_those_before_it(
    planned: Planned, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, asked = Selector.verdict, []

    def fails(selector: Selector, task: Any) -> Any:
        asked.append(task)
        if len(asked) == 3:
            raise MemoryError
        return whole(selector, task)

    monkeypatch.setattr(Selector, "verdict", fails)
    with pytest.raises(MemoryError):
        await planned.planner.step()
    assert await planned.decisions() == [(True, "budget")] * 3


async def test_a_task_to_which_a_mark_comes_meanwhile_spends_once(
    planned: Planned, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, marks = read_models.tasks, []

    async def read(session: Any, names: Sequence[str]) -> Any:
        found = await whole(session, names)
        if not marks:
            marks.append(NewMark("m1", planned.names[0], None, ["vip"], {}, 60))
            async with planned.database.write() as other:
                await tasks.add_mark(other, marks[0], NOW)
        return found

    monkeypatch.setattr(read_models, "tasks", read)
    await planned.planner.step()
    assert marks
    assert await planned.decisions() == [(True, "budget")] * 3


async def test_what_holds_is_spent(planned: Planned) -> None:
    assert await planned.decisions() == [(True, "budget")] * 3
    planned.names.append(qualified(DEFAULT, "late"))
    await planned.add(planned.names[3])
    assert (await planned.decisions())[3] == (False, "budget_spent")
