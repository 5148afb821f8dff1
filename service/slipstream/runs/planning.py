"""From complete tasks to planned runs: the decision of the selection strategies, carried out."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from sqlalchemy.ext.asyncio import AsyncSession

from slipstream.memory.parsing import Share, portions
from slipstream.selection import Decision, Selector, Verdict
from slipstream.selection.tally import tally
from slipstream.stages.context import RUNNERS, Context, Stage
from slipstream.store import planning, quarantine, read_models, runs, tasks, webhook
from slipstream.store.replays import REPLAYED
from slipstream.trajectory import Task

_BATCH = 50
"""Tasks decided in one step."""

_REPLAYED = Verdict(Decision(selected=False, reason=REPLAYED))
"""On a task that is known by its replay alone, and of which no strategy sees a call."""

_TOO_LARGE = Verdict(Decision(selected=False, reason="too_large"))
"""On a task that takes more memory than there is for what stages read (three eighths of `limits.parse_memory`)."""


class Planner:
    """Decides complete tasks and plans the runs of those selected.

    A task is planned as shadow calls, or as replays of its whole agent where `runs.mode` is webhook.
    """

    def __init__(self, context: Context, selector: Selector) -> None:
        self._context = context
        self._database = context.database
        self._metrics = context.metrics
        self._clock = context.clock
        self._parsing = context.parsing
        self._selector = selector
        settings = context.settings
        self._task_idle = settings.capture.task_idle
        self._repeat_time = settings.runs.repeat_time
        self._queue = settings.runs.queue
        self._whole_tasks = settings.runs.mode == "webhook"

    async def step(self) -> bool:
        """Decide a batch of tasks. Returns True when more may be waiting."""
        async with self._database.write() as session:
            rescore = await tasks.complete_idle(session, self._clock() - self._task_idle)
            owner = self._context.membership.id
            seen = await tasks.undecided(session, owner, _BATCH)
            # a task stays selected: a later call or mark does not ask (and spend a budget) again
            selected = [task.task_id for task in seen if task.selected]
            await tasks.stay_selected(session, selected)
            dropped = await self._plan(session, selected)
        if rescore:
            self._context.stages.wake(Stage.SCORER)
        self._tell(selected, dropped)
        if undecided := [task for task in seen if not task.selected]:
            await self._decide(owner, undecided)
        return len(seen) == _BATCH or any(task.tries for task in seen)

    async def _decide(self, owner: int, undecided: Sequence[tasks.Undecided]) -> None:
        """Decide tasks, write it down, and plan the runs of those selected."""
        task_ids = [task.task_id for task in undecided]
        verdicts: dict[str, Verdict] = {}
        stored: list[str] = []
        try:
            try:
                await self._ask(task_ids, verdicts)
            except Exception:
                async with self._database.write() as session:  # it failed, and did not end this process
                    await quarantine.forgive_tasks(session, task_ids)
                raise
            made = {name: verdict.decision for name, verdict in verdicts.items()}
            async with self._database.write() as session:
                # to the others a call or a mark came meanwhile; the next step decides on the whole picture
                held = await tasks.record_decisions(session, owner, undecided, made)
                selected = [name for name in held if made[name].selected]
                dropped = await self._plan(session, selected)
            stored = held
        finally:
            # Those that are not in the store are decided again, and spend again. (A copy: where this is cancelled, the
            # thread that asks goes on.)
            gone = [verdict for name, verdict in list(verdicts.items()) if name not in stored]
            await asyncio.to_thread(self._selector.take_back, gone)
        tally(self._metrics, [(name, made[name]) for name in held])
        self._tell(selected, dropped)

    async def _ask(self, task_ids: Sequence[str], verdicts: dict[str, Verdict]) -> None:
        """Ask the strategies. Verdicts are added one by one: each may have spent a budget when the next one fails."""
        async with self._database.read() as session:
            sizes = await read_models.sizes(session, task_ids)
        room = self._parsing.room(Share.JUDGED)
        verdicts.update({name: _TOO_LARGE for name, size in sizes.items() if size > room})
        for names, size in portions({name: sizes[name] for name in task_ids if name not in verdicts}, room):
            async with self._parsing.held(size, Share.JUDGED):
                async with self._database.read() as session:
                    found = await read_models.tasks(session, names)
                # in a thread: a strategy of the user's own may be slow, and the control API shares this event loop
                await asyncio.to_thread(self._ask_now, found, verdicts)

    def _ask_now(self, found: Mapping[str, Task], verdicts: dict[str, Verdict]) -> None:
        for name, task in found.items():
            verdicts[name] = self._selector.verdict(task) if task.calls else _REPLAYED

    async def _plan(self, session: AsyncSession, task_ids: Sequence[str]) -> int:
        """Plan the runs of the tasks, or of their calls, that have none yet; returns how many groups did not fit the
        queue."""
        if not task_ids:
            return 0
        now = self._clock()
        room = max(0, self._queue - await runs.waiting(session)) // self._repeat_time
        if self._whole_tasks:
            names = await webhook.unplanned(session, task_ids)
            await webhook.plan(session, names[:room], self._repeat_time, now)
            return len(names[room:])
        calls = await planning.unplanned(session, task_ids)
        await planning.plan(session, calls[:room], self._repeat_time, now)
        return len(calls[room:])

    def _tell(self, selected: Sequence[str], dropped: int) -> None:
        if selected:
            self._metrics.dropped.labels("runs_queue_full").inc(dropped)
            self._context.stages.wake(*RUNNERS)
