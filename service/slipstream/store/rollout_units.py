"""Units of a rollout or an experiment: those whose value is still open, and those that are counted, in the order of
assignment."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

from sqlalchemy import delete, exists, func, select
from sqlalchemy.ext.asyncio import AsyncSession

from slipstream.store.bulk import batches
from slipstream.store.tables.capture import CallRow
from slipstream.store.tables.experiments import ExperimentRow, ExperimentUnitRow
from slipstream.store.tables.rollouts import RolloutRow, RolloutUnitRow
from slipstream.store.tables.serving import UnitRow

V = TypeVar("V")

TREATMENT = "treatment"

_LATE = 3600.0
"""Seconds by which a unit may be recorded after one that was assigned later: longer than any answer takes."""


class AssignedUnit(NamedTuple):
    """A unit that was assigned, as the Recorder has seen it so far.

    Attributes:
        first_at, last_at: when its first call began, and the last one in the same arm; Unix seconds.
        failures: calls that no one answered, or that production had to answer in the version's place.
        first_byte: the longest wait for a first byte, in seconds.
        sampled: `capture.rate` takes its calls.
    """

    unit: str
    treated: bool
    first_at: float
    last_at: float
    failures: int
    first_byte: float
    sampled: bool


class UnitValues(NamedTuple):
    """The values of a unit, in [0, 1]; None for one that it has not, by a reason that no arm decides."""

    failure: float
    latency: float
    format: float | None
    reward: float | None
    feedback: float
    component: float | None


class StoredCall(NamedTuple):
    """A call of a unit, by its place in the store."""

    id: int
    task_id: str
    position: int


class CountedUnit(NamedTuple, Generic[V]):
    """A unit whose value is final."""

    id: int
    treated: bool
    first_at: float
    values: V


@dataclass(frozen=True)
class UnitLedger(Generic[V]):
    """The counted units of one kind of comparison.

    Attributes:
        rows: the table of the units.
        of: its column that names the comparison.
        comparisons: the table of the comparisons.
        read: makes the values of a row.
    """

    rows: Any
    of: Any
    comparisons: Any
    read: Callable[[Any], V]


def _rollout_values(row: RolloutUnitRow) -> UnitValues:
    return UnitValues(row.failure, row.latency, row.format, row.reward, row.feedback, row.component)


def _measured(row: ExperimentUnitRow) -> Mapping[str, float | None]:
    return row.measured


OF_ROLLOUTS = UnitLedger(RolloutUnitRow, RolloutUnitRow.rollout_id, RolloutRow, _rollout_values)
OF_EXPERIMENTS = UnitLedger(ExperimentUnitRow, ExperimentUnitRow.experiment_id, ExperimentRow, _measured)


async def begin_anew(session: AsyncSession, version: int) -> None:
    """Forget the units of an earlier comparison of this version: its keys are to be assigned again."""
    old = delete(UnitRow).where(UnitRow.version == version)
    await session.execute(old.execution_options(synchronize_session=False))


async def uncounted(
    session: AsyncSession, ledger: UnitLedger[Any], comparison: int, version: int, since: float, now: float, limit: int
) -> list[AssignedUnit]:
    """Units that are not counted yet, in the order of assignment. One that was assigned by a clock that was ahead is
    left out until its time has come.

    Args:
        comparison: the id of the rollout or the experiment.
        since: when its first users were assigned, Unix seconds.
        now: Unix seconds.
    """
    rows = ledger.rows
    newest = select(rows.first_at).where(ledger.of == comparison)
    last = await session.scalar(newest.order_by(rows.id.desc()).limit(1))
    counted = exists().where(ledger.of == comparison, rows.unit == UnitRow.unit)
    query = select(
        UnitRow.unit, UnitRow.arm, UnitRow.first_at, UnitRow.last_at, UnitRow.failures, UnitRow.fallbacks,
        UnitRow.slowest, UnitRow.sampled,
    )  # fmt: skip
    # the last one may be of a clock that was ahead
    earliest = max(since, min(last or 0.0, now) - _LATE)
    query = query.where(UnitRow.version == version, UnitRow.first_at.between(earliest, now), ~counted)
    found = await session.execute(query.order_by(UnitRow.first_at, UnitRow.id).limit(limit))
    return [
        AssignedUnit(unit, arm == TREATMENT, first_at, last_at, failures + fallbacks, slowest, sampled)
        for unit, arm, first_at, last_at, failures, fallbacks, slowest, sampled in found
    ]


async def count(
    session: AsyncSession,
    ledger: UnitLedger[Any],
    comparison: int,
    units: Sequence[tuple[AssignedUnit, Mapping[str, Any]]],
) -> bool:
    """Write the final values of units, in their order. Returns False if the comparison has ended meanwhile.

    Args:
        units: each with its values by the ledger's columns.
    """
    whole = ledger.comparisons
    if await session.scalar(select(whole.ended_at).where(whole.id == comparison)) is not None:
        return False
    for unit, values in units:
        row = ledger.rows(unit=unit.unit, treated=unit.treated, first_at=unit.first_at, **values)
        setattr(row, ledger.of.key, comparison)
        session.add(row)
        await session.flush()  # one after the other: their numbers are their order
    return True


async def counted_after(
    session: AsyncSession, ledger: UnitLedger[V], comparison: int, last: int, limit: int
) -> list[CountedUnit[V]]:
    """Counted units in their order, from the one after this number on."""
    query = select(ledger.rows).where(ledger.of == comparison, ledger.rows.id > last)
    rows = await session.scalars(query.order_by(ledger.rows.id).limit(limit))
    return [CountedUnit(row.id, row.treated, row.first_at, ledger.read(row)) for row in rows]


async def reward_sums(session: AsyncSession, rollout: int, limit: int) -> dict[bool, tuple[int, float, float]]:
    """The rewards of the newest counted units of a rollout: their number, their sum and that of their squares, by
    whether the version answered them."""
    newest = select(RolloutUnitRow.treated, RolloutUnitRow.reward).where(RolloutUnitRow.rollout_id == rollout)
    some = newest.order_by(RolloutUnitRow.id.desc()).limit(limit).subquery()
    reward = some.c.reward
    query = select(some.c.treated, func.count(), func.sum(reward), func.sum(reward * reward))
    rows = await session.execute(query.where(reward.is_not(None)).group_by(some.c.treated))
    return {bool(treated): (number, total, squares) for treated, number, total, squares in rows}


async def delete_older(session: AsyncSession, ledger: UnitLedger[Any], before: float, limit: int) -> int:
    """Delete counted units of comparisons that ended before this time; returns how many. What they proved stays with
    the decisions."""
    ended = select(ledger.comparisons.id).where(ledger.comparisons.ended_at < before)
    due = select(ledger.rows.id).where(ledger.of.in_(ended)).limit(limit)
    old = (await session.scalars(due)).all()
    if old:
        gone = delete(ledger.rows).where(ledger.rows.id.in_(old))
        await session.execute(gone.execution_options(synchronize_session=False))
    return len(old)


async def calls_of(
    session: AsyncSession, units: Sequence[AssignedUnit], until: Callable[[AssignedUnit], float]
) -> dict[str, list[StoredCall]]:
    """The stored calls of units that count: those in the unit's arm, in their order.

    Args:
        until: the time after which no call of a unit counts, in Unix seconds.
    """
    named = {unit.unit: unit for unit in units}
    found: dict[str, list[StoredCall]] = {unit: [] for unit in named}
    columns = select(CallRow.id, CallRow.task_id, CallRow.position, CallRow.unit, CallRow.arm, CallRow.started_at)
    for some in batches(list(named)):
        of_these = columns.where(CallRow.unit.in_(some)).order_by(CallRow.id)
        for call, task_id, position, name, arm, started_at in await session.execute(of_these):
            unit = named[name or ""]
            if unit.treated == (arm == TREATMENT) and unit.first_at <= started_at <= until(unit):
                found[unit.unit].append(StoredCall(call, task_id, position))
    return found
