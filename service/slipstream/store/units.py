"""Units: how the requests of each user, session or conversation went, by the version that was compared."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from sqlalchemy import delete, func, select
from sqlalchemy.ext.asyncio import AsyncSession

from slipstream.serving.served import Served
from slipstream.store.bulk import insert_rows, update_rows
from slipstream.store.tables.serving import UnitRow

_AT_ONCE = 500
"""Names in one query: databases bound the parameters of a statement."""

_COLUMNS = ("version", "unit", "arm", "epoch", "first_at", "last_at", "moved_at", "calls", "failures", "fallbacks",
            "slowest", "sampled")  # fmt: skip
_CHANGING = ("first_at", "last_at", "moved_at", "calls", "failures", "fallbacks", "slowest")


class Outcome(NamedTuple):
    """Outcome of a request in an arm.

    Attributes:
        started_at: Unix seconds.
    """

    started_at: float
    served: Served


class _Counted:
    """A unit while a batch is counted."""

    def __init__(self, outcome: Outcome) -> None:
        served = outcome.served
        self.id: int | None = None
        self.arm: str | None = served.arm
        self.epoch = served.epoch
        self.first_at = self.last_at = outcome.started_at
        self.moved_at: float | None = None
        self.calls = self.failures = self.fallbacks = 0
        self.slowest = 0.0
        self.sampled = not served.alone

    @classmethod
    def stored(cls, row: UnitRow, outcome: Outcome) -> _Counted:
        counted = cls(outcome)
        counted.id, counted.arm, counted.epoch = row.id, row.arm, row.epoch
        counted.first_at, counted.last_at, counted.moved_at = row.first_at, row.last_at, row.moved_at
        counted.calls, counted.failures, counted.fallbacks = row.calls, row.failures, row.fallbacks
        counted.slowest = row.slowest
        return counted

    def add(self, outcome: Outcome) -> None:
        served = outcome.served
        if served.arm != self.arm:
            self.moved_at = outcome.started_at if self.moved_at is None else self.moved_at
            return
        if served.epoch == self.epoch:  # calls come as they end, one of an earlier comparison perhaps among them
            self.first_at = min(self.first_at, outcome.started_at)
        self.last_at = max(self.last_at, outcome.started_at)
        self.calls += 1
        self.failures += served.failed
        self.fallbacks += served.fell_back
        self.slowest = max(self.slowest, served.waited)


async def add(session: AsyncSession, outcomes: Sequence[Outcome]) -> None:
    """Count these requests, in their order. No other transaction writes meanwhile."""
    by_unit: dict[tuple[int, str], list[Outcome]] = {}
    for outcome in outcomes:
        if (name := outcome.served.unit_name) is not None:
            by_unit.setdefault((outcome.served.version, name), []).append(outcome)
    stored = await _stored(session, list(by_unit))
    new, changed = [], []
    for (version, unit), several in by_unit.items():
        row = stored.get((version, unit))
        counted = _Counted(several[0]) if row is None else _Counted.stored(row, several[0])
        for outcome in several:
            counted.add(outcome)
        counts = counted.calls, counted.failures, counted.fallbacks, counted.slowest
        if counted.id is None:
            times = counted.first_at, counted.last_at, counted.moved_at
            new.append((version, unit, counted.arm, counted.epoch, *times, *counts, counted.sampled))
        else:
            changed.append((counted.first_at, counted.last_at, counted.moved_at, *counts, counted.id))
    await insert_rows(session, UnitRow, _COLUMNS, new)
    await update_rows(session, UnitRow, _CHANGING, changed)


async def counts(session: AsyncSession, version: int) -> dict[str, dict[str, int]]:
    """Units, calls, failures and fallbacks of a version's comparison, by arm."""
    sums = func.count(), func.sum(UnitRow.calls), func.sum(UnitRow.failures), func.sum(UnitRow.fallbacks)
    query = select(UnitRow.arm, *sums).where(UnitRow.version == version).group_by(UnitRow.arm)
    names = ("units", "calls", "failures", "fallbacks")
    found = {arm: dict(zip(names, map(int, some), strict=True)) for arm, *some in await session.execute(query)}
    return {arm: found.get(arm, dict.fromkeys(names, 0)) for arm in ("control", "treatment")}


async def delete_older(session: AsyncSession, before: float, limit: int) -> int:
    """Delete units without a request since this time, the oldest first; returns how many."""
    due = select(UnitRow.id).where(UnitRow.last_at < before).order_by(UnitRow.last_at).limit(limit)
    old = (await session.scalars(due)).all()
    if old:
        await session.execute(delete(UnitRow).where(UnitRow.id.in_(old)).execution_options(synchronize_session=False))
    return len(old)


async def _stored(session: AsyncSession, names: Sequence[tuple[int, str]]) -> dict[tuple[int, str], UnitRow]:
    versions = {version for version, _ in names}
    found = {}
    for version in versions:
        units = [unit for of, unit in names if of == version]
        for at in range(0, len(units), _AT_ONCE):
            some = select(UnitRow).where(UnitRow.version == version, UnitRow.unit.in_(units[at : at + _AT_ONCE]))
            for row in await session.scalars(some):
                found[version, row.unit] = row
    return found
