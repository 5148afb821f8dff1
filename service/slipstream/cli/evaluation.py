"""`slipstream evaluate`: a version on the cases of a suite."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from slipstream.cli.options import SIDECAR_FILE, Config, OperatorKey, Url

commands = typer.Typer()


@commands.command()
def evaluate(
    version: Annotated[
        str | None,
        typer.Argument(
            metavar="[VERSION]",
            help="Its number, or an alias (default: the one that the Explorer serves).",
            show_default=False,
        ),
    ] = None,
    suite: Annotated[
        str | None, typer.Option(help="One of evaluation.suites (default: the only one).", show_default=False)
    ] = None,
    wait: Annotated[bool, typer.Option(help="Wait until it has ended, and show the result.")] = True,
    url: Url = None,
    config: Config = SIDECAR_FILE,
    key: OperatorKey = None,
) -> None:
    """Ask a version the cases of a suite, and compare it with production and the champion."""
    from slipstream.terminal.evaluations import evaluate as run
    from slipstream.terminal.sidecar_http import address

    if not run(address(url, config, os.environ), key, version, suite, wait=wait):
        raise typer.Exit(1)
