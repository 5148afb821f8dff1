"""Marks that show whether lists have changed, for those who show them: read by an index, whatever the store holds.

A mark is compared with the one before and never read: where it differs, the list is asked for again. It may differ
without a change that shows. A change that moves none of it, such as the deletion of old tasks by retention, is seen
with the next one that does.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import ColumnElement, Select, func, select
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import InstrumentedAttribute

from slipstream.store.states import OPEN_EVALUATIONS, RUNS_UNDER_WAY, EvaluationState
from slipstream.store.tables.audit import AuditRow
from slipstream.store.tables.capture import TaskRow
from slipstream.store.tables.evaluations import EvaluationAnswerRow, EvaluationRow
from slipstream.store.tables.experiments import ExperimentDecisionRow, ExperimentRow, ExperimentUnitRow
from slipstream.store.tables.feedback import FeedbackTargetRow
from slipstream.store.tables.preferences import PreferenceOfferRow, PreferencePairRow
from slipstream.store.tables.privacy import ErasureRow
from slipstream.store.tables.rollouts import RolloutDecisionRow, RolloutRow, RolloutUnitRow
from slipstream.store.tables.runs import GroupRow, RunRow
from slipstream.store.tables.versions import AliasChangeRow, VersionRow

_MOST = 1000
"""Rows under way that are counted: with more of them, others change as well."""

_NEWEST = 100
"""Versions, and evaluations, whose columns are looked at. What changes in older ones is asked for, and audited."""

Marks = dict[str, tuple[Any, ...]]


async def marks(session: AsyncSession, tenant: str | None = None) -> Marks:
    """The mark of each list, in one statement.

    Args:
        tenant: whose tasks and audited writes are meant; None for those of all.
    """
    tasks, audit = _max(TaskRow.updated_at), _max(AuditRow.id)
    if tenant is not None:
        tasks, audit = tasks.where(TaskRow.tenant == tenant), audit.where(AuditRow.tenant == tenant)
    erased = _max(ErasureRow.at)
    decisions = _max(RolloutDecisionRow.id)
    evaluated = _evaluated()
    parts: dict[str, tuple[Select[Any], ...]] = {
        "tasks": (
            tasks, _max(GroupRow.updated_at), _max(FeedbackTargetRow.id), erased,
            _under_way(TaskRow.id, TaskRow.decided.is_(False)),
            *(_under_way(RunRow.id, RunRow.state == state) for state in RUNS_UNDER_WAY),
        ),
        "versions": (*_versions(), _max(AliasChangeRow.id), decisions, *evaluated),
        "rollouts": (decisions, _max(RolloutUnitRow.id), *_newest(RolloutRow.id, RolloutRow.state, RolloutRow.asked)),
        "experiments": (
            _max(ExperimentDecisionRow.id), _max(ExperimentUnitRow.id), *_newest(ExperimentRow.id, ExperimentRow.state),
        ),
        "preferences": (_max(PreferencePairRow.updated_at), _max(PreferenceOfferRow.id), erased),
        "evaluations": (*evaluated, _answers()),
        "audit": (audit,),
    }  # fmt: skip
    columns = [part.scalar_subquery() for each in parts.values() for part in each]
    found = iter((await session.execute(select(*columns))).one())
    return {name: tuple(str(next(found)) for _ in each) for name, each in parts.items()}


def _max(column: InstrumentedAttribute[Any]) -> Select[Any]:
    """The largest of an indexed column."""
    return select(func.max(column))


def _under_way(key: InstrumentedAttribute[Any], condition: ColumnElement[bool]) -> Select[Any]:
    """The number of rows under way; served by an index."""
    return select(func.count()).select_from(select(key).where(condition).limit(_MOST).subquery())


def _newest(key: InstrumentedAttribute[Any], *columns: InstrumentedAttribute[Any]) -> tuple[Select[Any], ...]:
    """These columns of the newest row."""
    return tuple(select(column).order_by(key.desc()).limit(1) for column in (key, *columns))


def _versions() -> tuple[Select[Any], ...]:
    names = ("version", "state_at", "found_at", "seen_at", "made_at", "kept_at", "replaced_at")
    columns = [getattr(VersionRow, name) for name in (*names, "reward_count", "weights")]
    newest = select(*columns).order_by(VersionRow.version.desc()).limit(_NEWEST).subquery()
    sums = (func.sum(newest.c.reward_count), func.count(newest.c.weights), func.count(newest.c.kept_at))
    return tuple(select(each) for each in (*(func.max(newest.c[name]) for name in names), *sums))


def _evaluated() -> tuple[Select[Any], ...]:
    row = EvaluationRow
    columns = (row.id, row.begun_at, row.ended_at, row.superseded)
    newest = select(*columns).order_by(row.id.desc()).limit(_NEWEST).subquery()
    ended = select(func.count()).select_from(newest).where(newest.c.ended_at.is_not(None))
    superseded = select(func.count()).select_from(newest).where(newest.c.superseded)
    last = tuple(select(func.max(newest.c[name])) for name in ("id", "begun_at", "ended_at"))
    return *last, ended, superseded, _under_way(row.id, row.state.in_(OPEN_EVALUATIONS))


def _answers() -> Select[Any]:
    """The number of answers to the evaluation that is carried out."""
    running = select(EvaluationRow.id).where(EvaluationRow.state == EvaluationState.RUNNING)
    return _under_way(EvaluationAnswerRow.position, EvaluationAnswerRow.evaluation_id.in_(running))
