"""`slipstream tasks` and `slipstream show`: captured tasks, and what became of one."""

from __future__ import annotations

import os
import time
from typing import Annotated, Literal

import typer

from slipstream.cli.options import SIDECAR_FILE, Config, ReaderKey, Since, TaskKey, Tenant, Until, Url

commands = typer.Typer()


@commands.command()
def tasks(
    url: Url = None,
    config: Config = SIDECAR_FILE,
    key: ReaderKey = None,
    tenant: Tenant = None,
    session: Annotated[str | None, typer.Option(help="Only of this session.", show_default=False)] = None,
    state: Annotated[
        Literal["open", "complete"] | None, typer.Option(help="Only in this state.", show_default=False)
    ] = None,
    selected: Annotated[
        bool | None,
        typer.Option("--selected/--not-selected", help="Only those that were, or were not.", show_default=False),
    ] = None,
    label: Annotated[str | None, typer.Option(help="Only with this label.", show_default=False)] = None,
    since: Since = None,
    until: Until = None,
    limit: Annotated[int, typer.Option(help="Tasks at most.", min=1, max=10_000)] = 50,
    every: Annotated[bool, typer.Option("--all", help="As --limit 2000.")] = False,
    cursor: Annotated[
        str | None, typer.Option(help="Go on after the tasks that were shown before.", show_default=False)
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="As GET /tasks gives them, one task in a line.")] = False,
) -> None:
    """Show captured tasks, the newest first: their state, and whether they were selected and why."""
    from slipstream.terminal.sidecar_http import address
    from slipstream.terminal.task_list import ALL, show_tasks
    from slipstream.terminal.time_options import seconds_of

    now = time.time()
    filters: dict[str, str | float | None] = {
        "session_id": session,
        "state": state,
        "selected": selected,
        "label": label,
        "since": seconds_of(since, "--since", now),
        "until": seconds_of(until, "--until", now),
    }
    limit = ALL if every else limit
    show_tasks(address(url, config, os.environ), key, tenant, filters, limit=limit, cursor=cursor, as_json=as_json)


@commands.command()
def show(
    task: Annotated[str, typer.Argument(metavar="TASK", help="The id of a task, or of an answer in it.")],
    url: Url = None,
    config: Config = SIDECAR_FILE,
    key: TaskKey = None,
    tenant: Tenant = None,
    full: Annotated[bool, typer.Option("--full", help="All messages and runs, and more of long texts.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="As GET /tasks/{task_id} gives it.")] = False,
) -> None:
    """Show one task: what was said, production's answer beside the policy's, and their rewards."""
    from slipstream.terminal.sidecar_http import address
    from slipstream.terminal.task import show_task

    show_task(address(url, config, os.environ), key, tenant, task, as_json=as_json, full=full)
