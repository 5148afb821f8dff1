"""Scoring: the reward of each answered run, once its grace is over."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import structlog

from slipstream.errors import ScoringError
from slipstream.memory.parsing import Share, portions
from slipstream.rewards import Reward, RewardModel
from slipstream.runs.budget import Budget
from slipstream.runs.first import FirstOfGroup
from slipstream.stages.context import Context, Stage
from slipstream.store import quarantine, read_models, runs, sidecars
from slipstream.store.outcomes import SCORING
from slipstream.store.read_models import DueRun, DueSize
from slipstream.store.runs import Ended
from slipstream.tracing.catalogue import Attribute, Attributes, SpanName
from slipstream.tracing.tracer import policy_key
from slipstream.trajectory import Run

_log = structlog.get_logger(__name__)

_BATCH = 32
"""Runs scored side by side: a judge takes seconds, so several must be under way."""

_TOO_LARGE = f"{SCORING}with its task it takes more memory than three eighths of limits.parse_memory"


class Scorer:
    """Gives answered runs their reward.

    A reward that was posted for the policy's own answer is the reward, as it is, unless the configuration gives it a
    weight among others (a `feedback` calculator).

    Args:
        budget: of calls of judges; at its end runs wait.
    """

    def __init__(self, context: Context, model: RewardModel, budget: Budget) -> None:
        self._context = context
        self._database = context.database
        self._metrics = context.metrics
        self._clock = context.clock
        self._parsing = context.parsing
        self._model = model
        self._budget = budget
        self._tracer = context.tracer
        self._judges = context.settings.rewards.judges
        self._first_failure = FirstOfGroup()

    async def step(self) -> bool:
        """Score a batch of runs. Returns True when more may be waiting."""
        owner, now = self._context.membership.id, self._clock()
        if not self._budget.open:
            return False
        async with self._database.read() as session:
            unclaimed = await runs.unclaimed_answers(session, now)
        if unclaimed:
            async with self._database.write(alone=False) as session:
                await sidecars.hold(session, owner)
                await runs.claim_answers(session, owner, _BATCH, now)
        async with self._database.read() as session:
            seen = await quarantine.due_answers(session, owner, _BATCH, now)
        taken = seen[: await self._affordable(len(seen), now)]
        if not taken:
            return False
        async with self._database.write(alone=False) as session:
            await sidecars.hold(session, owner)
            await quarantine.begin_scoring(session, taken)
        try:
            await self._score(owner, [run.pk for run in taken])
        except Exception:
            async with self._database.write(alone=False) as session:  # it failed, and did not end this process
                await quarantine.forgive_runs(session, [run.pk for run in taken])
            raise
        return len(seen) == _BATCH or seen[0].tries > 0

    async def _score(self, owner: int, pks: Sequence[int]) -> None:
        """Score runs, so many side by side as there is memory for, with their tasks."""
        async with self._database.read() as session:
            due = await read_models.due_sizes(session, owner, pks)
            tasks = await read_models.sizes(session, {run.task_id for run in due})
        room = self._parsing.room(Share.JUDGED)
        await self._refuse([run for run in due if tasks[run.task_id] + run.size > room])
        by_task: dict[str, dict[int, int]] = {}
        for run in due:
            if tasks[run.task_id] + run.size <= room:
                by_task.setdefault(run.task_id, {})[run.pk] = run.size
        together = {
            tuple(some): tasks[task_id] + size
            for task_id, sizes in by_task.items()
            for some, size in portions(sizes, room - tasks[task_id])
        }
        errors: list[BaseException] = []
        for parts, size in portions(together, room):
            async with self._parsing.held(size, Share.JUDGED):
                errors += await self._score_now(owner, [pk for part in parts for pk in part])
        if errors:  # only now: each run has had its turn
            raise errors[0]

    async def _refuse(self, too_large: Sequence[DueSize]) -> None:
        """End runs that cannot be read."""
        if not too_large:
            return
        ended = [Ended(run.pk, run.owner, reason=_TOO_LARGE, revision=run.revision) for run in too_large]
        async with self._database.write() as session:
            taken = await runs.end(session, ended, self._clock())
        for run in too_large:
            if run.pk in taken:
                _log.warning("scoring_failed", task_id=run.task_id, group_id=run.group_id, run_id=run.run_id)
                self._metrics.runs.labels("failed").inc()
        self._context.stages.wake(Stage.COMMITTER)

    async def _score_now(self, owner: int, pks: Sequence[int]) -> list[BaseException]:
        """Score these; returns the errors that were no `ScoringError`."""
        async with self._database.read() as session:
            due = await read_models.due_runs(session, owner, pks)
        under_way = {asyncio.create_task(self._end(one)): one for one in due}
        errors: list[BaseException] = []
        try:
            while under_way:
                done, _ = await asyncio.wait(under_way, return_when=asyncio.FIRST_COMPLETED)
                ended = [(task, under_way.pop(task)) for task in done]
                errors += [error for task, _ in ended if (error := task.exception()) is not None]
                await self._store([(task.result(), one.run) for task, one in ended if task.exception() is None])
        finally:
            for task in under_way:
                task.cancel()
        return errors

    async def _affordable(self, wanted: int, now: float) -> int:
        """Return how many runs judges may be asked about; each of them counts once for a run, whatever the result."""
        if not (self._judges and self._budget.limited and wanted):
            return wanted
        async with self._database.write() as session:
            room = await self._budget.room(session, wanted * self._judges, now) // self._judges
            await self._budget.spend(session, room * self._judges, 0, now)
        return room

    async def _end(self, due: DueRun) -> Ended:
        run = due.run
        with structlog.contextvars.bound_contextvars(
            task_id=run.task.task_id, group_id=run.group_id, run_id=run.run_id
        ):
            try:
                with self._tracer.span(SpanName.SCORE, _scored(run), follows=policy_key(run.calls[-1].msg_id)) as span:
                    reward = await self._reward(run)
                    span.set({Attribute.REWARD: reward.value})
            except ScoringError as error:
                return Ended(due.pk, due.owner, reason=f"{SCORING}{error}", revision=due.revision)
        return Ended(due.pk, due.owner, reward.value, reward.breakdown, revision=due.revision)

    async def _store(self, ended: Sequence[tuple[Ended, Run]]) -> None:
        async with self._database.write() as session:
            taken = await runs.end(session, [one for one, _ in ended], self._clock())
        for one, run in ended:
            if one.pk not in taken:
                continue
            about = {"task_id": run.task.task_id, "group_id": run.group_id, "run_id": run.run_id}
            if one.reward is None:
                log = _log.warning if self._first_failure(run.group_id) else _log.debug
                log("scoring_failed", **about)  # the reason may quote the answer: it is in the store alone
                self._metrics.runs.labels("failed").inc()
            else:
                _log.debug("run_scored", reward=round(one.reward, 4), policy_version=run.policy_version, **about)
                self._metrics.runs.labels("scored").inc()
                self._metrics.rewards.observe(one.reward)
        self._context.stages.wake(Stage.COMMITTER)

    async def _reward(self, run: Run) -> Reward:
        posted = [said.reward for said in run.feedback if said.reward is not None]
        if posted and not self._model.waits_for_feedback:
            return Reward(posted[-1], {"feedback": posted[-1]})
        return await self._model.score(run)


def _scored(run: Run) -> Attributes:
    """The attributes of the span of a run's score."""
    return {
        Attribute.TENANT: run.task.tenant,
        Attribute.TASK: run.task.task_id,
        Attribute.GROUP: run.group_id,
        Attribute.RUN: run.run_id,
        Attribute.RESPONSE_ID: run.calls[-1].msg_id,
        Attribute.VERSION: run.policy_version,
    }
