"""Pages of tasks, the newest first, by index however many there are."""

from __future__ import annotations

import base64
import binascii
import json
import math
from dataclasses import dataclass
from typing import Any, Literal

from sqlalchemy import ColumnElement, Row, select, tuple_
from sqlalchemy.ext.asyncio import AsyncSession

from slipstream.store.tables.capture import TaskRow
from slipstream.store.tenancy import tenants
from slipstream.tenants import name_of, qualified, tenant_of

_LOOKED_AT = 1000
"""Tasks that are read for a page where labels and states leave some out: a rare label costs a page no more."""

_COLUMNS = (TaskRow.id, TaskRow.session_id, TaskRow.tenant, TaskRow.state, TaskRow.decided, TaskRow.selected,
            TaskRow.reason, TaskRow.labels, TaskRow.created_at, TaskRow.updated_at)  # fmt: skip


class BadCursor(ValueError):
    """No page ended there."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """Conditions on the tasks of a page; None is no condition.

    Attributes:
        tenant: whose.
        session_id: as its tenant knows it.
        label: one that it has, among others.
        since, until: the time of its last call, Unix seconds: from `since` on and before `until`.
    """

    tenant: str | None = None
    session_id: str | None = None
    state: Literal["open", "complete"] | None = None
    selected: bool | None = None
    label: str | None = None
    since: float | None = None
    until: float | None = None

    @property
    def skips(self) -> bool:
        """Return whether tasks may be left out that an index brings."""
        return any(each is not None for each in (self.state, self.selected, self.label))

    def has(self, task: Row[Any]) -> bool:
        """Return whether a task that an index brings is wanted."""
        return (
            self.state in (None, task.state)
            and self.selected in (None, task.selected)
            and (self.label is None or self.label in task.labels)
        )


@dataclass(frozen=True, slots=True)
class Page:
    """Tasks, without what was said in them.

    Attributes:
        next: where the next page begins; None where there is none. There may be one though this has fewer tasks than
            asked for, or none: not more than `_LOOKED_AT` are looked at.
    """

    tasks: list[dict[str, Any]]
    next: str | None


async def page(session: AsyncSession, wanted: Wanted, limit: int, cursor: str | None = None) -> Page:
    """A page of tasks, by the time of their last call.

    Args:
        cursor: `next` of the page before; None for the first one.

    Raises:
        BadCursor: it is none.
    """
    after = None if cursor is None else _position(cursor)
    whose = await tenants(session) if wanted.tenant is None else [wanted.tenant]
    most = _LOOKED_AT if wanted.skips else limit + 1
    found: list[Row[Any]] = []
    for tenant in sorted(whose, reverse=True):  # at the same time in this order
        query = select(*_COLUMNS).where(*_conditions(wanted, tenant, after))
        found += await session.execute(query.order_by(TaskRow.updated_at.desc(), TaskRow.id.desc()).limit(most))
    found.sort(key=lambda task: task.updated_at, reverse=True)  # stable
    taken: list[Row[Any]] = []
    looked_at = 0
    while looked_at < min(len(found), most) and len(taken) < limit:
        task = found[looked_at]
        looked_at += 1
        if wanted.has(task):
            taken.append(task)
    more = looked_at < len(found) or looked_at >= most
    return Page([_shown(task) for task in taken], _cursor(found[looked_at - 1]) if more else None)


def _conditions(wanted: Wanted, tenant: str, after: tuple[float, str] | None) -> list[ColumnElement[bool]]:
    conditions = [TaskRow.tenant == tenant]
    if wanted.session_id is not None:
        conditions = [TaskRow.session_id == qualified(tenant, wanted.session_id)]
    if wanted.since is not None:
        conditions.append(TaskRow.updated_at >= wanted.since)
    if wanted.until is not None:
        conditions.append(TaskRow.updated_at < wanted.until)
    if after is not None:
        at, ref = after
        if tenant == tenant_of(ref):
            conditions.append(tuple_(TaskRow.updated_at, TaskRow.id) < tuple_(at, ref))
        else:
            earlier = TaskRow.updated_at <= at if tenant < tenant_of(ref) else TaskRow.updated_at < at
            conditions.append(earlier)
    return conditions


def _shown(task: Row[Any]) -> dict[str, Any]:
    shown = dict(zip([column.key for column in _COLUMNS], task, strict=True))
    return {"task_id": name_of(shown.pop("id")), **shown, "session_id": name_of(task.session_id)}


def _cursor(task: Row[Any]) -> str:
    return base64.urlsafe_b64encode(json.dumps([task.updated_at, task.id]).encode()).decode().rstrip("=")


def _position(cursor: str) -> tuple[float, str]:
    try:
        at, ref = json.loads(base64.urlsafe_b64decode(cursor + "=="))
        good = isinstance(at, float) and math.isfinite(at) and isinstance(ref, str) and "\0" not in ref
        if not good or not ref.encode():
            raise BadCursor
    except (binascii.Error, ValueError, TypeError, RecursionError) as error:
        raise BadCursor from error
    return at, ref
