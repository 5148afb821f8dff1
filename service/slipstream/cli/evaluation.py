"""`slipstream evaluate`: a version on the cases of a suite."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

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
    url: Annotated[
        str | None, typer.Option(help="Of the sidecar (default: `listen` of --config).", show_default=False)
    ] = None,
    config: Annotated[Path, typer.Option(help="The sidecar's file, for its address.")] = Path("sidecar.yaml"),
    key: Annotated[
        str | None, typer.Option(envvar="SLIPSTREAM_API_KEY", help="A key with the role admin.", show_default=False)
    ] = None,
) -> None:
    """Ask a version the cases of a suite, and compare it with production and the champion."""
    from slipstream.terminal.evaluations import evaluate as run
    from slipstream.terminal.sidecar_http import address

    if not run(address(url, config, os.environ), key, version, suite, wait=wait):
        raise typer.Exit(1)
