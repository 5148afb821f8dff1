"""The `slipstream` command.

A module for each group of commands. Each command imports what it runs, so that `serve` never loads torch.
"""

from __future__ import annotations

import sys
from typing import Annotated, NoReturn

import typer

from slipstream import __version__, logs
from slipstream.cli import (
    dataset,
    deployment,
    evaluation,
    experiment,
    key,
    model,
    quarantine,
    rollout,
    serving,
    sidecar,
    store,
    tasks,
    train,
    training,
    versions,
)
from slipstream.cli.options import LogOptions
from slipstream.errors import SlipstreamError
from slipstream.output import ensure_open

app = typer.Typer(
    help="Slipstream: an online-training sidecar for production agents.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
for group in (deployment, sidecar, tasks, store, training, evaluation):
    app.add_typer(group.commands)
app.add_typer(serving.kills)
app.add_typer(serving.commands, name="serving")
app.add_typer(model.commands, name="model")
app.add_typer(key.commands, name="key")
app.add_typer(quarantine.commands, name="quarantine")
app.add_typer(rollout.commands, name="rollout")
app.add_typer(experiment.commands, name="experiment")
app.add_typer(versions.commands, name="versions")
app.add_typer(dataset.commands, name="dataset")
app.add_typer(train.commands, name="train")


def main() -> NoReturn:
    """Entry point. Known errors become one message and exit code 2; anything else is a bug and shows its traceback."""
    ensure_open()
    try:
        app(prog_name="slipstream")
    except SlipstreamError as error:
        print(f"slipstream: {error}", file=sys.stderr)
        sys.exit(2)
    sys.exit(0)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(__version__)
        raise typer.Exit


@app.callback()
def options(
    context: typer.Context,
    log_level: Annotated[logs.Level | None, typer.Option(help="Lowest level that is logged (default: info).")] = None,
    log_format: Annotated[
        logs.Format | None, typer.Option(help="Form of a line (default: console on a terminal, json elsewhere).")
    ] = None,
    version: Annotated[
        bool, typer.Option("--version", help="Show the version.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    context.obj = LogOptions(log_level, log_format)
    logs.configure(log_level or "info", log_format or ("console" if sys.stderr.isatty() else "json"))
