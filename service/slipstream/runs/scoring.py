"""Scoring: the reward of each answered run, once its grace is over."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import structlog

from slipstream.errors import ScoringError
from slipstream.metrics import Metrics
from slipstream.rewards import Reward, RewardModel
from slipstream.store import runs
from slipstream.store.database import Database
from slipstream.trajectory import Run

_log = structlog.get_logger(__name__)

_BATCH = 16
"""Runs scored side by side: a judge takes seconds, so several must be under way."""


class Scorer:
    """Gives answered runs their reward.

    A reward that was posted for the policy's own answer is the reward, as it is, unless the configuration gives it a
    weight among others (a `feedback` calculator).

    Args:
        clock: Unix seconds.
        scored: called when a group may have become ready.
    """

    def __init__(
        self,
        database: Database,
        model: RewardModel,
        metrics: Metrics,
        *,
        clock: Callable[[], float],
        scored: Callable[[], None],
    ) -> None:
        self._database = database
        self._model = model
        self._metrics = metrics
        self._clock = clock
        self._scored = scored

    async def step(self) -> bool:
        """Score a batch of runs. Returns True when more may be waiting."""
        async with self._database.read() as session:
            due = await runs.due_for_scoring(session, _BATCH, self._clock())
        ends = await asyncio.gather(*(self._score(pk) for pk in due), return_exceptions=True)
        if due:
            self._scored()
        for error in ends:  # only now: each run of the batch has had its turn
            if error is not None:
                raise error
        return len(due) == _BATCH

    async def _score(self, pk: int) -> None:
        async with self._database.read() as session:
            found = await runs.picture(session, pk)
        if found is None:
            return
        run, revision = found
        with structlog.contextvars.bound_contextvars(
            task_id=run.task.task_id, group_id=run.group_id, run_id=run.run_id
        ):
            try:
                reward = await self._reward(run)
            except ScoringError as error:
                async with self._database.write() as session:
                    failed = await runs.fail(session, pk, f"scoring: {error}", self._clock(), revision)
                if failed:
                    _log.warning("scoring_failed")  # the reason may quote the answer: it is in the store alone
                    self._metrics.runs.labels("failed").inc()
                return
            async with self._database.write() as session:
                taken = await runs.score(session, pk, revision, reward.value, reward.breakdown, self._clock())
            if taken:
                _log.info("run_scored", reward=round(reward.value, 4), policy_version=run.policy_version)
                self._metrics.runs.labels("scored").inc()
                self._metrics.rewards.observe(reward.value)

    async def _reward(self, run: Run) -> Reward:
        posted = [said.reward for said in run.feedback if said.reward is not None]
        if posted and not self._model.waits_for_feedback:
            return Reward(posted[-1], {"feedback": posted[-1]})
        return await self._model.score(run)
