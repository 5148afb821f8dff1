"""`slipstream experiment`: production and a version compared on users."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from slipstream.cli.options import SIDECAR_FILE, Config, ReaderOrOperatorKey, Url

commands = typer.Typer(help="Production and a version compared on users.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(metavar="NAME", help="A name for it.")]
Arm = Annotated[
    str, typer.Argument(metavar="B", help="Arm b: version:NUMBER, or an alias of a version. Arm a is production.")
]
Number = Annotated[int, typer.Argument(help="The number of the experiment, as `list` shows it.")]
Plan = Annotated[
    Path | None,
    typer.Option(help="A YAML or JSON file with the other fields of POST /experiments.", show_default=False),
]
Share = Annotated[float | None, typer.Option(help="Share of the users that b answers.", show_default=False)]
Decision = Annotated[
    str | None, typer.Option(help="Who answers the users from now on: a (production) or b.", show_default=False)
]
Force = Annotated[bool, typer.Option("--force", help="Whatever the verdict of the version is.")]


@commands.command()
def start(
    name: Name,
    b: Arm,
    share: Share = None,
    plan: Plan = None,
    url: Url = None,
    config: Config = SIDECAR_FILE,
    key: ReaderOrOperatorKey = None,
) -> None:
    """Start an experiment."""
    from slipstream.terminal.experiments import start as run
    from slipstream.terminal.sidecar_http import address

    run(address(url, config, os.environ), key, {"name": name, "b": b, "share": share}, plan)


@commands.command("list")
def show_all(url: Url = None, config: Config = SIDECAR_FILE, key: ReaderOrOperatorKey = None) -> None:
    """Show the experiments, the newest first."""
    from slipstream.terminal.experiments import show_all as run
    from slipstream.terminal.sidecar_http import address

    run(address(url, config, os.environ), key)


@commands.command()
def show(experiment: Number, url: Url = None, config: Config = SIDECAR_FILE, key: ReaderOrOperatorKey = None) -> None:
    """Show an experiment: its report, what is missing, and its decisions."""
    from slipstream.terminal.experiments import show as run
    from slipstream.terminal.sidecar_http import address

    run(address(url, config, os.environ), key, experiment)


@commands.command()
def stop(
    experiment: Number,
    decision: Decision = None,
    force: Force = False,
    url: Url = None,
    config: Config = SIDECAR_FILE,
    key: ReaderOrOperatorKey = None,
) -> None:
    """End an experiment. Without a decision production answers the users from now on."""
    from slipstream.terminal.experiments import stop as run
    from slipstream.terminal.sidecar_http import address

    run(address(url, config, os.environ), key, experiment, decision, force=force)
