"""The audit: each write of a caller, noted in its own transaction under the name of the caller's key.

Entries are only ever added. The database refuses to change one, and to delete one unless a pruning, which stays, gave
leave (`prune`). An entry holds ids and nothing that was said, so that a deletion of a session leaves it as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Literal

from sqlalchemy import delete, func, select
from sqlalchemy.ext.asyncio import AsyncSession

from slipstream.store.tables.audit import AuditPruningRow, AuditRow
from slipstream.tenants import name_of, tenant_of

_MOST_REFS = 20
"""Names that an entry keeps: a feedback may name a thousand answers, and an entry has to stay small for a year."""

_DAY = 86400.0
"""Seconds. Entries go by whole days, so that a year leaves 365 rows of prunings and not half a million."""


class Action(StrEnum):
    """Kind of a write."""

    FEEDBACK = "feedback"
    MARK = "mark"
    PREFERENCE = "preference"
    COMMIT = "commit"
    ERASURE = "erasure"
    IMPORT = "import"
    RUN_END = "run_end"
    FACADE_FEEDBACK = "facade_feedback"
    SERVING_SHARE = "serving_share"
    SERVING_KILL = "serving_kill"
    SERVING_REVIVE = "serving_revive"
    ROLLOUT_OPEN = "rollout_open"
    ROLLOUT_BEGIN = "rollout_begin"
    ROLLOUT_ASK = "rollout_ask"
    ROLLOUT_ADVANCE = "rollout_advance"
    ROLLOUT_HOLD = "rollout_hold"
    ROLLOUT_PAUSE = "rollout_pause"
    ROLLOUT_RESUME = "rollout_resume"
    ROLLOUT_PROMOTE = "rollout_promote"
    ROLLOUT_ROLL_BACK = "rollout_roll_back"
    ROLLOUT_ABORT = "rollout_abort"
    ROLLOUT_REPLACE = "rollout_replace"
    EXPERIMENT_START = "experiment_start"
    EXPERIMENT_BEGIN = "experiment_begin"
    EXPERIMENT_SETTLE = "experiment_settle"
    EXPERIMENT_DECIDE = "experiment_decide"
    EXPERIMENT_INCONCLUDE = "experiment_inconclude"
    EXPERIMENT_STOP = "experiment_stop"
    EXPERIMENT_FAIL = "experiment_fail"
    EXPERIMENT_SWITCH = "experiment_switch"
    VERSION_KEEP = "version_keep"
    VERSION_RELEASE = "version_release"
    ALIAS_SET = "alias_set"
    ALIAS_REMOVE = "alias_remove"
    EVALUATION_ASK = "evaluation_ask"
    QUARANTINE_RETRY = "quarantine_retry"
    QUARANTINE_DROP = "quarantine_drop"
    SIGN_IN = "sign_in"
    SIGN_OUT = "sign_out"


@dataclass(frozen=True, slots=True)
class Author:
    """Caller of a write.

    Attributes:
        key: the name of its key; None where no key is asked for.
        tenant: of the key; None for one that reaches all tenants.
    """

    key: str | None
    tenant: str | None


@dataclass(frozen=True, slots=True)
class Write:
    """A write that is to be noted.

    Attributes:
        written: the id of what was written, if it has one.
        kind, refs: what it names, by ids in the store.
    """

    action: Action
    written: str | None
    kind: Literal["session_id", "task_id", "msg_id"] | None = None
    refs: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Wanted:
    """Conditions on the entries of a page; None is no condition.

    Attributes:
        since, until: Unix seconds: from `since` on and before `until`.
    """

    tenant: str | None = None
    key: str | None = None
    action: Action | None = None
    since: float | None = None
    until: float | None = None


async def note(session: AsyncSession, write: Write, by: Author, at: float) -> None:
    """Add an entry, in the transaction of the write itself."""
    tenants = {tenant_of(ref) for ref in write.refs}
    session.add(
        AuditRow(
            at=at,
            action=write.action,
            key=by.key,
            tenant=by.tenant or (tenants.pop() if len(tenants) == 1 else None),
            written=write.written,
            kind=write.kind,
            refs=list(write.refs[:_MOST_REFS]),
            named=len(write.refs),
        )
    )


async def page(
    session: AsyncSession, wanted: Wanted, limit: int, before: int | None = None
) -> tuple[list[dict[str, Any]], int | None]:
    """Entries, the newest first, and where the next page begins; None after the last.

    Args:
        before: that of the page before.
    """
    query = select(AuditRow).order_by(AuditRow.id.desc()).limit(limit + 1)
    for column, value in (
        (AuditRow.tenant, wanted.tenant),
        (AuditRow.key, wanted.key),
        (AuditRow.action, wanted.action),
    ):
        if value is not None:
            query = query.where(column == value)
    if wanted.since is not None:
        query = query.where(AuditRow.at >= wanted.since)
    if wanted.until is not None:
        query = query.where(AuditRow.at < wanted.until)
    if before is not None:
        query = query.where(AuditRow.id < before)
    rows = (await session.scalars(query)).all()
    shown = rows[:limit]
    return [_shown(row) for row in shown], shown[-1].id if len(rows) > limit else None


async def prune(session: AsyncSession, before: float, now: float, limit: int) -> int:
    """Delete entries of whole days before this time, the oldest first; returns how many."""
    day = before // _DAY * _DAY
    due = select(AuditRow.id).where(AuditRow.at < day).order_by(AuditRow.at).limit(limit)
    old = (await session.scalars(due)).all()
    if not old:
        return 0
    if (await session.scalar(select(func.max(AuditPruningRow.before))) or 0.0) < day:
        session.add(AuditPruningRow(before=day, at=now))
        await session.flush()
    await session.execute(delete(AuditRow).where(AuditRow.id.in_(old)).execution_options(synchronize_session=False))
    return len(old)


def _shown(row: AuditRow) -> dict[str, Any]:
    return {
        "id": row.id,
        "at": row.at,
        "action": row.action,
        "key": row.key,
        "tenant": row.tenant,
        "written": row.written,
        "kind": row.kind,
        "names": [name_of(ref) for ref in row.refs],
        "named": row.named,
    }
