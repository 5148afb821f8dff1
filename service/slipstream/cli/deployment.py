"""Commands on a whole deployment: its first files, all of its programs together, and what is wrong with it."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from slipstream.cli.engine import embedded_extra, find
from slipstream.cli.options import LogOptions, Overlays
from slipstream.output import STDOUT, relayed

commands = typer.Typer()


@commands.command()
def init(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="Made where it is not there.")] = Path("."),
) -> None:
    """Write the files to begin with: configuration, an agent, its reward function. Nothing is overwritten."""
    from slipstream.local.starter import write

    print(*write(directory), sep="\n")
    print(
        "\nNext, as docs/first-hour.md has it:\n"
        f"  cd {directory}\n"
        "  slipstream model fetch smollm2 models/smollm2\n"
        "  slipstream up --overlay overlays/quickstart.yaml --production models/smollm2\n"
        "and in another terminal:\n"
        "  python curve.py"
    )


@commands.command()
def up(
    context: typer.Context,
    sidecar: Annotated[Path, typer.Option(help="The sidecar's file.")] = Path("sidecar.yaml"),
    explorer: Annotated[Path, typer.Option(help="The Explorer's file.")] = Path("explorer.yaml"),
    trainer: Annotated[Path, typer.Option(help="The Trainer's file.")] = Path("trainer.yaml"),
    overlays: Overlays = None,
    production: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Serve this model directory too, at production.base_url.", show_default=False),
    ] = None,
) -> None:
    """Run Explorer, Trainer and sidecar together, restarted where they fail, until SIGTERM or SIGINT."""
    from slipstream.local.supervisor import supervise
    from slipstream.local.up import check_models, children

    with embedded_extra():
        find("torch")

    given: LogOptions = context.obj
    level = ("--log-level", given.level) if given.level else ()
    # The children write to a pipe, where each would choose json.
    log_format = given.format or ("console" if sys.stdout.isatty() else None)
    options = (*level, *(("--log-format", log_format) if log_format else ()))
    programs = children(sidecar, explorer, trainer, options, overlays or (), production)
    check_models(explorer, trainer, overlays or ())
    with relayed(STDOUT), relayed():
        asyncio.run(supervise(programs, out=sys.stdout))


@commands.command()
def doctor(
    sidecar: Annotated[Path, typer.Option(help="The sidecar's file.")] = Path("sidecar.yaml"),
    explorer: Annotated[Path, typer.Option(help="The Explorer's file.")] = Path("explorer.yaml"),
    trainer: Annotated[Path, typer.Option(help="The Trainer's file.")] = Path("trainer.yaml"),
    overlays: Overlays = None,
    offline: Annotated[bool, typer.Option("--offline", help="Look at the files alone.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Findings as JSON.")] = False,
    strict: Annotated[bool, typer.Option("--strict", help="Exit with 1 for warnings too.")] = False,
) -> None:
    """Say what is wrong with a deployment, why it matters, and the fix. Exit code 1 where there is an error."""
    from slipstream.doctor import report
    from slipstream.doctor.examination import examine
    from slipstream.doctor.files import read_files

    files = read_files(sidecar, explorer, trainer, overlays or (), os.environ)
    if files.elsewhere:
        said = f"{explorer} and {trainer} are not here, and the Explorer is at {files.sidecar.explorer.base_url}: "
        print(f"{said}the sidecar's part alone is examined; run the doctor there for the rest", file=sys.stderr)
    findings = examine(files, offline=offline)
    print((report.as_json if as_json else report.as_text)(findings, offline), end="")
    raise typer.Exit(report.exit_code(findings, strict))
