"""The agenda: wakes stages for what becomes due by time, and for what came into the store without a word to them."""

from __future__ import annotations

from slipstream.stages.context import RUNNERS, Context, Stage
from slipstream.stages.worker import Worker
from slipstream.store import due
from slipstream.store.due import Earliest

_TICK = 1.0
"""Seconds between two looks: a retry, a score or a decision is late by so much at most."""


class Agenda:
    """Looks each second, in the place of all stages, at the times of what waits in the store.

    They are read again only if something was written since; in a store that others write to, each time.

    Attributes:
        worker: the loop.
    """

    def __init__(self, context: Context) -> None:
        self._database = context.database
        self._stages = context.stages
        self._clock = context.clock
        self._task_idle = context.settings.capture.task_idle
        self._read_at: int | None = None
        self._waits = Earliest()
        self.worker = Worker("agenda", self.step, _TICK)

    async def step(self) -> bool:
        """Wake the stages that have something to do."""
        writes = self._database.writes
        if self._database.shared or writes != self._read_at:
            async with self._database.read() as session:
                self._waits = await due.earliest(session)
            self._read_at = writes
        waits, now = self._waits, self._clock()
        if waits.undecided or (waits.called is not None and waits.called + self._task_idle <= now):
            self._stages.wake(Stage.PLANNER)
        if waits.rollout:
            self._stages.wake(Stage.ROLLOUTS)
        if waits.experiment:
            self._stages.wake(Stage.EXPERIMENTS)
        if waits.evaluation:
            self._stages.wake(Stage.EVALUATION)
        if waits.event:
            self._stages.wake(Stage.NOTIFIER)
        for at, stages in (
            (waits.pending, RUNNERS),
            (waits.answered, (Stage.SCORER,)),
            (waits.open, (Stage.REPLAYS,)),
            (waits.delivery, (Stage.NOTIFIER,)),
        ):
            if at is not None and at <= now:
                self._stages.wake(*stages)
        return False
