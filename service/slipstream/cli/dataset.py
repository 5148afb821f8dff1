"""`slipstream dataset`: data sets, and conversations of other programs."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Literal

import typer

from slipstream.cli.options import SIDECAR_FILE, AdminKey, Config, Url

_LONGEST_LABEL = 64

commands = typer.Typer(help="Data sets, and conversations of other programs.", no_args_is_help=True)


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
    output: Annotated[Path, typer.Option(help="File of the cases.")] = Path("cases.jsonl"),
    score: Annotated[
        str | None,
        typer.Option(
            help="Name of the judgements that become feedback (default: the only one of an answer).", show_default=False
        ),
    ] = None,
    score_range: Annotated[str, typer.Option(metavar="LOW:HIGH", help="Range of their values.")] = "0:1",
    select: Annotated[bool, typer.Option("--select", help="Let the selection strategies decide about them.")] = False,
    url: Url = None,
    config: Config = SIDECAR_FILE,
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
