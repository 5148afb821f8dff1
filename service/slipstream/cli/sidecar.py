"""Commands that run a sidecar, and that look at a running one."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, NoReturn

import typer

from slipstream import logs
from slipstream.cli.options import SIDECAR_FILE, AdminKey, Config, LogOptions, ReaderKey, Since, Until, Url
from slipstream.output import Output

if TYPE_CHECKING:
    from slipstream.settings.sidecar import Settings

commands = typer.Typer()


SidecarFile = Annotated[Path, typer.Option(help="The sidecar's file.")]


@commands.command()
def serve(context: typer.Context, config: SidecarFile = SIDECAR_FILE) -> None:
    """Run the sidecar until SIGTERM or SIGINT."""
    _run(context, "serve", config)


@commands.command()
def proxy(context: typer.Context, config: SidecarFile = SIDECAR_FILE) -> None:
    """Run the half of the sidecar that carries production's traffic, until SIGTERM or SIGINT."""
    _run(context, "proxy", config)


@commands.command()
def training(context: typer.Context, config: SidecarFile = SIDECAR_FILE) -> None:
    """Run the half of the sidecar that trains and has the control API, until SIGTERM or SIGINT."""
    _run(context, "training", config)


@commands.command()
def upgrade(config: SidecarFile = SIDECAR_FILE) -> None:
    """Replace what runs by the installed version and the configuration of now. No call is refused or cut by it."""
    from slipstream.serve.upgrade import upgrade as run
    from slipstream.settings.source import load_settings

    for line in run(load_settings(config, os.environ)):
        print(line)


@commands.command()
def status(
    url: Url = None,
    config: Config = SIDECAR_FILE,
    key: ReaderKey = None,
    watch: Annotated[bool, typer.Option("--watch", help="Show it again and again, until Ctrl-C.")] = False,
    every: Annotated[float, typer.Option(help="Seconds between two looks of --watch.", min=0.1)] = 2.0,
    as_json: Annotated[
        bool, typer.Option("--json", help="As GET /status gives it; one line a look of --watch.")
    ] = False,
) -> None:
    """Show a running sidecar: what is wrong, what is selected and why not, its runs, and rewards by version."""
    from slipstream.terminal.sidecar_http import address
    from slipstream.terminal.status import show
    from slipstream.terminal.watch import watch as show_again

    if watch:
        show_again(address(url, config, os.environ), key, every, as_json=as_json)
    else:
        show(address(url, config, os.environ), key, as_json=as_json)


@commands.command()
def audit(
    url: Url = None,
    config: Config = SIDECAR_FILE,
    key: AdminKey = None,
    by: Annotated[str | None, typer.Option(help="Only writes of the key of this name.", show_default=False)] = None,
    action: Annotated[str | None, typer.Option(help="Only writes of this kind.", show_default=False)] = None,
    since: Since = None,
    until: Until = None,
    limit: Annotated[int, typer.Option(help="Entries at most, the newest first.", min=1)] = 100,
    as_json: Annotated[bool, typer.Option("--json", help="As GET /audit gives them, one entry in a line.")] = False,
) -> None:
    """Show who wrote what: feedback, marks, commits, deletions and ends of runs, by the names of keys."""
    from slipstream.terminal.audit import show_audit
    from slipstream.terminal.sidecar_http import address
    from slipstream.terminal.time_options import seconds_of

    now = time.time()
    times = {"since": seconds_of(since, "--since", now), "until": seconds_of(until, "--until", now)}
    wanted: dict[str, str | float | None] = {"key": by, "action": action, **times}
    show_audit(address(url, config, os.environ), key, wanted, limit=limit, as_json=as_json)


def _run(context: typer.Context, command: Literal["serve", "proxy", "training"], config: Path) -> NoReturn:
    from slipstream.serve.app import run
    from slipstream.serve.handover import Half
    from slipstream.settings.source import load_settings

    half = Half(command)

    def load() -> Settings:
        settings = load_settings(config, os.environ, imports=half.trains)
        given: LogOptions = context.obj
        logs.configure(given.level or settings.log.level, given.format or settings.log.format)
        return settings

    with Output() as output:
        raise typer.Exit(run(half, load, output))
