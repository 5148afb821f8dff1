"""Rows that one sidecar at a time works on. One whose sidecar is gone is free."""

from __future__ import annotations

from sqlalchemy import ColumnElement, or_, select, update
from sqlalchemy.ext.asyncio import AsyncSession

from slipstream.store.tables.evaluations import EvaluationRow
from slipstream.store.tables.experiments import ExperimentRow
from slipstream.store.tables.rollouts import RolloutRow
from slipstream.store.tables.sidecars import SidecarRow

Table = type[EvaluationRow] | type[ExperimentRow] | type[RolloutRow]


async def claim(session: AsyncSession, table: Table, row_id: int, sidecar: int, *only: ColumnElement[bool]) -> bool:
    """Make a row a sidecar's own, if it is no other one's that is alive. Returns False if it is.

    Args:
        only: if these hold as well.
    """
    free = or_(table.owner.is_(None), table.owner == sidecar, table.owner.not_in(select(SidecarRow.id)))
    taken = update(table).where(table.id == row_id, free, *only).values(owner=sidecar).returning(table.id)
    return (await session.execute(taken.execution_options(synchronize_session=False))).scalar() is not None
