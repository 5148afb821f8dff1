"""`slipstream dataset`: data sets made from the store, what becomes of them, and conversations that are imported."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from slipstream import logs
from slipstream.cli.options import SIDECAR_FILE, AdminKey, LogOptions, Url
from slipstream.cli.options import Config as ForAddress

if TYPE_CHECKING:
    from slipstream.datasets.manifest import Manifest

commands = typer.Typer(help="Data sets for supervised and preference training.", no_args_is_help=True)

Config = Annotated[Path, typer.Option(help="The sidecar's file, for its store and `datasets.directory`.")]
Data = Annotated[Path, typer.Option("--data", metavar="FILE", help="What the data set is made of.")]
Directory = Annotated[
    Path | None,
    typer.Option(help="The folder of data sets (default: `datasets.directory` of --config).", show_default=False),
]
_LONGEST_LABEL = 64

Name = Annotated[str, typer.Argument(metavar="NAME", help="Of a data set.")]


@commands.command()
def export(
    context: typer.Context,
    data: Data = Path("data.yaml"),
    config: Config = SIDECAR_FILE,
    directory: Directory = None,
    replace: Annotated[bool, typer.Option("--replace", help="In place of the one that has this name.")] = False,
    ray: Annotated[
        int, typer.Option(metavar="WORKERS", min=0, help="Read by so many processes of Ray Data (default: none).")
    ] = 0,
) -> None:
    """Write a data set from what is stored, while sidecars go on."""
    from slipstream.datasets.config import load_data_file
    from slipstream.datasets.export import export as run
    from slipstream.settings.source import load_settings

    options: LogOptions = context.obj
    form = options.format or ("console" if sys.stderr.isatty() else "json")
    settings = load_settings(config, os.environ)
    dataset = load_data_file(data).dataset
    folder = datasets_directory(directory, config)
    # Calculators may fail on each of a million answers: they are counted, and logged if that was asked for.
    logs.configure(options.level or "error", form)
    try:
        made = asyncio.run(run(settings, dataset, folder, replace=replace, workers=ray))
    finally:
        logs.configure(options.level or "info", form)
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
    applied = erasure.apply_notes(where, notes)
    print(f"{where}: {sum(applied.rows.values())} rows deleted")
    for each, rows in applied.rows.items():
        print(f"  {each}: {rows}")
    for each in applied.waiting:
        print(f"  {each}: it is being made anew, and the export deletes the rows at its end")
    for each, problem in applied.failed.items():
        print(f"  {each}: not looked through: {problem}")
    if applied.failed:
        raise typer.Exit(1)


@commands.command("import")
def import_(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="JSONL or JSON; several are read together.")],
    format: Annotated[  # noqa: A002
        Literal["openai-chat", "openai-preference", "langfuse", "phoenix", "otel"],
        typer.Option(help="Of the files."),
    ],
    tenant: Annotated[
        str | None, typer.Option(help="Whose sessions they become, with a key that reaches all.", show_default=False)
    ] = None,
    label: Annotated[
        list[str] | None,
        typer.Option(help="Of the imported tasks, beside imported and imported:FORMAT; may be repeated."),
    ] = None,
    session_field: Annotated[
        str | None,
        typer.Option(
            help="Field, or attribute, that names the session (default: that of the format).", show_default=False
        ),
    ] = None,
    as_: Annotated[
        Literal["sessions", "cases"],
        typer.Option("--as", help="Sessions of the store, or a file of cases for an evaluation."),
    ] = "sessions",
    output: Annotated[Path, typer.Option(help="File of the cases.", dir_okay=False)] = Path("cases.jsonl"),
    score: Annotated[
        str | None,
        typer.Option(
            help="Name of the judgements that become feedback (default: the only one of an answer).", show_default=False
        ),
    ] = None,
    score_range: Annotated[str, typer.Option(metavar="LOW:HIGH", help="Range of their values.")] = "0:1",
    select: Annotated[bool, typer.Option("--select", help="Let the selection strategies decide about them.")] = False,
    url: Url = None,
    config: ForAddress = SIDECAR_FILE,
    key: AdminKey = None,
) -> None:
    """Import conversations of OpenAI's fine-tuning, Langfuse, Phoenix or OpenTelemetry."""
    from slipstream.datasets.imports.command import import_sessions, write_cases
    from slipstream.datasets.imports.conversation import Options
    from slipstream.datasets.imports.formats import Format
    from slipstream.datasets.imports.upload import Choices
    from slipstream.terminal.sidecar_http import address

    for name in label or ():
        if not 0 < len(name.strip()) <= _LONGEST_LABEL or "," in name or not name.isprintable():
            raise typer.BadParameter(
                f"expected labels of 1 to {_LONGEST_LABEL} characters without a comma, found {name!r}"
            )
    options = Options(session_field, score)
    if as_ == "cases":
        whole = write_cases(files, Format(format), options, output)
    else:
        labels = [name.strip() for name in label or ()]
        choices = Choices(format, labels, select, score, _range(score_range))
        whole = import_sessions(files, options, choices, address(url, config, os.environ), key, tenant)
    if not whole:
        raise typer.Exit(1)


def _range(given: str) -> tuple[float, float]:
    low, _, high = given.partition(":")
    try:
        read = float(low), float(high)
    except ValueError:
        read = 0.0, 0.0
    if not -1e300 < read[0] < read[1] < 1e300:
        raise typer.BadParameter(f"expected two numbers such as 1:5, the lower first, found {given!r}")
    return read


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

    if given is not None:
        return given  # where Trinity-RFT trains there may be no sidecar's file
    from slipstream.settings.source import load_settings

    directory = load_settings(config, os.environ).datasets.directory
    if directory is None:
        raise ConfigError("datasets.directory: expected a folder, found none; or give --directory")
    return directory


def held_out_share(sidecar: Path) -> float:
    """The share of the sessions that the sidecar holds out; 0 on a machine without its file."""
    if not sidecar.exists():
        return 0.0
    from slipstream.settings.source import load_settings

    return load_settings(sidecar, os.environ).datasets.held_out
