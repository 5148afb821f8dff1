"""The tenants that the store knows, and which of them have something of a name."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from sqlalchemy import ColumnElement, exists, func, select
from sqlalchemy.ext.asyncio import AsyncSession

from slipstream.store import erasure, quarantine
from slipstream.store.feedback import Kind
from slipstream.store.msg_ids import named_call
from slipstream.store.tables.capture import TaskRow
from slipstream.store.tables.facade import FacadeGroupRow
from slipstream.store.tables.feedback import FeedbackTargetRow, MarkRow
from slipstream.store.tables.preferences import PreferencePairRow
from slipstream.store.tables.privacy import ErasureRow
from slipstream.store.tables.runs import GroupRow, RunCallRow, RunRow
from slipstream.tenants import DEFAULT, qualified, tenant_of


async def tenants(session: AsyncSession) -> list[str]:
    """All that have a task, in the order of their names; by index, a look-up for each, however many tasks there are."""
    first = select(func.min(TaskRow.tenant).label("name")).cte(recursive=True)
    after = select(func.min(TaskRow.tenant)).where(TaskRow.tenant > first.c.name).scalar_subquery()
    each = first.union_all(select(after).where(first.c.name.is_not(None)))
    return list(await session.scalars(select(each.c.name).where(each.c.name.is_not(None))))


async def with_one_named(session: AsyncSession, kind: Kind, name: str) -> list[str]:
    """The tenants that have a session, a task or an answer of this name."""
    known = await tenants(session)
    if known in ([], [DEFAULT]):
        return known
    if kind == "msg_id" and (tenant := await _of_policy_answer(session, name)) is not None:
        return [tenant]
    return [tenant for tenant in known if await _has(session, kind, qualified(tenant, name))]


async def to_delete(
    session: AsyncSession,
    kind: erasure.Kind,
    name: str,
    configured: Iterable[str],
    is_of: Callable[[bytes, erasure.Kind, str], bool],
) -> list[str]:
    """The tenants whose session or task of this name a deletion can mean: those that have anything of it, also what
    outlives its tasks; else those that have deleted it before; else all that are known.

    Args:
        configured: tenants of the keys.
        is_of: says if a packed exchange names a session or a task, by the id in the store.
    """
    judged = await session.scalars(select(PreferencePairRow.tenant).distinct())
    known = sorted({*await tenants(session), *judged, *configured} or {DEFAULT})
    if len(known) == 1:
        return known
    refs = {tenant: qualified(tenant, name) for tenant in known}
    having = [tenant for tenant in known if await _has_data(session, kind, refs[tenant], is_of)]
    return having or [t for t in known if await session.get(ErasureRow, (kind, refs[t])) is not None] or known


async def _has_data(
    session: AsyncSession, kind: erasure.Kind, ref: str, is_of: Callable[[bytes, erasure.Kind, str], bool]
) -> bool:
    """Return whether anything that a deletion reaches is named so."""
    named: list[ColumnElement[bool]] = [(FeedbackTargetRow.kind == kind) & (FeedbackTargetRow.ref == ref)]
    if kind == "session_id":
        named += [TaskRow.session_id == ref, PreferencePairRow.session_ref == ref]
    else:
        named += [column == ref for column in (TaskRow.id, PreferencePairRow.task_ref, MarkRow.task_id)]
        named.append(FacadeGroupRow.task_id == ref)
    for each in named:
        if await session.scalar(select(exists().where(each))):
            return True
    return bool(await quarantine.exchanges_named(session, lambda packed: is_of(packed, kind, ref)))


async def _has(session: AsyncSession, kind: Kind, ref: str) -> bool:
    if kind == "msg_id":
        return await named_call(session, ref) is not None
    column = TaskRow.id if kind == "task_id" else TaskRow.session_id
    return bool(await session.scalar(select(exists().where(column == ref))))


async def _of_policy_answer(session: AsyncSession, msg_id: str) -> str | None:
    shadow = select(GroupRow.task_id).join(RunRow, RunRow.group_id == GroupRow.id)
    replay = shadow.join(RunCallRow, RunCallRow.run_pk == RunRow.id).where(RunCallRow.msg_id == msg_id)
    task_id = await session.scalar(shadow.where(RunRow.msg_id == msg_id)) or await session.scalar(replay)
    return None if task_id is None else tenant_of(task_id)
