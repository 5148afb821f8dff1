"""Feedback as it is read: its receipt, and what was said of answers."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import InstrumentedAttribute

from slipstream.store.feedback import has_effect
from slipstream.store.tables.capture import CallRow
from slipstream.store.tables.feedback import FeedbackRow, FeedbackTargetRow
from slipstream.store.tables.runs import GroupRow, RunRow
from slipstream.tenants import name_of, tenant_of
from slipstream.trajectory import Feedback


async def receipt(session: AsyncSession, feedback_id: str, tenant: str | None = None) -> dict[str, Any] | None:
    """Return the state of a feedback, or None if there is none of this id.

    Args:
        tenant: that posted it; None for any.
    """
    row = await session.get(FeedbackRow, feedback_id)
    if row is None:
        return None
    answered = (
        select(FeedbackTargetRow, func.coalesce(CallRow.task_id, GroupRow.task_id))
        .outerjoin(CallRow, CallRow.id == FeedbackTargetRow.call_pk)
        .outerjoin(RunRow, RunRow.id == FeedbackTargetRow.run_pk)
        .outerjoin(GroupRow, GroupRow.id == RunRow.group_id)
        .where(FeedbackTargetRow.feedback_id == feedback_id)
    )
    targets = (await session.execute(answered.order_by(FeedbackTargetRow.id))).all()
    if tenant is not None and any(tenant_of(target.ref) != tenant for target, _ in targets):
        return None
    return {
        "id": row.id,
        "reward": row.reward,
        "counts_as": row.reward if row.counts_as is None else row.counts_as,
        "rating": row.rating,
        "thumbs": row.thumbs,
        "comment": row.comment,
        "source": row.source,
        "created_at": row.created_at,
        "targets": [
            {
                "task_id": None if task_id is None else name_of(task_id),
                target.kind: name_of(target.ref),
                "state": target.state,
                "matched_to": target.matched_to,
            }
            for target, task_id in targets
        ],
    }


_MOST = 100
"""Newest feedback on the calls, and on the runs, of a task that is shown with it."""


async def of_task(session: AsyncSession, ref: str, *, content: bool) -> list[dict[str, Any]]:
    """The feedback on the answers of a task, the newest first: at most `_MOST` each on its calls and its runs.

    Args:
        content: whether comments and sources are shown.
    """
    calls = select(CallRow.id).where(CallRow.task_id == ref)
    runs = select(RunRow.id).join(GroupRow, GroupRow.id == RunRow.group_id).where(GroupRow.task_id == ref)
    found: list[tuple[FeedbackTargetRow, FeedbackRow]] = []
    for named in (FeedbackTargetRow.call_pk.in_(calls), FeedbackTargetRow.run_pk.in_(runs)):
        query = select(FeedbackTargetRow, FeedbackRow).join(FeedbackRow).where(named)
        found += [
            (target, row)
            for target, row in await session.execute(query.order_by(FeedbackTargetRow.id.desc()).limit(_MOST))
        ]
    found.sort(key=lambda each: each[0].id, reverse=True)
    return [
        {
            "id": row.id,
            target.kind: name_of(target.ref),
            "state": target.state,
            "matched_to": target.matched_to,
            "reward": row.reward,
            "rating": row.rating,
            "thumbs": row.thumbs,
            "created_at": row.created_at,
            "key": row.key,
        }
        | ({"comment": row.comment, "source": row.source} if content else {})
        for target, row in found
    ]


async def about_runs(session: AsyncSession, run_pks: Collection[int]) -> dict[int, tuple[Feedback, ...]]:
    """The feedback on policy answers, by the row of the run, oldest first."""
    return await _about(session, FeedbackTargetRow.run_pk, run_pks)


async def about_calls(session: AsyncSession, call_pks: Collection[int]) -> dict[int, tuple[Feedback, ...]]:
    """The feedback on production answers, by the row of the call, oldest first."""
    return await _about(session, FeedbackTargetRow.call_pk, call_pks)


async def _about(
    session: AsyncSession, named: InstrumentedAttribute[int | None], pks: Collection[int]
) -> dict[int, tuple[Feedback, ...]]:
    query = (
        select(named, FeedbackRow)
        .join(FeedbackTargetRow, FeedbackTargetRow.feedback_id == FeedbackRow.id)
        .where(named.in_(pks), has_effect())
        .order_by(FeedbackTargetRow.id)
    )
    about: dict[int, dict[str, Feedback]] = {}  # by the post, for one may name each answer of a replay
    for pk, row in await session.execute(query):
        assert pk is not None, "as asked for"
        counted = row.reward if row.counts_as is None else row.counts_as
        said = Feedback(counted, row.comment, row.source, row.created_at)
        about.setdefault(pk, {}).setdefault(row.id, said)
    return {pk: tuple(said.values()) for pk, said in about.items()}
