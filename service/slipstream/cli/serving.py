"""`slipstream serving` and `slipstream kill`: which users a version of the policy answers."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from slipstream.cli.options import SIDECAR_FILE, Config, ReaderOrOperatorKey, Url

commands = typer.Typer(help="The share of users that a version of the policy answers.", no_args_is_help=True)
kills = typer.Typer()


@commands.command()
def show(url: Url = None, config: Config = SIDECAR_FILE, key: ReaderOrOperatorKey = None) -> None:
    """Show which version answers which share of the users, and how their requests went."""
    from slipstream.terminal.serving import show as run
    from slipstream.terminal.sidecar_http import address

    run(address(url, config, os.environ), key)


@commands.command()
def share(
    version: Annotated[int, typer.Argument(help="The version, such as 8.", min=0)],
    of_users: Annotated[float, typer.Argument(metavar="SHARE", help="From 0 to 1.", min=0, max=1)],
    url: Url = None,
    config: Config = SIDECAR_FILE,
    key: ReaderOrOperatorKey = None,
) -> None:
    """Have a version answer this share of the users."""
    from slipstream.terminal.serving import share as run
    from slipstream.terminal.sidecar_http import address

    run(address(url, config, os.environ), key, version, of_users)


@kills.command()
def kill(
    url: Url = None,
    config: Config = SIDECAR_FILE,
    key: ReaderOrOperatorKey = None,
    revive: Annotated[bool, typer.Option("--revive", help="Take it back: the share of before holds again.")] = False,
) -> None:
    """Have production answer everybody at once."""
    from slipstream.terminal import serving
    from slipstream.terminal.sidecar_http import address

    (serving.revive if revive else serving.kill)(address(url, config, os.environ), key)
