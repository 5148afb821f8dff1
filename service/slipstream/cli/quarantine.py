"""`slipstream quarantine`: what the training side died of three times, and is not touched any more."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Literal

import typer

from slipstream.cli.options import SIDECAR_FILE, AdminKey, Config, Url

commands = typer.Typer(help="What the training side died of, and is set apart.", no_args_is_help=True)

KindOption = Annotated[Literal["exchange", "task", "run"] | None, typer.Option(help="Only these.", show_default=False)]
Id = Annotated[str | None, typer.Option(help="Only this one of --kind.", show_default=False)]


@commands.command("list")
def show(url: Url = None, config: Config = SIDECAR_FILE, key: AdminKey = None) -> None:
    """Show what is set apart, and why."""
    from slipstream.terminal.quarantine import show as run
    from slipstream.terminal.sidecar_http import address

    run(address(url, config, os.environ), key)


@commands.command()
def retry(
    url: Url = None,
    config: Config = SIDECAR_FILE,
    key: AdminKey = None,
    kind: KindOption = None,
    id: Id = None,  # noqa: A002
) -> None:
    """Have it tried again, once the cause is mended."""
    _release("retry", url, config, key, kind, id)


@commands.command()
def drop(
    url: Url = None,
    config: Config = SIDECAR_FILE,
    key: AdminKey = None,
    kind: KindOption = None,
    id: Id = None,  # noqa: A002
) -> None:
    """Give it up."""
    _release("drop", url, config, key, kind, id)


def _release(action: str, url: str | None, config: Path, key: str | None, kind: str | None, name: str | None) -> None:
    from slipstream.terminal.quarantine import release
    from slipstream.terminal.sidecar_http import address

    release(address(url, config, os.environ), key, action, kind, name)
