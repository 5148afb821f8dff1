"""From complete tasks to planned runs: the decision of the selection strategies, carried out."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from sqlalchemy.ext.asyncio import AsyncSession

from slipstream.metrics import Metrics
from slipstream.selection import Decision, Selector
from slipstream.selection.tally import tally
from slipstream.store import runs, tasks
from slipstream.store.database import Database
from slipstream.store.tables import TaskRow

_BATCH = 200
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
            selected = await tasks.take_selected(session, ids)
            dropped = await self._plan(session, selected)
        self._tell(selected, dropped)
        for task_id in set(ids).difference(selected):
            await self._decide(task_id)
        return len(ids) == _BATCH

    async def _decide(self, task_id: str) -> None:
        async with self._database.read() as session:
            row = await session.get(TaskRow, task_id)
            if row is None:
                return
            revision = row.revision
            task = await tasks.picture(session, row)
        # in a thread: a strategy of the user's own may be slow, and the control API shares this event loop
        decision = await asyncio.to_thread(self._selector.decide, task)
        await self._record(task_id, revision, decision)

    async def _record(self, task_id: str, revision: int, decision: Decision) -> None:
        async with self._database.write() as session:
            row = await session.get(TaskRow, task_id)
            if row is None or row.revision != revision:
                return  # a call or a mark came meanwhile; the next step decides on the whole picture
            row.decided = True
            tasks.decide(row, decision)
            selected = [task_id] if decision.selected else []
            dropped = await self._plan(session, selected)
        tally(self._metrics, [(task_id, decision)])
        self._tell(selected, dropped)

    async def _plan(self, session: AsyncSession, selected: Sequence[str]) -> int:
        """Plan the runs of these tasks' calls that have none yet; returns how many calls did not fit the queue."""
        if not selected:
            return 0
        room = max(0, self._queue - await runs.waiting(session)) // self._repeat_time
        return await runs.plan_tasks(session, selected, room, self._repeat_time, self._clock())

    def _tell(self, selected: Sequence[str], dropped: int) -> None:
        if selected:
            self._metrics.dropped.labels("runs_queue_full").inc(dropped)
            self._planned()
