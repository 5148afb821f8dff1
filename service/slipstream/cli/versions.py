"""`slipstream versions`: versions of the policy, which of them are kept, and names for them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from slipstream.cli.options import SIDECAR_FILE, Config, ReaderOrOperatorKey, Url

commands = typer.Typer(help="Versions of the policy: which there are, are kept, and have a name.", no_args_is_help=True)

Version = Annotated[str, typer.Argument(metavar="VERSION", help="Its number, or an alias.")]
Name = Annotated[str, typer.Argument(metavar="NAME", help="An alias, such as champion or v1.0.")]


@commands.command("list")
def list_versions(
    url: Url = None,
    config: Config = SIDECAR_FILE,
    key: ReaderOrOperatorKey = None,
    limit: Annotated[int, typer.Option(help="So many at most.", min=1, max=200)] = 20,
) -> None:
    """Show the newest versions with their rewards."""
    from slipstream.terminal.versions import show_all

    show_all(_address(url, config), key, limit)


@commands.command()
def show(version: Version, url: Url = None, config: Config = SIDECAR_FILE, key: ReaderOrOperatorKey = None) -> None:
    """Show all that is known of one version."""
    from slipstream.terminal.versions import show as run

    run(_address(url, config), key, version)


@commands.command()
def keep(version: Version, url: Url = None, config: Config = SIDECAR_FILE, key: ReaderOrOperatorKey = None) -> None:
    """Keep its weights, so that the Trainer cannot delete them."""
    from slipstream.terminal.versions import keep as run

    run(_address(url, config), key, version)


@commands.command()
def release(version: Version, url: Url = None, config: Config = SIDECAR_FILE, key: ReaderOrOperatorKey = None) -> None:
    """Delete its kept weights."""
    from slipstream.terminal.versions import release as run

    run(_address(url, config), key, version)


@commands.command()
def alias(
    name: Name,
    version: Annotated[
        int | None, typer.Argument(metavar="[VERSION]", help="Its number; none with --remove.", show_default=False)
    ] = None,
    url: Url = None,
    config: Config = SIDECAR_FILE,
    key: ReaderOrOperatorKey = None,
    remove: Annotated[bool, typer.Option("--remove", help="Take the name away.")] = False,
) -> None:
    """Have a name mean a version, and keep its weights."""
    from slipstream.terminal import versions

    if (version is None) is not remove:
        raise typer.BadParameter("give a version, or --remove")
    if version is None:
        versions.remove_alias(_address(url, config), key, name)
    else:
        versions.alias(_address(url, config), key, name, version)


@commands.command()
def aliases(
    url: Url = None,
    config: Config = SIDECAR_FILE,
    key: ReaderOrOperatorKey = None,
    of: Annotated[str | None, typer.Option(metavar="NAME", help="The history of this one.", show_default=False)] = None,
) -> None:
    """Show all aliases, or which versions one has meant."""
    from slipstream.terminal.versions import show_aliases

    show_aliases(_address(url, config), key, of)


def _address(url: str | None, config: Path) -> str:
    from slipstream.terminal.sidecar_http import address

    return address(url, config, os.environ)
