"""What the sidecar's regular work costs on a store of ten million calls, next to one that is nearly empty.

    python benchmarks/store_size.py FOLDER [--calls 10000000] [--rounds 10]

The large store is made in FOLDER once (0.8 kB a call; ten million take two minutes) and
measured again by later runs; delete the folder when done. Both stores have the same work before them: what differs is
what lies behind. The stages and routes are the sidecar's own, called in this process without HTTP, and without an
Explorer. CPU is that of the whole process, all its threads; both columns are the median of the rounds, which
alternate between the stores.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import random
import shutil
import statistics
import sys
import time
import uuid
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import structlog
from fastapi import Response
from prometheus_client import CollectorRegistry
from sqlalchemy import text

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "support"))

from filled import ANSWER, REQUEST, fill

from slipstream.access.scope import EVERYTHING
from slipstream.api import feedback as feedback_route
from slipstream.api import marks as marks_route
from slipstream.api import observe
from slipstream.capture.retention import Retention
from slipstream.dialects.form import Dialect
from slipstream.metrics import Metrics
from slipstream.proxy.metrics import SharedCounters
from slipstream.settings.sidecar import Settings
from slipstream.sidecar import Sidecar
from slipstream.store import commits, ready_groups, runs
from slipstream.store.database import Database
from slipstream.store.recording import NewCall, add_calls
from slipstream.store.segments import NewRequest
from slipstream.store.states import CommitState
from slipstream.store.task_figures import FigureConditions
from slipstream.store.task_pages import Wanted, page
from slipstream.store.task_views import task_view

_BYTES_A_CALL = 800
_BATCH = 500
"""Calls recorded at once, as the Recorder does; of half as many tasks."""
_RUNS = 32
_PAGES = {
    "newest": Wanted(),
    "of a session": Wanted(session_id="service"),
    "a rare label": Wanted(label="nobody's"),
    "a version and a reward that no run has": Wanted(figures=FigureConditions(version=10**6, reward_below=0.1)),
    "a rare dialect": Wanted(figures=FigureConditions(dialect=Dialect.MESSAGES)),
    "a text that nobody said": Wanted(text="heron-4711"),
}
"""Pages of 50 tasks; of the last four each looks at as many tasks as a page may, and finds none."""
_SWEEP = 1000


@dataclass
class _Store:
    """A store under measurement: the sidecar over it, and what each action took, in seconds of CPU and of the clock."""

    sidecar: Sidecar
    calls: int
    took: dict[str, list[tuple[float, float]]] = field(default_factory=lambda: defaultdict(list))

    @asynccontextmanager
    async def timed(self, action: str) -> AsyncIterator[None]:
        began, wall = time.process_time(), time.perf_counter()
        yield
        self.took[action].append((time.process_time() - began, time.perf_counter() - wall))

    async def value(self, statement: str, **parameters: object) -> Any:
        async with self.sidecar.database.read() as session:
            return await session.scalar(text(statement), parameters)


async def _held(size: int) -> None:
    """There is memory for everything that is read here."""


def _new_calls(rng: random.Random) -> list[NewCall]:
    """Tasks of two calls each; production's ids are random."""
    session_id, now = uuid.uuid4().hex, time.time()
    names = [f"{int(now * 1000):012x}-{rng.getrandbits(72):018x}" for _ in range(_BATCH // 2)]
    return [
        NewCall(
            session_id=session_id,
            task_id=name,
            request=NewRequest(REQUEST),
            answer=ANSWER,
            msg_id=f"chatcmpl-{rng.getrandbits(128):032x}",
            latency=0.5,
            started_at=now,
            completes=place == 1,
            marked=False,
            labels=frozenset(),
            metadata={},
            new_task=place == 0,
        )
        for name in names
        for place in range(2)
    ]


async def _round(store: _Store, rng: random.Random) -> None:
    """Each action once, in the order of the pipeline: one leaves the next its work."""
    sidecar = store.sidecar
    fresh = _new_calls(rng)
    async with store.timed(f"record {_BATCH} calls"), sidecar.database.write() as session:
        await add_calls(session, fresh, time.time())
    async with store.timed("Planner step, 50 tasks"):
        await sidecar.planner.step()
    while await sidecar.planner.step():
        pass  # the rest of them
    async with store.timed(f"claim {_RUNS} runs"), sidecar.database.write() as session:
        claimed = await runs.claim(session, 0, _RUNS, time.time())
    now = time.time()
    answers = [
        runs.Answered(run.pk, 0, f"chatcmpl-{rng.getrandbits(128):032x}", REQUEST, ANSWER, 0.1, 1, 0.0)
        for run in claimed
    ]
    async with store.timed(f"answer {_RUNS} runs"), sidecar.database.write() as session:
        await runs.answer(session, answers, now)
    async with store.timed(f"scoring step, {_RUNS} runs"):
        await sidecar.scorer.step()
    async with store.timed("begin a commit"), sidecar.database.write() as session:
        before = await commits.last(session)
        begun = await commits.begin(
            session, "interval", 0, time.time(), (0, 0, 0), after=None if before is None else before[0]
        )
        assert begun is not None, "nobody else delivers"
        commit, groups = begun
        await commits.ask(session, commit.id, 0)
    async with store.timed("end a commit"), sidecar.database.write() as session:
        await ready_groups.deliver(session, commit.id, time.time())
        taken = sum(group.size for group in groups)
        await commits.end(session, commit.id, CommitState.DELIVERED, time.time(), experiences=taken)
    async with store.timed("GET /metrics"):
        await observe.metrics(sidecar)
    async with store.timed("GET /status"):
        await observe.status(sidecar, EVERYTHING, Response())
    for name, wanted in _PAGES.items():
        async with store.timed(f"GET /tasks, {name}"), sidecar.database.read() as session:
            await page(session, wanted, 50)
    newest = await store.value("SELECT max(id) FROM calls")
    for age, pk in (("new", newest - rng.randrange(_BATCH)), ("old", rng.randrange(store.calls // 10, store.calls))):
        task_id = await store.value("SELECT task_id FROM calls WHERE id = :id", id=pk)
        msg_id = await store.value("SELECT msg_id FROM calls WHERE id = :id", id=pk)
        session_id = await store.value("SELECT session_id FROM tasks WHERE id = :id", id=task_id)
        for kind, name in (("msg_id", msg_id), ("task_id", task_id), ("session_id", session_id)):
            async with store.timed(f"POST /feedback by {kind}, {age}"):
                body = feedback_route.FeedbackBody.model_validate({kind: name, "reward": 1.0})
                await feedback_route.post_feedback(body, sidecar, EVERYTHING)
        for kind, name in (("msg_id", msg_id), ("task_id", task_id)):
            async with store.timed(f"POST /marks by {kind}, {age}"):
                await marks_route.post_mark(marks_route.MarkBody.model_validate({kind: name}), sidecar, EVERYTHING)
        async with store.timed(f"GET /tasks/{{id}}, {age}"), sidecar.database.read() as session:
            await task_view(session, task_id, _held, content=False)


async def _sweep(store: _Store) -> None:
    """Have the oldest thousand tasks due, and delete them as the sidecar does."""
    due = await store.value("SELECT updated_at FROM tasks ORDER BY updated_at LIMIT 1 OFFSET :many", many=_SWEEP)
    retention = Retention(
        store.sidecar.database,
        Metrics(CollectorRegistry()),
        retention=0.0,
        audit_retention=365 * 86400.0,
        clock=lambda: due,
    )
    async with store.timed(f"retention sweep, {_SWEEP} tasks"):
        while await retention.step():
            pass


async def _open(path: Path, calls: int) -> _Store:
    url = f"sqlite+aiosqlite:///{path}"
    if not await asyncio.to_thread(path.exists):
        database = Database(url)
        await database.open()
        await database.close()
        await asyncio.to_thread(fill, path, calls, say=lambda made: print(f"{made:,} calls", file=sys.stderr))
    settings = Settings.model_validate(
        {
            "production": {"base_url": "http://127.0.0.1:9/v1"},
            "explorer": {"base_url": "http://127.0.0.1:9"},
            "store": {"url": url},
            "selection": {"sampling": {"rate": 0.2}},
            "runs": {"repeat_time": 2},
            "rewards": {"calculators": [{"constant": {"value": 0.5}}]},
        }
    )
    sidecar = Sidecar(settings, SharedCounters(1))
    began = time.perf_counter()
    await sidecar.database.open()
    print(f"{path.name}: opened in {time.perf_counter() - began:.2f} s", file=sys.stderr)
    return _Store(sidecar, calls)


async def _measure(folder: Path, calls: int, rounds: int) -> None:
    few = 10 * _SWEEP
    stores = [await _open(folder / "empty.db", few), await _open(folder / f"{calls}.db", calls)]
    rng = random.Random(0)
    for _ in range(rounds):
        for store in stores:
            await _round(store, rng)
    for _ in range(3):
        for store in stores:
            await _sweep(store)
    for store in stores:
        await store.sidecar.database.close()
    empty, large = ({action: _median(took) for action, took in store.took.items()} for store in stores)
    print(f"| action | CPU ms, {few:,} calls | {calls:,} calls | wall ms, {few:,} calls | {calls:,} calls |")
    print("|---|---|---|---|---|")
    for action, (cpu, wall) in empty.items():
        cpu_large, wall_large = large[action]
        print(f"| {action} | {cpu:.1f} | {cpu_large:.1f} | {wall:.1f} | {wall_large:.1f} |")


def _median(took: list[tuple[float, float]]) -> tuple[float, float]:
    cpu, wall = zip(*took, strict=True)
    return statistics.median(cpu) * 1e3, statistics.median(wall) * 1e3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--calls", type=int, default=10_000_000)
    parser.add_argument("--rounds", type=int, default=10)
    given = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    given.folder.mkdir(parents=True, exist_ok=True)
    for left in given.folder.glob("empty.db*"):
        left.unlink()
    wanted, free = given.calls * _BYTES_A_CALL, shutil.disk_usage(given.folder).free
    if not (given.folder / f"{given.calls}.db").exists() and free < 2 * wanted:
        sys.exit(
            f"{given.folder}: {2 * wanted / 1e9:.0f} GB must be free for the store and its log; {free / 1e9:.0f} GB are"
        )
    asyncio.run(_measure(given.folder, given.calls, given.rounds))


if __name__ == "__main__":
    main()
