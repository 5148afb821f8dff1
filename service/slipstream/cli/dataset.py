"""`slipstream dataset`: data sets made from the store, and what becomes of them."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from slipstream import logs
from slipstream.cli.options import SIDECAR_FILE, LogOptions

if TYPE_CHECKING:
    from slipstream.datasets.folder import Manifest

commands = typer.Typer(help="Data sets for supervised and preference training.", no_args_is_help=True)

Config = Annotated[Path, typer.Option(help="The sidecar's file, for its store and `datasets.directory`.")]
Data = Annotated[Path, typer.Option("--data", metavar="FILE", help="What the data set is made of.")]
Directory = Annotated[
    Path | None,
    typer.Option(help="The folder of data sets (default: `datasets.directory` of --config).", show_default=False),
]
Name = Annotated[str, typer.Argument(metavar="NAME", help="Of a data set.")]


@commands.command()
def export(
    context: typer.Context,
    data: Data = Path("data.yaml"),
    config: Config = SIDECAR_FILE,
    directory: Directory = None,
    replace: Annotated[bool, typer.Option("--replace", help="In place of the one that has this name.")] = False,
) -> None:
    """Write a data set from what is stored, while sidecars go on."""
    from slipstream.datasets.config import load_data_file
    from slipstream.datasets.export import export as run
    from slipstream.settings.source import load_settings

    options: LogOptions = context.obj
    if options.level is None:  # calculators may fail on each of a million answers: they are counted
        logs.configure("error", options.format or ("console" if sys.stderr.isatty() else "json"))
    settings = load_settings(config, os.environ)
    dataset = load_data_file(data).dataset
    folder = datasets_directory(directory, config)
    made = asyncio.run(run(settings, dataset, folder, replace=replace))
    print(f"{folder / made.name}: {_counts(made)}")
    for reason, count in sorted(made.dropped.items(), key=lambda each: -each[1]):
        print(f"  left out, {reason}: {count}")
    if failed := made.about["scoring_failed"]:
        print(f"  calculators failed on {failed} answers, which have no reward; --log-level warning shows each")
    if not any(made.counts.rows.values()):
        raise typer.Exit(1)


@commands.command("list")
def list_datasets(directory: Directory = None, config: Config = SIDECAR_FILE) -> None:
    """Show the data sets in the folder."""
    from rich.table import Table

    from slipstream.datasets.folder import list_folders, manifest
    from slipstream.terminal.screen import console
    from slipstream.terminal.spans import moment

    folder = datasets_directory(directory, config)
    found = [manifest(path) for path in list_folders(folder)]
    if not found:
        print(f"{folder}: no data set; slipstream dataset export --data data.yaml makes one")
        return
    table = Table("name", "kind", "format", "training rows", "held-out rows", "made", "digest")
    for made in found:
        rows = [str(made.counts.rows.get(split, 0)) for split in ("train", "held_out")]
        table.add_row(made.name, made.kind, made.format, *rows, moment(made.made_at.timestamp()), made.digest[:12])
    console().print(table)


@commands.command()
def card(name: Name, directory: Directory = None, config: Config = SIDECAR_FILE) -> None:
    """Show the card of a data set: what is in it, where that came from, and what was left out and why."""
    from slipstream.terminal.inert import inert

    path = _dataset(datasets_directory(directory, config), name)
    print(inert((path / "README.md").read_text(encoding="utf-8"), lines=True))


@commands.command()
def erase(
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="A data set.", show_default=False)] = None,
    notes: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="`erased.jsonl` of another folder of data sets.", show_default=False),
    ] = None,
    directory: Directory = None,
    config: Config = SIDECAR_FILE,
) -> None:
    """Delete a whole data set; without NAME, delete from all of them what DELETE /data has deleted elsewhere."""
    from slipstream.datasets import erasure, folder

    where = datasets_directory(directory, config)
    if name is not None:
        path = _dataset(where, name)
        with erasure.locked(where):
            folder.delete(path)
        print(f"{path}: deleted")
        return
    removed = erasure.apply_notes(where, notes)
    print(f"{where}: {sum(removed.values())} rows deleted")
    for each, rows in removed.items():
        print(f"  {each}: {rows}")


def _counts(made: Manifest) -> str:
    rows = made.counts.rows
    return f"{rows.get('train', 0)} rows to train on, {rows.get('held_out', 0)} held out"


def _dataset(directory: Path, name: str) -> Path:
    """The folder of a data set.

    Raises:
        ConfigError: there is none of this name.
    """
    from slipstream.datasets.folder import list_folders
    from slipstream.errors import ConfigError

    names = [path.name for path in list_folders(directory)]
    if name not in names:
        raise ConfigError(
            f"NAME: expected a data set in {directory}, one of {', '.join(names) or 'none'}; found {name}"
        )
    return directory / name


def datasets_directory(given: Path | None, config: Path) -> Path:
    """The folder of data sets.

    Raises:
        ConfigError: none is configured.
    """
    from slipstream.errors import ConfigError
    from slipstream.settings.source import load_settings

    directory = given or load_settings(config, os.environ).datasets.directory
    if directory is None:
        raise ConfigError("datasets.directory: expected a folder, found none; or give --directory")
    return directory
