"""The share of users that a version of the policy answers: one row, which decisions change in their own transaction."""

from __future__ import annotations

import secrets
from dataclasses import dataclass

from sqlalchemy.ext.asyncio import AsyncSession

from slipstream.store import events
from slipstream.store.tables.serving import ServingRow

_ID = 1


@dataclass(frozen=True, slots=True)
class Serving:
    """The share that holds now.

    Attributes:
        version: None before there was any.
        share: of the units, from 0 to 1.
        salt: seed of the units' hashes, 64 bits; 0 before the first change.
        killed: production answers everybody, whatever the share.
        epoch: rises with each change.
        lane_step: the number that the lane's metrics must show; None for any.
        lane: the base URL of the lane that this is for; None for any.
        changed_at: Unix seconds; None before the first change.
    """

    version: int | None = None
    share: float = 0.0
    salt: int = 0
    killed: bool = False
    epoch: int = 0
    lane_step: int | None = None
    lane: str | None = None
    changed_at: float | None = None


async def current(session: AsyncSession) -> Serving:
    """Return the share that holds now. Before the first change nothing is served."""
    row = await session.get(ServingRow, _ID)
    return Serving() if row is None else _read(row)


async def serve(
    session: AsyncSession, version: int | None, share: float, lane_step: int | None, now: float, lane: str | None = None
) -> Serving:
    """Have a version answer this share of the units. A kill stays until it is taken back.

    Args:
        lane_step: the number that the lane's metrics must show before any user goes there; None for any.
        lane: the base URL of the lane that this is for; None for any.

    Raises:
        ValueError: no share, or a share of no version.
    """
    if not 0 <= share <= 1 or (version is None and share > 0) or (version is not None and version < 0):
        raise ValueError(f"expected a version and a share from 0 to 1, found {version} and {share}")
    row = await _row(session, now)
    row.version, row.share, row.lane_step, row.lane = version, share, lane_step, lane
    return await _changed(session, row, now)


async def kill(session: AsyncSession, now: float) -> Serving:
    """Have production answer everybody, until `revive`."""
    return await _switched(session, now, killed=True)


async def revive(session: AsyncSession, now: float) -> Serving:
    """Take a kill back: the share of before holds again."""
    return await _switched(session, now, killed=False)


async def _switched(session: AsyncSession, now: float, *, killed: bool) -> Serving:
    row = await _row(session, now)
    turned, row.killed = row.killed is not killed, killed
    found = await _changed(session, row, now)
    if turned:
        await events.of_switch(session, row, now)
    return found


async def _row(session: AsyncSession, now: float) -> ServingRow:
    row = await session.get(ServingRow, _ID)
    if row is None:
        row = ServingRow(id=_ID, share=0.0, salt=secrets.token_hex(8), killed=False, epoch=0, changed_at=now)
        session.add(row)
    return row


async def _changed(session: AsyncSession, row: ServingRow, now: float) -> Serving:
    row.epoch += 1
    row.changed_at = now
    await session.flush()
    return _read(row)


def _read(row: ServingRow) -> Serving:
    return Serving(
        version=row.version,
        share=row.share,
        salt=int(row.salt, 16),
        killed=row.killed,
        epoch=row.epoch,
        lane_step=row.lane_step,
        lane=row.lane,
        changed_at=row.changed_at,
    )
