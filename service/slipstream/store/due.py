"""The earliest time at which something of each kind is to be done: what the stages need not look for before."""

from __future__ import annotations

from typing import NamedTuple

from sqlalchemy import ScalarSelect, exists, func, select
from sqlalchemy.ext.asyncio import AsyncSession

from slipstream.store import outbox
from slipstream.store.states import OPEN_EVALUATIONS, RunState, TaskState
from slipstream.store.tables.capture import TaskRow
from slipstream.store.tables.evaluations import EvaluationRow
from slipstream.store.tables.experiments import ExperimentRow
from slipstream.store.tables.outbox import WebhookDeliveryRow
from slipstream.store.tables.rollouts import RolloutRow
from slipstream.store.tables.runs import RunRow


class Earliest(NamedTuple):
    """Times in Unix seconds; None where there is nothing of that kind.

    Attributes:
        undecided: a complete task waits for its decision.
        called: when the last call came of the open task that has waited longest for another one.
        pending: when the first pending run may be sent.
        answered: when the first answered run may be scored.
        open: when the first open run is given up.
        evaluation: one is open: its server may have come back, or its budget have room.
        rollout: there is one that something is decided about: its time goes on without a write.
        experiment: the same.
        event: one was written that receivers of webhooks were not given yet.
        delivery: when a receiver may first be told of one.
    """

    undecided: bool = False
    called: float | None = None
    pending: float | None = None
    answered: float | None = None
    open: float | None = None
    rollout: bool = False
    evaluation: bool = False
    experiment: bool = False
    event: bool = False
    delivery: float | None = None


def _of_runs(state: RunState) -> ScalarSelect[float | None]:
    return select(func.min(RunRow.due_at)).where(RunRow.state == state).scalar_subquery()


_undecided = TaskRow.decided.is_(False)  # in the words of its index
_QUERY = select(
    exists().where(TaskRow.state == TaskState.COMPLETE, _undecided),
    select(func.min(TaskRow.updated_at)).where(TaskRow.state == TaskState.OPEN, _undecided).scalar_subquery(),
    *map(_of_runs, (RunState.PENDING, RunState.ANSWERED, RunState.OPEN)),
    exists().where(RolloutRow.ended_at.is_(None)),
    exists().where(EvaluationRow.state.in_(OPEN_EVALUATIONS)),
    exists().where(ExperimentRow.ended_at.is_(None)),
    outbox.new().exists(),
    select(func.min(WebhookDeliveryRow.due_at)).scalar_subquery(),
)
"""A few steps in indexes."""


async def earliest(session: AsyncSession) -> Earliest:
    """Look in the store."""
    return Earliest(*(await session.execute(_QUERY)).one())
