"""`slipstream quarantine`: what the training side died of three times, and is not touched any more."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Literal

import typer

commands = typer.Typer(help="What the training side died of, and is set apart.", no_args_is_help=True)

Url = Annotated[str | None, typer.Option(help="Of the sidecar (default: `listen` of --config).", show_default=False)]
Config = Annotated[Path, typer.Option(help="The sidecar's file, for its address.")]
Key = Annotated[
    str | None, typer.Option(envvar="SLIPSTREAM_API_KEY", help="A key with the role admin.", show_default=False)
]
KindOption = Annotated[Literal["exchange", "task", "run"] | None, typer.Option(help="Only these.", show_default=False)]
Id = Annotated[str | None, typer.Option(help="Only this one of --kind.", show_default=False)]
_CONFIG = Path("sidecar.yaml")


@commands.command("list")
def show(url: Url = None, config: Config = _CONFIG, key: Key = None) -> None:
    """Show what is set apart, and why."""
    from slipstream.terminal.quarantine import show as run
    from slipstream.terminal.sidecar_http import address

    run(address(url, config, os.environ), key)


@commands.command()
def retry(url: Url = None, config: Config = _CONFIG, key: Key = None, kind: KindOption = None, id: Id = None) -> None:  # noqa: A002
    """Have it tried again, once the cause is mended."""
    _release("retry", url, config, key, kind, id)


@commands.command()
def drop(url: Url = None, config: Config = _CONFIG, key: Key = None, kind: KindOption = None, id: Id = None) -> None:  # noqa: A002
    """Give it up."""
    _release("drop", url, config, key, kind, id)


def _release(action: str, url: str | None, config: Path, key: str | None, kind: str | None, name: str | None) -> None:
    from slipstream.terminal.quarantine import release
    from slipstream.terminal.sidecar_http import address

    release(address(url, config, os.environ), key, action, kind, name)
