"""The tenants that the store knows, and which of them have something of a name."""

from __future__ import annotations

from sqlalchemy import exists, func, select
from sqlalchemy.ext.asyncio import AsyncSession

from slipstream.store.feedback import Kind
from slipstream.store.msg_ids import named_call
from slipstream.store.tables.capture import TaskRow
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
