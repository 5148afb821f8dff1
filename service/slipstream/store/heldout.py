"""Held-out calls: the first or the last calls of tasks that no version was trained on, by the newest sessions."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, exists, func, or_, select
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import aliased

from slipstream.jsontext import to_json
from slipstream.selection.held_out import is_held_out
from slipstream.store import imports
from slipstream.store.tables.capture import CallRow, TaskRow
from slipstream.store.tables.evaluations import EvaluationCaseRow, EvaluationRow
from slipstream.store.tables.runs import GroupRow

MOST_TASKS = 20
"""Tasks of one session that become cases: one of hundreds would be most of the suite."""

_PAGE = 500


class HeldOutCall(NamedTuple):
    """A call, by its place in the store; `session` is that of its task, with its tenant, and `key` that of `key_of`."""

    id: int
    task_id: str
    session: str
    key: str


def key_of(call_id: int, task_id: str, started_at: float, metadata: Mapping[str, Any]) -> str:
    """Name a call and what is known of its right answer: after a change of either it is another case.

    The number alone does not name a call, because SQLite gives that of a deleted one to another.
    """
    return hashlib.sha256(to_json([call_id, task_id, started_at, metadata])).hexdigest()[:32]


async def newest(
    session: AsyncSession, suite: str, sessions: int, share: float = 0.0, *, last_calls: bool = False
) -> list[HeldOutCall]:
    """Held-out calls of so many sessions at most.

    Those of the suite's last evaluation come first, as far as they are still held out, so that versions are compared
    on the same cases for as long as these are stored.

    Args:
        share: `datasets.held_out`. If it is not 0, only sessions that it holds out: a data set may have been made of
            the others, though no task of theirs has a run.
        last_calls: the last call of each task instead of its first.
    """
    other = aliased(CallRow)
    position: ColumnElement[bool] = CallRow.position == 0
    if last_calls:
        position = ~exists().where(other.task_id == CallRow.task_id, other.position > CallRow.position)
    last = select(func.max(EvaluationRow.id)).where(EvaluationRow.suite == suite, EvaluationRow.begun_at.is_not(None))
    before = select(EvaluationCaseRow.call_id).where(
        EvaluationCaseRow.evaluation_id == last.scalar_subquery(), EvaluationCaseRow.call_id.is_not(None)
    )
    trained = select(TaskRow.session_id).join(GroupRow, GroupRow.task_id == TaskRow.id)
    fits = (
        TaskRow.decided.is_(True),
        ~exists().where(GroupRow.task_id == TaskRow.id),
        position,
        CallRow.problem.is_(None),
        or_(CallRow.variant.is_(None), CallRow.variant == "production"),
        or_(TaskRow.reason.is_(None), TaskRow.reason != imports.REASON),  # they are no live traffic
    )
    columns = select(CallRow.id, CallRow.task_id, TaskRow.session_id, CallRow.started_at, TaskRow.meta)
    columns = columns.join(TaskRow, TaskRow.id == CallRow.task_id)
    found: dict[str, list[HeldOutCall]] = {}
    fitting = columns.where(*fits)
    for query, behind, known in (
        (fitting.where(CallRow.id.in_(before)).order_by(CallRow.id), CallRow.id.__gt__, True),
        (fitting.order_by(CallRow.id.desc()), CallRow.id.__lt__, False),
    ):
        page = query.limit(_PAGE)
        while known or len(found) < sessions:  # of those before, each page may have more of the same sessions
            rows = (await session.execute(page)).all()
            names = {row.session_id for row in rows}
            spoiled = set(await session.scalars(trained.where(TaskRow.session_id.in_(names)))) if names else set()
            for call, task_id, of, started_at, metadata in rows:
                if share and not is_held_out(of, share):
                    continue
                if of in spoiled or (of not in found and len(found) >= sessions):
                    continue
                calls = found.setdefault(of, [])
                if len(calls) < MOST_TASKS and all(call != each.id for each in calls):
                    calls.append(HeldOutCall(call, task_id, of, key_of(call, task_id, started_at, metadata)))
            if len(rows) < _PAGE:
                break
            page = query.where(behind(rows[-1].id)).limit(_PAGE)
    return [call for calls in found.values() for call in calls]


async def task_of(session: AsyncSession, call_id: int) -> tuple[str, int] | None:
    """The task of a call, and the call's place in it; None if it was deleted."""
    row = (await session.execute(select(CallRow.task_id, CallRow.position).where(CallRow.id == call_id))).one_or_none()
    return None if row is None else (row.task_id, row.position)
