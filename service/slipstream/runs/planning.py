"""From complete tasks to planned runs: the decision of the selection strategies, carried out."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from sqlalchemy.ext.asyncio import AsyncSession

from slipstream.metrics import Metrics
from slipstream.selection import Decision, Selector
from slipstream.selection.tally import tally
from slipstream.store import runs, tasks
from slipstream.store.database import Database
from slipstream.store.tables import TaskRow

_BATCH = 50
"""Tasks decided in one step."""


class Planner:
    """Decides complete tasks and plans the runs of those selected.

    Args:
        task_idle: seconds after which a task without a new call is complete.
        repeat_time: runs of each call.
        queue: runs that may wait; a call that does not fit is dropped and counted.
        clock: Unix seconds.
        planned: called when there are runs to be sent.
    """

    def __init__(
        self,
        database: Database,
        selector: Selector,
        metrics: Metrics,
        *,
        task_idle: float,
        repeat_time: int,
        queue: int,
        clock: Callable[[], float],
        planned: Callable[[], None],
    ) -> None:
        self._database = database
        self._selector = selector
        self._metrics = metrics
        self._task_idle = task_idle
        self._repeat_time = repeat_time
        self._queue = queue
        self._clock = clock
        self._planned = planned

    async def step(self) -> bool:
        """Decide a batch of tasks. Returns True when more may be waiting."""
        async with self._database.write() as session:
            await tasks.complete_idle(session, self._clock() - self._task_idle)
            ids = await tasks.undecided(session, _BATCH)
        for task_id in ids:
            await self._decide(task_id)
        return len(ids) == _BATCH

    async def _decide(self, task_id: str) -> None:
        async with self._database.read() as session:
            row = await session.get(TaskRow, task_id)
            if row is None:
                return
            revision, selected = row.revision, row.selected
            task = await tasks.picture(session, row)
        decision = None
        if not selected:  # a task stays selected: a later call or mark does not ask (and spend a budget) again
            # in a thread: a strategy of the user's own may be slow, and production shares this event loop
            decision = await asyncio.to_thread(self._selector.decide, task)
        await self._record(task_id, revision, decision)

    async def _record(self, task_id: str, revision: int, decision: Decision | None) -> None:
        async with self._database.write() as session:
            row = await session.get(TaskRow, task_id)
            if row is None or row.revision != revision:
                return  # a call or a mark came meanwhile; the next step decides on the whole picture
            row.decided = True
            if decision is not None:
                tasks.decide(row, decision)
            selected = row.selected
            dropped = await self._plan(session, task_id) if selected else 0
        if decision is not None:
            tally(self._metrics, [(task_id, decision)])
        if selected:
            self._metrics.dropped.labels("runs_queue_full").inc(dropped)
            self._planned()

    async def _plan(self, session: AsyncSession, task_id: str) -> int:
        """Plan the runs of a task's calls that have none yet; returns how many calls did not fit the queue."""
        now = self._clock()
        calls = await runs.calls_without_group(session, task_id)
        room = max(0, self._queue - await runs.waiting(session)) // self._repeat_time
        for call in calls[:room]:
            await runs.plan(session, call, self._repeat_time, now)
        return len(calls[room:])
