"""Training that goes nowhere, seen in the store, in Trinity's history and in the files of versions."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
import time
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from checkpoint_job import CheckpointJob

from slipstream.explorer.answered_by import AnsweredBy
from slipstream.explorer.history import TrinityHistory
from slipstream.explorer.watch import ExplorerWatch
from slipstream.settings.serving import Serving
from slipstream.store import version_views, versions
from slipstream.store.answered_versions import OtherVersion
from slipstream.store.constant_components import ConstantComponent, constant_components
from slipstream.store.database import Database
from slipstream.store.health import health
from slipstream.store.states import RunState, TaskState
from slipstream.store.tables.capture import TaskRow
from slipstream.store.tables.runs import GroupRow, RunRow
from slipstream.versions import digests
from slipstream.versions.digests import WeightDigests
from slipstream.versions.registry import VersionRegistry

NOW = time.time()


async def scored(database: Database, breakdowns: Iterable[tuple[str, dict[str, Any]]], **fields: Any) -> None:
    """Runs of these tasks with these breakdowns, one after the other."""
    async with database.write() as session:
        for number, (task, breakdown) in enumerate(breakdowns):
            if await session.get(TaskRow, task) is None:
                session.add(TaskRow(id=task, session_id="s", state=TaskState.COMPLETE, created_at=NOW, updated_at=NOW))
                await session.flush()
                session.add(GroupRow(id=task, task_id=task, updated_at=NOW))
                await session.flush()
            run = RunRow(group_id=task, run_id=number, state=RunState.SCORED, reward=0.5, updated_at=NOW)
            run.breakdown, run.msg_id, run.policy_version = breakdown, f"m{number}", fields.get("version")
            session.add(run)


async def constant(database: Database, *names: str) -> list[ConstantComponent]:
    async with database.read() as session:
        return await constant_components(session, names)


async def test_a_component_is_constant_over_enough_runs_of_enough_tasks(database: Database) -> None:
    alike = [(f"t{number % 5}", {"judge": 0.2, "format": number % 2, "quiet": None}) for number in range(49)]
    await scored(database, alike)
    assert await constant(database, "judge", "format", "quiet") == [], "one run is missing"
    await scored(database, [("new", {"judge": 0.2, "format": 1.0, "quiet": None})])
    names = ("judge", "format", "quiet", "none of this name")
    assert await constant(database, *names) == [ConstantComponent("judge", 0.2, runs=50, tasks=6)]
    assert await constant(database) == []
    await scored(database, [("another", {"judge": 0.9})])
    assert await constant(database, "judge") == [], "it tells answers from each other again"


async def test_the_runs_of_a_few_tasks_may_be_alike(database: Database) -> None:
    await scored(database, [(f"t{number % 4}", {"judge": 1.0}) for number in range(80)])
    assert await constant(database, "judge") == []


async def test_what_trinity_recorded_is_compared_with_what_was_said(database: Database, tmp_path: Path) -> None:
    await scored(database, [(f"t{number}", {}) for number in range(30)], version=3)
    path = tmp_path / "history.db"
    with closing(sqlite3.connect(path)) as history:
        history.execute("CREATE TABLE proxy_history (id INTEGER, msg_id TEXT, model_version INTEGER)")
        history.executemany("INSERT INTO proxy_history VALUES (?, ?, 3)", [(n, f"m{n}") for n in range(30)])
        history.commit()

        async def record(version: int, first: int) -> OtherVersion | None:
            history.execute("UPDATE proxy_history SET model_version = ? WHERE id >= ?", (version, first))
            history.commit()
            await looking.step()
            return looking.other

        trinity = TrinityHistory(f"sqlite+aiosqlite:///{path}")
        watch = cast("ExplorerWatch", SimpleNamespace(newest=4))
        looking = AnsweredBy(database, trinity, watch, clock=lambda: NOW)
        assert await record(3, 0) is None
        assert await record(2, 20) is None, "some were given by the version before"
        assert await record(2, 10) == OtherVersion(answers=20, compared=30, said=3, recorded=2)
        assert await record(4, 0) is None, "version 4 was loaded while they were given"
        assert await record(7, 0) == OtherVersion(answers=30, compared=30, said=3, recorded=7)
        looking = AnsweredBy(database, trinity, watch, clock=lambda: NOW + 7200)
        assert await record(7, 0) is None, "that was long ago"
        await trinity.aclose()


async def test_a_version_with_the_weights_of_another_is_seen(database: Database, tmp_path: Path) -> None:
    job = CheckpointJob(tmp_path / "job")
    settings = Serving.model_validate({"checkpoints": str(job.path), "keep_newest": 1})
    registry, stage = VersionRegistry(settings, database, clock=time.time), WeightDigests(settings, database)

    async def like(version: int) -> int | None:
        await registry.step()
        while await stage.step():
            pass
        async with database.read() as session:
            found = await health(session, version, recent=0.0, old=0.0)
        return found.weights_like

    async def weights(version: int) -> str | None:
        async with database.read() as session:
            view = await version_views.view(session, version)
        assert view is not None
        return cast("str | None", view["weights"])

    job.publish(1, "x" * (2 * 1024**2 + 1))
    assert await like(1) is None
    job.publish(2, "x" * (2 * 1024**2 + 1))
    assert await like(2) == 1
    assert await weights(1) == await weights(2)
    assert await like(1) is None, "it was there first"
    job.publish(3)
    job.prune(3)
    assert await like(3) is None, "its files went before they were read"
    job.publish(4)
    assert await like(4) is None
    assert await weights(4) not in (None, await weights(2))
    async with database.write() as session:
        await versions.release(session, 4, NOW)
        again = versions.Found(4, str(job.step(4)), NOW, None)
        assert await versions.record_found(session, again, NOW)
    assert await weights(4) is None, "it was trained anew"


async def test_reading_weights_ends_with_the_sidecar(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = CheckpointJob(tmp_path / "job")
    settings = Serving.model_validate({"checkpoints": str(job.path), "keep_newest": 0})
    job.publish(1, "x" * 1000)
    await VersionRegistry(settings, database, clock=time.time).step()
    monkeypatch.setattr(digests, "_PIECE", 1)
    reading, ended, whole = threading.Event(), threading.Event(), digests.digest_of

    def slow(folder: Path, names: Iterable[str], stopped: Any) -> str:
        def told() -> bool:
            reading.set()
            threading.Event().wait(0.01)
            return bool(stopped())

        try:
            return whole(folder, names, told)
        finally:
            ended.set()

    monkeypatch.setattr(digests, "digest_of", slow)
    step = asyncio.create_task(WeightDigests(settings, database).step())
    assert await asyncio.to_thread(reading.wait, 10)
    step.cancel()
    assert await asyncio.to_thread(ended.wait, 5)
