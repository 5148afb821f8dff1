"""Calls of agent replays that are under way, in the store: the end of a run may reach another sidecar than its calls.

A row is there from before its call is sent to the Explorer until the agent has the whole answer. One that is left by a
sidecar that is gone tells of an answer that may not have reached its agent. Where a sidecar has the store to itself it
knows what is under way without asking, so that a run's first row stays as the only one: what counts then is that it
has begun.
"""

from __future__ import annotations

from collections.abc import Collection

from sqlalchemy import ColumnElement, delete, exists, select, update
from sqlalchemy.ext.asyncio import AsyncSession

from slipstream.store.states import RunState
from slipstream.store.tables.runs import InFlightCallRow, RunRow


async def begin(session: AsyncSession, run_pk: int, sidecar: int) -> int | None:
    """A run begins a call. Returns the row's number, or None where the run is not open."""
    begun = update(RunRow).where(RunRow.id == run_pk, RunRow.state == RunState.OPEN).values(called=True)
    if not (await session.execute(begun)).rowcount:  # type: ignore[attr-defined]
        return None
    row = InFlightCallRow(run_pk=run_pk, owner=sidecar, reading=False)
    session.add(row)
    await session.flush()
    return row.id


async def note_reading(session: AsyncSession, pk: int) -> None:
    """The agent is about to have a part of the answer."""
    await session.execute(update(InFlightCallRow).where(InFlightCallRow.id == pk).values(reading=True))


async def end(session: AsyncSession, pks: Collection[int]) -> None:
    """Nothing is left to be told of these calls."""
    await session.execute(delete(InFlightCallRow).where(InFlightCallRow.id.in_(pks)))


async def end_of_runs(session: AsyncSession, run_pks: Collection[int]) -> None:
    """Runs have ended: whatever is under way for them is nobody's."""
    await session.execute(delete(InFlightCallRow).where(InFlightCallRow.run_pk.in_(run_pks)))


async def read_elsewhere(session: AsyncSession, run_pk: int, sidecar: int) -> bool:
    """Return whether another sidecar has sent the run's agent a part of an answer, and not yet all of it."""
    theirs = exists().where(InFlightCallRow.run_pk == run_pk, InFlightCallRow.owner != sidecar, InFlightCallRow.reading)
    return bool(await session.scalar(select(theirs)))


def elsewhere(sidecar: int) -> ColumnElement[bool]:
    """Return the condition that another sidecar has a call of a `RunRow` under way."""
    return exists().where(InFlightCallRow.run_pk == RunRow.id, InFlightCallRow.owner != sidecar)


async def left_by(session: AsyncSession, sidecars: Collection[int]) -> list[int]:
    """The open runs that these sidecars had begun a call of, whose answer may not have reached its agent, or whose
    endpoint they waited for, so that its agent's end reaches nobody."""
    theirs = exists().where(InFlightCallRow.run_pk == RunRow.id, InFlightCallRow.owner.in_(sidecars))
    waited_for = RunRow.called & RunRow.owner.in_(sidecars)
    return list(await session.scalars(select(RunRow.id).where(RunRow.state == RunState.OPEN, theirs | waited_for)))
