"""Rows that were written by a clock which was set back since.

What waits for a time of that clock would wait for as long as it was ahead: a run for its next attempt, an answer for
the end of its grace, a task for its idle time, a rollout for the end of its step, an experiment for its own end. Such
rows are moved by as much as they are ahead. A rollout and an experiment that began by that clock count the units that
are assigned from now on, and a version that was promoted by it is watched from now on: else no unit would count.
Webhooks of that clock are sent now. What was spent of a budget counts as spent now: else it would count for longer than
an hour. Feedback counts as posted now: else it would be taken for one about a later answer of its session. A deletion
on request counts as of now, one that waits for a delivery once that has ended (`erasure`): else what its user says next
would not be stored until then. So do the tasks of that clock, because a deletion is never earlier than what it deletes.
What was captured by the clock that was ahead, and is stored later, is still refused: see `recording`. A mark that waits
for a task of that clock is applied: it had expired by that clock, and has not by this one.
"""

from __future__ import annotations

from sqlalchemy import select, update
from sqlalchemy.ext.asyncio import AsyncSession

from slipstream.store import budget, outbox, tasks
from slipstream.store.states import RUNS_UNDER_WAY, FacadeGroupState, TaskState
from slipstream.store.tables.capture import TaskRow
from slipstream.store.tables.experiments import ExperimentRow
from slipstream.store.tables.facade import FacadeGroupRow
from slipstream.store.tables.feedback import FeedbackRow
from slipstream.store.tables.privacy import ErasureRow
from slipstream.store.tables.rollouts import RolloutRow, RolloutUnitRow
from slipstream.store.tables.runs import RunRow

TOLERATED = 5.0
"""Seconds: the clocks of two machines differ, and so little is waited for."""

DELETIONS_TOLERATED = 60.0
"""The same for deletions: where clocks only differ, a deletion must not become earlier than what it deletes."""


async def bring_back(session: AsyncSession, now: float, tolerated: float) -> int:
    """Move what waits and was written later than `now` (Unix seconds) by more than `tolerated` seconds.

    Returns:
        How many rows of what waits.
    """
    latest = now + tolerated
    await budget.bring_back(session, now, latest)
    await session.execute(update(FeedbackRow).where(FeedbackRow.created_at > latest).values(created_at=now))
    begun_ahead = TaskRow.updated_at > latest, TaskRow.created_at > latest  # the first has an index
    brought_back = await session.execute(update(TaskRow).where(*begun_ahead).values(created_at=now))
    if brought_back.rowcount:  # type: ignore[attr-defined]
        await tasks.apply_marks_of_stored(session, now)
    deletions = update(ErasureRow).where(ErasureRow.at > now + max(tolerated, DELETIONS_TOLERATED), ~ErasureRow.pending)
    await session.execute(deletions.values(at=now))
    waiting = RunRow.state.in_(RUNS_UNDER_WAY)
    runs = update(RunRow).where(waiting, RunRow.updated_at > latest)
    runs = runs.values(due_at=RunRow.due_at - (RunRow.updated_at - now), updated_at=now)
    open_tasks = update(TaskRow).where(TaskRow.state == TaskState.OPEN, TaskRow.updated_at > latest)
    groups = update(FacadeGroupRow).where(
        FacadeGroupRow.state == FacadeGroupState.OPEN, FacadeGroupRow.updated_at > latest
    )
    moved = 0
    for statement in (runs, open_tasks.values(updated_at=now), groups.values(updated_at=now)):
        moved += (await session.execute(statement)).rowcount  # type: ignore[attr-defined]
    moved += await outbox.bring_back(session, now, latest)
    return moved + await _bring_back_comparisons(session, now, latest)


async def _bring_back_comparisons(session: AsyncSession, now: float, latest: float) -> int:
    """Move the times of the rollout and of the experiment that are under way. Returns how many."""
    promoted = RolloutRow.ended_at.is_(None), RolloutRow.promoted_at > latest
    # by as much as the promotion: what was assigned before it stays before it, and is not for the detectors
    ahead = select(RolloutRow.promoted_at - now).where(RolloutRow.id == RolloutUnitRow.rollout_id).scalar_subquery()
    units = update(RolloutUnitRow).where(
        RolloutUnitRow.rollout_id.in_(select(RolloutRow.id).where(*promoted)), RolloutUnitRow.first_at > latest
    )
    units = units.values(first_at=RolloutUnitRow.first_at - ahead)
    await session.execute(units.execution_options(synchronize_session=False))
    rollouts = update(RolloutRow).where(RolloutRow.ended_at.is_(None))
    experiments = update(ExperimentRow).where(ExperimentRow.ended_at.is_(None))
    moved = 0
    for statement in (
        rollouts.where(RolloutRow.begun_at > latest).values(begun_at=now),
        rollouts.where(RolloutRow.step_at > latest).values(step_at=now),
        rollouts.where(RolloutRow.promoted_at > latest).values(promoted_at=now),
        experiments.where(ExperimentRow.started_at > latest).values(started_at=now),
        experiments.where(ExperimentRow.begun_at > latest).values(begun_at=now),
        experiments.where(ExperimentRow.settling_at > latest).values(settling_at=now),
    ):
        moved += (await session.execute(statement)).rowcount  # type: ignore[attr-defined]
    return moved
