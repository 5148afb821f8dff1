"""`slipstream rollout`: versions on their way from candidate to live."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from slipstream.cli.options import SIDECAR_FILE, Config, ReaderOrOperatorKey, Url

commands = typer.Typer(help="Versions on their way from candidate to live.", no_args_is_help=True)

Version = Annotated[int, typer.Argument(help="The number of the version.")]
Number = Annotated[int, typer.Argument(help="The number of the rollout, as `list` shows it.")]
Plan = Annotated[
    Path | None,
    typer.Option(help="A YAML or JSON file with the other fields of POST /rollouts.", show_default=False),
]
Replace = Annotated[bool, typer.Option("--replace", help="A version that is live goes back to production first.")]


@commands.command()
def start(
    version: Version,
    plan: Plan = None,
    replace: Replace = False,
    url: Url = None,
    config: Config = SIDECAR_FILE,
    key: ReaderOrOperatorKey = None,
) -> None:
    """Open a rollout of a version."""
    from slipstream.terminal.rollouts import start as run
    from slipstream.terminal.sidecar_http import address

    run(address(url, config, os.environ), key, version, plan, replace=replace)


@commands.command("list")
def show_all(url: Url = None, config: Config = SIDECAR_FILE, key: ReaderOrOperatorKey = None) -> None:
    """Show the rollouts, the newest first."""
    from slipstream.terminal.rollouts import show_all as run
    from slipstream.terminal.sidecar_http import address

    run(address(url, config, os.environ), key)


@commands.command()
def show(rollout: Number, url: Url = None, config: Config = SIDECAR_FILE, key: ReaderOrOperatorKey = None) -> None:
    """Show a rollout: its evidence, what is missing, and its decisions."""
    from slipstream.terminal.rollouts import show as run
    from slipstream.terminal.sidecar_http import address

    run(address(url, config, os.environ), key, rollout)


@commands.command()
def pause(rollout: Number, url: Url = None, config: Config = SIDECAR_FILE, key: ReaderOrOperatorKey = None) -> None:
    """Stay at the share of now."""
    _decide("pause", rollout, url, config, key)


@commands.command()
def resume(rollout: Number, url: Url = None, config: Config = SIDECAR_FILE, key: ReaderOrOperatorKey = None) -> None:
    """Go on after a pause."""
    _decide("resume", rollout, url, config, key)


@commands.command()
def advance(rollout: Number, url: Url = None, config: Config = SIDECAR_FILE, key: ReaderOrOperatorKey = None) -> None:
    """Go on to the next step, whatever is missing."""
    _decide("advance", rollout, url, config, key)


@commands.command()
def promote(
    rollout: Number,
    url: Url = None,
    config: Config = SIDECAR_FILE,
    key: ReaderOrOperatorKey = None,
    force: Annotated[bool, typer.Option("--force", help="Whatever the verdict of the version is.")] = False,
) -> None:
    """Promote the version, if its verdict is better or equal."""
    _decide("promote", rollout, url, config, key, {"force": True} if force else None)


@commands.command()
def approve(
    rollout: Number,
    action: Annotated[str, typer.Argument(metavar="ACTION", help="What was asked for: promote or advance.")],
    url: Url = None,
    config: Config = SIDECAR_FILE,
    key: ReaderOrOperatorKey = None,
    force: Annotated[bool, typer.Option("--force", help="The promotion that was asked for is one by force.")] = False,
    at: Annotated[
        float | None,
        typer.Option(help="When it was asked for, as `show` says it (default: what waits now).", show_default=False),
    ] = None,
) -> None:
    """Approve, as a second person, what another one has asked for."""
    from slipstream.terminal.rollouts import approve as run
    from slipstream.terminal.sidecar_http import address

    run(address(url, config, os.environ), key, rollout, action, force=force, at=at)


@commands.command()
def abort(rollout: Number, url: Url = None, config: Config = SIDECAR_FILE, key: ReaderOrOperatorKey = None) -> None:
    """Send all users back to production, and end the rollout."""
    _decide("abort", rollout, url, config, key)


def _decide(
    action: str,
    rollout: int,
    url: str | None,
    config: Path,
    key: str | None,
    body: dict[str, bool] | None = None,
) -> None:
    from slipstream.terminal.rollouts import decide
    from slipstream.terminal.sidecar_http import address

    decide(address(url, config, os.environ), key, rollout, action, body)
