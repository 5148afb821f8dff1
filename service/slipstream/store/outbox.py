"""The outbox of webhooks: events, from the decision that each tells of until its receivers have it.

An event is written in the transaction of its decision, given to the receivers that are configured when it is taken up,
and deleted once each of them has it, or when it is too old.

A receiver gets one event at a time, of all sidecars together: the oldest that is due.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Select, delete, exists, func, or_, select, update
from sqlalchemy.ext.asyncio import AsyncSession

from slipstream.store.tables.outbox import WebhookDeliveryRow, WebhookEventRow
from slipstream.store.tables.sidecars import SidecarRow
from slipstream.webhooks.events import EventType

KEPT = 86400.0
"""Seconds for which an event is tried."""

MOST = 1_000
"""Events that wait at most: decisions that a program makes in a loop must not fill the store."""

LONGEST_PAUSE = 600.0
"""Seconds until an event is tried again, at most."""

_AT_ONCE = 100
"""Events that are given to receivers in one transaction."""

_QUICK = {"synchronize_session": False}


@dataclass(frozen=True, slots=True)
class Delivery:
    """An event that one receiver is to be told now.

    Attributes:
        event: its number in the store.
        name: its id for receivers.
        at: when it happened, in Unix seconds.
        attempts: tries that failed.
    """

    event: int
    receiver: str
    name: str
    type: EventType
    at: float
    data: Mapping[str, Any]
    attempts: int


@dataclass(frozen=True, slots=True)
class Waiting:
    """Events that one receiver has not got yet.

    Attributes:
        count: of the events.
        since: when the oldest of them happened, in Unix seconds; None without any.
        failing_since: the same of those that were tried; None without any.
        error: why the last try of the oldest of those failed.
    """

    receiver: str
    count: int = 0
    since: float | None = None
    failing_since: float | None = None
    error: str | None = None


async def add(session: AsyncSession, kind: EventType, data: Mapping[str, Any], now: float) -> None:
    """Write an event, in the transaction of what it tells of."""
    session.add(WebhookEventRow(name=f"evt_{secrets.token_hex(16)}", type=kind.value, at=now, data=dict(data)))


async def waits(session: AsyncSession, receivers: Collection[str], now: float) -> bool:
    """Return whether there is an event that no receiver was given yet, or one that is due for one of these."""
    due = WebhookDeliveryRow.receiver.in_(receivers) & (WebhookDeliveryRow.due_at <= now)
    return bool(await session.scalar(select(or_(new().exists(), exists().where(due)))))


async def give(session: AsyncSession, receivers: Mapping[str, Collection[EventType]], now: float) -> bool:
    """Give new events to the receivers that want them. Returns True when more may be there.

    Args:
        receivers: the types that each wants, by its name.
    """
    query = select(WebhookEventRow).where(WebhookEventRow.given.is_(False)).order_by(WebhookEventRow.id)
    found = (await session.scalars(query.limit(_AT_ONCE))).all()
    for event in found:
        event.given = True
        wanted = [name for name, types in receivers.items() if event.type in types]
        for name in wanted:
            session.add(WebhookDeliveryRow(event_id=event.id, receiver=name, due_at=now, attempts=0))
        if not wanted:
            await session.delete(event)
    await session.flush()
    return len(found) == _AT_ONCE


async def claim(session: AsyncSession, receiver: str, sidecar: int, now: float) -> Delivery | None:
    """Take the next event for a receiver, in a transaction that is alone; None if none is due, or another sidecar tells
    this receiver something at the moment."""
    alive = select(SidecarRow.id).where(SidecarRow.id != sidecar)
    other = exists().where(WebhookDeliveryRow.receiver == receiver, WebhookDeliveryRow.owner.in_(alive))
    if await session.scalar(select(other)):
        return None
    query = _waiting(WebhookDeliveryRow, WebhookEventRow).where(
        WebhookDeliveryRow.receiver == receiver,
        WebhookDeliveryRow.due_at <= now,
        WebhookEventRow.at > now - KEPT,
    )
    row = (await session.execute(query.order_by(WebhookDeliveryRow.event_id).limit(1))).one_or_none()
    if row is None:
        return None
    delivery, event = row
    delivery.owner = sidecar
    return Delivery(
        event=event.id,
        receiver=receiver,
        name=event.name,
        type=EventType(event.type),
        at=event.at,
        data=event.data,
        attempts=delivery.attempts,
    )


async def delivered(session: AsyncSession, told: Delivery) -> None:
    """Note that a receiver has an event. The last one that had to be told takes the event with it."""
    mine = WebhookDeliveryRow.event_id == told.event
    await session.execute(
        delete(WebhookDeliveryRow).where(mine, WebhookDeliveryRow.receiver == told.receiver).execution_options(**_QUICK)
    )
    left = exists().where(mine).correlate(WebhookEventRow)
    done = delete(WebhookEventRow).where(WebhookEventRow.id == told.event, ~left)
    await session.execute(done.execution_options(**_QUICK))


async def postpone(session: AsyncSession, told: Delivery, sidecar: int, due_at: float, error: str) -> None:
    """Have an event tried again. One that another sidecar took over meanwhile is that one's."""
    later = update(WebhookDeliveryRow).where(
        WebhookDeliveryRow.event_id == told.event,
        WebhookDeliveryRow.receiver == told.receiver,
        WebhookDeliveryRow.owner == sidecar,
    )
    later = later.values(due_at=due_at, attempts=told.attempts + 1, owner=None, error=error)
    await session.execute(later.execution_options(**_QUICK))


async def bring_back(session: AsyncSession, now: float, latest: float) -> int:
    """Have events tried now that were given to receivers by a clock that was set back since, or whose next try is later
    than any pause ends. Returns how many tries.

    Args:
        latest: the time that clocks which only differ may show, in Unix seconds.
    """
    first, again = WebhookDeliveryRow.attempts == 0, WebhookDeliveryRow.due_at > latest + LONGEST_PAUSE
    ahead = update(WebhookDeliveryRow).where(WebhookDeliveryRow.due_at > latest, or_(first, again))
    done = await session.execute(ahead.values(due_at=now).execution_options(**_QUICK))
    return int(done.rowcount)  # type: ignore[attr-defined]


async def drop(session: AsyncSession, now: float, limit: int) -> tuple[int, dict[str, int]]:
    """Delete events that are too old, or too many. Returns how many, and of how many of them each receiver was to be
    told."""
    # the newest one that is too many, of those that are there: numbers have gaps, of those that were told
    surplus = select(WebhookEventRow.id).order_by(WebhookEventRow.id.desc()).offset(MOST).limit(1)
    over = or_(WebhookEventRow.at <= now - KEPT, WebhookEventRow.id <= surplus.scalar_subquery())
    old = (await session.scalars(select(WebhookEventRow.id).where(over).limit(limit))).all()
    if not old:
        return 0, {}
    query = select(WebhookDeliveryRow.receiver, func.count()).where(WebhookDeliveryRow.event_id.in_(old))
    lost = (await session.execute(query.group_by(WebhookDeliveryRow.receiver))).all()
    await session.execute(delete(WebhookEventRow).where(WebhookEventRow.id.in_(old)).execution_options(**_QUICK))
    return len(old), {receiver: int(count) for receiver, count in lost}


async def waiting(session: AsyncSession, receivers: Sequence[str]) -> list[Waiting]:
    """Find the events that each of these receivers has not got yet."""
    found = []
    for receiver in receivers:
        mine = WebhookDeliveryRow.receiver == receiver
        sums = _waiting(func.count(), func.min(WebhookEventRow.at)).where(mine)
        count, since = (await session.execute(sums)).one()
        failed = _waiting(WebhookEventRow.at, WebhookDeliveryRow.error).where(mine, WebhookDeliveryRow.attempts > 0)
        oldest = (await session.execute(failed.order_by(WebhookEventRow.id).limit(1))).one_or_none()
        failing_since, error = oldest or (None, None)
        found.append(Waiting(receiver, int(count), since, failing_since, error))
    return found


def new() -> Select[int]:
    """The numbers of events that were not given to receivers yet."""
    return select(WebhookEventRow.id).where(WebhookEventRow.given.is_(False))


def _waiting(*columns: Any) -> Select[Any]:
    """Select of deliveries with their events."""
    query = select(*columns).select_from(WebhookDeliveryRow)
    return query.join(WebhookEventRow, WebhookEventRow.id == WebhookDeliveryRow.event_id)
