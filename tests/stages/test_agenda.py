"""The agenda: who is woken for what becomes due, and that a store in which nothing changes is left alone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from contexts import WokenStages, context
from prometheus_client import CollectorRegistry
from sqlalchemy import insert
from stores import ON_BOTH_STORES

from slipstream.metrics import Metrics
from slipstream.stages.agenda import Agenda
from slipstream.stages.context import RUNNERS, Stage
from slipstream.store.database import Database
from slipstream.store.tables.capture import TaskRow
from slipstream.store.tables.runs import GroupRow, RunRow

NOW = 1_800_000_000.0


class Clock:
    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> float:
        return self.now


def agenda(database: Database, clock: Clock) -> tuple[Agenda, WokenStages]:
    made, stages = context(database, Metrics(CollectorRegistry()), clock, capture={"task_idle": "30s"})
    return Agenda(made), stages


async def _task(database: Database, **fields: Any) -> None:
    task = {"id": "t", "session_id": "s", "state": "open", "created_at": NOW, "updated_at": NOW} | fields
    async with database.write() as session:
        await session.execute(insert(TaskRow).values(**task))


async def _run(database: Database, state: str, due_at: float) -> None:
    await _task(database, decided=True)
    async with database.write() as session:
        await session.execute(insert(GroupRow).values(id="g", task_id="t", updated_at=NOW))
        run = {"group_id": "g", "run_id": 0, "state": state, "due_at": due_at, "updated_at": NOW}
        await session.execute(insert(RunRow).values(**run))


@ON_BOTH_STORES
@pytest.mark.parametrize(
    ("state", "woken"),
    [("pending", RUNNERS), ("answered", (Stage.SCORER,)), ("open", (Stage.REPLAYS,)), ("running", ())],
)
async def test_a_run_wakes_its_stage_when_it_is_due(database: Database, state: str, woken: tuple[Stage, ...]) -> None:
    clock = Clock()
    looking, stages = agenda(database, clock)
    await _run(database, state, NOW + 10)
    await looking.step()
    assert stages.woken == []
    clock.now += 10
    for times in (1, 2):
        await looking.step()
        assert stages.woken == [*woken] * times, "and again, for as long as it is not taken"


@ON_BOTH_STORES
async def test_a_task_wakes_the_planner_once_it_is_idle_or_at_once_if_it_is_complete(database: Database) -> None:
    clock = Clock()
    looking, stages = agenda(database, clock)
    await _task(database)
    await looking.step()
    assert stages.woken == []
    clock.now += 30
    await looking.step()
    assert stages.woken == [Stage.PLANNER]
    clock.now = NOW
    await looking.step()
    assert stages.woken == [Stage.PLANNER], "its clock was set back"
    await _task(database, id="u", state="complete", updated_at=NOW + 3600)
    await looking.step()
    assert stages.woken == [Stage.PLANNER] * 2


async def test_a_store_of_its_own_is_read_only_after_something_was_written(tmp_path: Path, asked: list[str]) -> None:
    database = Database(f"sqlite+aiosqlite:///{tmp_path}/slipstream.db")
    await database.open()
    clock = Clock()
    looking, stages = agenda(database, clock)
    await looking.step()
    asked.clear()
    for _ in range(3):
        await looking.step()
    assert asked == []
    await _run(database, "pending", NOW + 1)
    await looking.step()
    asked.clear()
    clock.now += 1
    await looking.step()
    assert (asked, stages.woken) == ([], [*RUNNERS]), "the time is known"
    await database.close()


async def test_what_another_sidecar_writes_is_found(new_postgres: Callable[[], str]) -> None:
    url = new_postgres()
    here, there = Database(url), Database(url)
    await here.open()
    await there.open()
    looking, stages = agenda(here, Clock())
    await looking.step()
    await _run(there, "answered", NOW)
    await looking.step()
    assert stages.woken == [Stage.SCORER]
    await here.close()
    await there.close()
