"""`slipstream tasks`: GET /tasks of a running sidecar, page after page, as a table or as JSON."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import httpx
from rich.table import Table
from rich.text import Text

from slipstream.terminal.inert import inert, json_text
from slipstream.terminal.screen import console
from slipstream.terminal.sidecar_http import READERS, ask
from slipstream.terminal.sidecar_http import client as open_client
from slipstream.terminal.spans import span
from slipstream.terminal.waiting import waiting

ALL = 2000
"""Tasks that `--all` shows at most: a table of more takes long to lay out, and the cursor goes on."""

_PAGE = 200
"""Tasks in one request: as many as the route gives."""

_PAGES = 200
"""Requests at most: each looks at up to 1,000 tasks, and where few of them are wanted a page may have none."""

_WIDE = 100
"""Columns from which on a terminal has room for the session and the labels."""

_LONGEST = 100
"""Characters of a cell."""

Row = Mapping[str, Any]


@dataclass
class Pages:
    """Tasks of a list, read as they are needed.

    Args:
        filters: of GET /tasks.
        limit: tasks at most.
        next: the cursor that it begins at, and then the one of the page after the last; None where there is none.
    """

    client: httpx.Client
    filters: Mapping[str, str | float]
    limit: int
    next: str | None = None

    def __iter__(self) -> Iterator[Row]:
        left = self.limit
        for _ in range(_PAGES):
            cursor = {} if self.next is None else {"cursor": self.next}
            query = {**self.filters, "limit": min(left, _PAGE), **cursor}
            page = ask(self.client, "/tasks", roles=READERS, field="tasks", query=query)
            self.next = page["next"]
            left -= len(page["tasks"])
            yield from page["tasks"]
            if self.next is None or left <= 0:
                return


def show_tasks(
    url: str,
    key: str | None,
    tenant: str | None,
    filters: Mapping[str, str | float | None],
    *,
    limit: int,
    cursor: str | None,
    as_json: bool,
) -> None:
    """Print tasks, the newest first; with `as_json` one in a line. Stderr has the cursor of the page after them.

    Args:
        tenant: whose, for a key that reaches all tenants; None for all of them.
        filters: of GET /tasks; None is no filter.
        limit: tasks at most.
        cursor: where to begin; None for the newest.

    Raises:
        SlipstreamError: the sidecar cannot be reached, does not take the key, or refuses a filter.
    """
    given = {name: value for name, value in filters.items() if value is not None}
    with open_client(url, key, tenant) as client:
        pages = Pages(client, given, limit, cursor)
        if as_json:
            for task in pages:
                print(json_text(task))
        else:
            with waiting(f"{url} to answer"):
                tasks = list(pages)
            _print(tasks, "no task is like that" if pages.next is None else "no task so far is like that")
    if pages.next is not None:
        sys.stdout.flush()
        print(f"slipstream: there is more: --cursor {inert(pages.next)}", file=sys.stderr)


def _print(tasks: Sequence[Row], none: str) -> None:
    screen = console(rows=True)
    if not tasks:
        screen.print(none)
        return
    wide = screen.width >= _WIDE
    table = Table()
    columns = [column for column in _COLUMNS if (wide or not column.wide) and column.field in tasks[0]]
    for column in columns:
        table.add_column(column.name, justify="right" if column.number else "left", overflow="fold")
    now = time.time()
    for task in tasks:
        table.add_row(*(column.cell(task, now) for column in columns))
    screen.print(table)
    if not wide:
        screen.print(f"Sessions, states and labels are shown from {_WIDE} columns on, or by --json.", style="dim")


@dataclass(frozen=True, slots=True)
class _Column:
    """A column of the table.

    Attributes:
        field: of a task; a sidecar whose answers lack it gives no such column.
        cell: its text, of a task and the time now.
        wide: whether narrow terminals have no room for it.
    """

    name: str
    field: str
    cell: Callable[[Row, float], Text]
    number: bool = False
    wide: bool = False


def _plain(field: str) -> Callable[[Row, float], Text]:
    return lambda task, now: Text("" if task[field] is None else inert(task[field], _LONGEST))


def _selected(task: Row, now: float) -> Text:
    if not task["decided"]:
        return Text("not decided", style="dim")
    return Text(
        f"{'yes' if task['selected'] else 'no'}: {inert(task['reason'], _LONGEST)}",
        style="green" if task["selected"] else "",
    )


def _age(task: Row, now: float) -> Text:
    return Text(span(max(0.0, now - task["updated_at"])))


def _labels(task: Row, now: float) -> Text:
    return Text(inert(", ".join(task["labels"]), _LONGEST))


def _reward(task: Row, now: float) -> Text:
    return Text("" if task["reward"] is None else f"{task['reward']:.3f}")


_COLUMNS = (
    _Column("task", "task_id", _plain("task_id")),
    _Column("session", "session_id", _plain("session_id"), wide=True),
    _Column("state", "state", _plain("state"), wide=True),
    _Column("selected", "selected", _selected),
    _Column("calls", "calls", _plain("calls"), number=True),
    _Column("runs", "runs", _plain("runs"), number=True),
    _Column("reward", "reward", _reward, number=True),
    _Column("version", "policy_version", _plain("policy_version"), number=True),
    _Column("labels", "labels", _labels, wide=True),
    _Column("age", "updated_at", _age, number=True),
)
