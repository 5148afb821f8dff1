"""Pages of tasks, the newest first, by index however many there are."""

from __future__ import annotations

import base64
import binascii
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from sqlalchemy import ColumnElement, Row, select, tuple_
from sqlalchemy.ext.asyncio import AsyncSession

from slipstream.store import said
from slipstream.store.tables.capture import TaskRow
from slipstream.store.task_figures import AT_ONCE, FigureConditions, figures, meeting
from slipstream.store.tenancy import tenants
from slipstream.tenants import name_of, qualified, tenant_of

_LOOKED_AT = 1000
"""Tasks that are read for a page where conditions leave some out: a rare label costs a page no more."""

_LOOKED_THROUGH = 500
"""The same where what was said in each is looked through."""

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
        id_prefix: of the task's id, as its tenant knows it.
        label: one that it has, among others.
        since, until: the time of its last call, Unix seconds: from `since` on and before `until`.
        figures: on its last call and its runs.
        text: said in it, as `said` looks for it.
    """

    tenant: str | None = None
    session_id: str | None = None
    id_prefix: str | None = None
    state: Literal["open", "complete"] | None = None
    selected: bool | None = None
    label: str | None = None
    since: float | None = None
    until: float | None = None
    figures: FigureConditions = field(default_factory=FigureConditions)
    text: str | None = None

    @property
    def most(self) -> int:
        """Return how many tasks are read for a page where conditions leave some out."""
        return _LOOKED_AT if self.text is None else _LOOKED_THROUGH

    @property
    def skips(self) -> bool:
        """Return whether tasks may be left out that an index brings."""
        own = (self.state, self.selected, self.label, self.id_prefix, self.text)
        return self.figures.there_are_some or any(each is not None for each in own)

    def has(self, task: Row[Any]) -> bool:
        """Return whether a task that an index brings is wanted, by what its own row says."""
        return (
            self.state in (None, task.state)
            and self.selected in (None, task.selected)
            and (self.label is None or self.label in task.labels)
            and (self.id_prefix is None or name_of(task.id).startswith(self.id_prefix))
        )


@dataclass(frozen=True, slots=True)
class Page:
    """Tasks, without what was said in them.

    Attributes:
        next: where the next page begins; None where there is none. There may be one though this has fewer tasks than
            asked for, or none: not more than `Wanted.most` are looked at.
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
    most = wanted.most if wanted.skips else limit + 1
    found: list[Row[Any]] = []
    for tenant in sorted(whose, reverse=True):  # at the same time in this order
        query = select(*_COLUMNS).where(*_conditions(wanted, tenant, after))
        found += await session.execute(query.order_by(TaskRow.updated_at.desc(), TaskRow.id.desc()).limit(most))
    found.sort(key=lambda task: task.updated_at, reverse=True)  # stable
    taken, looked_at = await _wanted(session, wanted, found[:most], limit)
    more = looked_at < len(found) or looked_at >= most
    of_tasks = await figures(session, [task.id for task in taken])
    shown = [{**_shown(task), "figures": of_tasks[task.id]} for task in taken]
    return Page(shown, _cursor(found[looked_at - 1]) if more else None)


async def _wanted(
    session: AsyncSession, wanted: Wanted, tasks: Sequence[Row[Any]], limit: int
) -> tuple[list[Row[Any]], int]:
    """The first tasks that are wanted, up to a limit, and how many were looked at for that."""
    taken: list[Row[Any]] = []
    looked_at = 0
    at_once = AT_ONCE if wanted.text is None else said.AT_ONCE
    while looked_at < len(tasks) and len(taken) < limit:
        some = tasks[looked_at : looked_at + at_once]
        ids = [task.id for task in some if wanted.has(task)]
        fit = await meeting(session, wanted.figures, ids)
        if fit and wanted.text is not None:
            fit = await said.saying(session, sorted(fit), wanted.text)
        for task in some:
            if len(taken) == limit:
                break
            looked_at += 1
            if task.id in fit:
                taken.append(task)
    return taken, looked_at


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
