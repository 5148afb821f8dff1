"""`slipstream show`: one task of a running sidecar, as a person reads it or as JSON."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import quote

import httpx
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from slipstream.errors import SlipstreamError
from slipstream.terminal.answers import groups
from slipstream.terminal.conversation import conversation
from slipstream.terminal.cut import Cut
from slipstream.terminal.inert import inert, json_text
from slipstream.terminal.screen import console
from slipstream.terminal.sidecar_http import NotThere, ask
from slipstream.terminal.sidecar_http import client as open_client
from slipstream.terminal.spans import moment, span
from slipstream.terminal.waiting import waiting

_ROLES = "feedback, metrics, viewer, operator or admin"

View = Mapping[str, Any]


def show_task(url: str, key: str | None, tenant: str | None, name: str, *, as_json: bool, full: bool) -> None:
    """Print a task, as GET /tasks/{task_id} gives it.

    Args:
        tenant: whose, for a key that reaches all tenants.
        name: the id of a task, or of an answer of production or of the policy in it.
        full: whether all of a conversation and of the runs is shown, and much more of long texts.

    Raises:
        SlipstreamError: the sidecar cannot be reached, does not take the key, or has no such task and no such answer.
    """
    with open_client(url, key, tenant) as client, waiting(f"{url} to answer"):
        task, answer = _found(client, name)
    if as_json:
        print(json_text(task, indent=2))
        return
    screen = console()
    cut = Cut.full() if full else Cut()
    screen.print(Group(*_head(task, cut), *_said(task, cut), *groups(task, answer, cut, screen.width)))


def _found(client: httpx.Client, name: str) -> tuple[View, str | None]:
    """The task, and the id of the answer that was meant; None where its task was."""
    if not name:
        raise SlipstreamError("TASK: expected the id of a task or of an answer, found an empty text")
    try:
        return _task(client, name), None
    except NotThere:
        try:
            answer = ask(client, f"/calls/{_in_path(name)}", roles=_ROLES, field="task_id")
        except NotThere:
            raise SlipstreamError(f"there is no task, and no answer of a task, with the id {name!a}") from None
    return _task(client, answer["task_id"]), name


def _task(client: httpx.Client, task_id: str) -> View:
    return ask(client, f"/tasks/{_in_path(task_id)}", roles=_ROLES, field="groups")


def _in_path(name: str) -> str:
    return quote(name, safe="", errors="surrogateescape")


def _head(task: View, cut: Cut) -> Iterable[RenderableType]:
    yield Text(f"task {inert(task['task_id'], cut.line)}", style="bold")
    grid = Table.grid(padding=(0, 2))
    grid.add_column()
    grid.add_column(overflow="fold")
    for name, value in _rows(task, cut):
        grid.add_row(Text(name, style="bold"), Text(value))
    yield grid


def _rows(task: View, cut: Cut) -> Iterable[tuple[str, str]]:
    now = time.time()
    yield "session", f"{inert(task['session_id'], cut.line)} of the tenant {inert(task['tenant'], cut.line)}"
    yield "state", inert(task["state"])
    why = inert(task["reason"], cut.line)
    yield "selected", f"{'yes' if task['selected'] else 'no'}: {why}" if task["decided"] else "not decided yet"
    if task["labels"]:
        yield "labels", inert(", ".join(task["labels"]), cut.line)
    for name, field in (("begun", "created_at"), ("last call", "updated_at")):
        yield name, f"{moment(task[field])}, {span(max(0.0, now - task[field]))} ago"
    if task.get("metadata"):
        yield "metadata", inert(json_text(task["metadata"]), cut.text)


def _said(task: View, cut: Cut) -> Iterable[RenderableType]:
    yield Text()
    if "conversation" not in task:
        yield Text("What was said is not shown: it takes a key with the role admin.", style="yellow")
        return
    yield Text("conversation", style="bold")
    messages = list(task["conversation"])
    last = task["calls"][-1]["answer"] if task["calls"] else None
    yield conversation([*messages, last] if last else messages, cut)
