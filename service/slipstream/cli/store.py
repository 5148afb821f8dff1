"""Commands that copy the store, and put a copy back."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from slipstream.store.backup_file import Manifest

commands = typer.Typer()

Config = Annotated[Path, typer.Option(help="The sidecar's file, for its store.")]


@commands.command()
def backup(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Written; there may be none of that name.")],
    config: Config = Path("sidecar.yaml"),
) -> None:
    """Write all that the store holds into one file, while sidecars go on."""
    from slipstream.settings.source import load_settings
    from slipstream.store.backup import back_up

    made = asyncio.run(back_up(load_settings(config, os.environ).store.url, file))
    print(f"{file}: {_rows(made)}, schema {made.revision}")


@commands.command()
def restore(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A backup.")],
    config: Config = Path("sidecar.yaml"),
    replace: Annotated[bool, typer.Option("--replace", help="Delete what the store holds.")] = False,
) -> None:
    """Fill the store from a backup. Its sidecars are stopped."""
    from slipstream.capture.redacted import is_of
    from slipstream.settings.source import load_settings
    from slipstream.store.cipher import Cipher
    from slipstream.store.restore import restore as run

    settings = load_settings(config, os.environ)
    keys = settings.store.keys
    done = asyncio.run(
        run(
            settings.store.url,
            file,
            replace=replace,
            group_size=settings.facade_group_size,
            now=time.time(),
            is_of=is_of,
            cipher=Cipher(keys) if keys else None,
        )
    )
    made = done.manifest
    print(
        f"restored {_rows(made)} of {made.made_at:%Y-%m-%d %H:%M:%S} UTC, by slipstream {made.slipstream}; "
        f"{done.erased} deletions applied again"
    )
    if made.keys:
        print(f"it is encrypted: the sidecar needs the keys with the fingerprints {', '.join(made.keys)}")


def _rows(made: Manifest) -> str:
    counts = {name: table.rows for name, table in made.tables.items()}
    return ", ".join(f"{counts.get(name, 0)} {name}" for name in ("tasks", "calls", "runs", "feedback", "marks"))
