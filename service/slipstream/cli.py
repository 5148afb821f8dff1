"""The `slipstream` command. Each subcommand imports what it runs, so that `serve` never loads torch."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple, NoReturn

import typer

from slipstream import __version__, logs
from slipstream.errors import SlipstreamError
from slipstream.local.extras import EMBEDDED

if TYPE_CHECKING:
    from slipstream.embedded.config import EngineConfig

app = typer.Typer(
    help="Slipstream: an online-training sidecar for production agents.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
model = typer.Typer(help="Models to start from.", no_args_is_help=True)
app.add_typer(model, name="model")
key = typer.Typer(help="API keys of the sidecar.", no_args_is_help=True)
app.add_typer(key, name="key")


Overlays = Annotated[
    list[Path] | None,
    typer.Option(
        "--overlay", help="A file merged over it; give several in order, a later one wins.", show_default=False
    ),
]


class LogOptions(NamedTuple):
    """Log options of the command line; None leaves the choice to the configuration or the default."""

    level: logs.Level | None
    format: logs.Format | None


def main() -> NoReturn:
    """Entry point. Known errors become one message and exit code 2; anything else is a bug and shows its traceback."""
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


@app.command()
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


@app.command()
def serve(
    context: typer.Context, config: Annotated[Path, typer.Option(help="The sidecar's file.")] = Path("sidecar.yaml")
) -> None:
    """Run the sidecar until SIGTERM or SIGINT."""
    from slipstream.serve.app import serve as run
    from slipstream.settings.source import load_settings

    settings = load_settings(config, os.environ)
    given: LogOptions = context.obj
    logs.configure(given.level or settings.log.level, given.format or settings.log.format)
    raise typer.Exit(run(settings))


@app.command()
def explorer(
    config: Annotated[Path, typer.Option(help="The Explorer's file.")] = Path("explorer.yaml"),
    overlays: Overlays = None,
    vllm: Annotated[
        Path | None,
        typer.Option(
            envvar="SLIPSTREAM_VLLM_PYTHON",
            metavar="PYTHON",
            help="The Python of an environment with vLLM, which then samples the answers in place of transformers.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Run the embedded Explorer until SIGTERM or SIGINT."""
    settings = _engine_config(config, "serve", overlays)
    with _embedded_extra():
        from slipstream.embedded.serving import serve as run
    _exit_0_on_signals()
    run(settings, vllm)


@app.command()
def trainer(
    config: Annotated[Path, typer.Option(help="The Trainer's file.")] = Path("trainer.yaml"),
    overlays: Overlays = None,
) -> None:
    """Run the embedded Trainer until total_steps, or until no data has come for max_read_timeout."""
    settings = _engine_config(config, "train", overlays)
    with _embedded_extra():
        from slipstream.embedded.trainer import train as run
    run(settings)


@app.command()
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

    with _embedded_extra():
        _find("torch")

    given: LogOptions = context.obj
    level = ("--log-level", given.level) if given.level else ()
    # The children write to a pipe, where each would choose json.
    log_format = given.format or ("console" if sys.stdout.isatty() else None)
    options = (*level, *(("--log-format", log_format) if log_format else ()))
    programs = children(sidecar, explorer, trainer, options, overlays or (), production)
    check_models(explorer, trainer, overlays or ())
    asyncio.run(supervise(programs))


@app.command()
def trinity(
    config: Annotated[Path, typer.Option(help="The file of an Explorer or a Trainer.")],
    overlays: Overlays = None,
    show: Annotated[bool, typer.Option("--print", help="Only show the file that Trinity would run on.")] = False,
) -> None:
    """Run Trinity-RFT's Explorer or Trainer until it ends, or until SIGTERM or SIGINT. Exit code 3: start it again."""
    from slipstream.trinity.document import load_document
    from slipstream.trinity.launch import as_yaml, launch

    document = load_document(config, overlays or ())
    if show:
        print(as_yaml(document), end="")
    else:
        raise typer.Exit(launch(document, os.environ))


@app.command()
def rollback(
    version: Annotated[int, typer.Argument(metavar="VERSION", min=1, help="The version to go back to.")],
    config: Annotated[Path, typer.Option(help="The Trainer's file.")] = Path("trainer.yaml"),
    overlays: Overlays = None,
) -> None:
    """Go back to a version of the policy and discard what was trained after it. Explorer and Trainer are stopped."""
    from slipstream.local.rollback import rollback as run

    done = run(version, config, overlays or ())
    moved = f"{', '.join(map(str, done.steps))} moved to {done.folder}" if done.steps else "none were there"
    print(
        f"version {version} is the newest now; later versions: {moved}; {done.discarded} experiences discarded\n"
        "start the Explorer and the Trainer: an Explorer that still runs goes on with what it serves"
    )


@app.command(context_settings={"ignore_unknown_options": True})  # which are the script's
def tune(
    script: Annotated[Path, typer.Argument(metavar="SCRIPT", help="A Python script that calls tune().")],
    arguments: Annotated[
        list[str] | None, typer.Argument(metavar="[ARGUMENTS]...", help="Of the script.", show_default=False)
    ] = None,
    to_trinity: Annotated[
        Path | None,
        typer.Option(
            "--to-trinity",
            metavar="FILE",
            dir_okay=False,
            help="Do not train: write the YAML of Trinity-RFT's full run.",
        ),
    ] = None,
) -> None:
    """Run a script that tunes a model on a dataset, or write what it asks for as a file of Trinity-RFT's."""
    from slipstream.local.tuning import run_script

    run_script(script, arguments or (), to_trinity)


@app.command()
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


@app.command()
def status(
    url: Annotated[
        str | None, typer.Option(help="Of the sidecar (default: `listen` of --config).", show_default=False)
    ] = None,
    config: Annotated[Path, typer.Option(help="The sidecar's file, for its address.")] = Path("sidecar.yaml"),
    key: Annotated[
        str | None,
        typer.Option(envvar="SLIPSTREAM_API_KEY", help="A key with the role metrics or admin.", show_default=False),
    ] = None,
    watch: Annotated[bool, typer.Option("--watch", help="Show it again and again, until Ctrl-C.")] = False,
    every: Annotated[float, typer.Option(help="Seconds between two looks of --watch.", min=0.1)] = 2.0,
    as_json: Annotated[
        bool, typer.Option("--json", help="As GET /status gives it; one line a look of --watch.")
    ] = False,
) -> None:
    """Show a running sidecar: what is wrong, what is selected and why not, its runs, and rewards by version."""
    from slipstream.terminal.status import address, show

    show(address(url, config, os.environ), key, as_json=as_json, every=every if watch else None)


@model.command()
def fetch(
    name: Annotated[str, typer.Argument(help="smollm2: SmolLM2-135M-Instruct, de-quantised from Q4_1.")],
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="Where the model directory is written.")],
) -> None:
    """Bring a small real model, as a Hugging Face model directory."""
    with _embedded_extra():
        from slipstream.local.model import fetch as run

        run(name, directory)


@model.command("serve")
def serve_model(
    directory: Annotated[
        Path, typer.Argument(metavar="DIR", help="A Hugging Face model directory; its name in requests.")
    ],
    port: Annotated[int, typer.Option(help="On 127.0.0.1.", min=1, max=65535)] = 8011,
) -> None:
    """Serve a model that nothing trains, by OpenAI's chat completions, until SIGTERM or SIGINT."""
    with _embedded_extra():
        from slipstream.embedded.serving import serve_frozen as run
    _exit_0_on_signals()
    run(directory, port)


@key.command()
def new(
    roles: Annotated[
        list[str], typer.Option("--role", help="proxy, feedback, admin or metrics; give several.", show_default=False)
    ],
    name: Annotated[
        str, typer.Option(help="What it is called in access.keys, metrics and logs (default: its first role).")
    ] = "",
    tenant: Annotated[
        str | None,
        typer.Option(
            help="Whose sessions, tasks and feedback it reaches (default: the tenant of all keys that name none).",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Make an API key: it is shown once, beside the line for access.keys that lets it in."""
    from slipstream.access.keys import as_hash, new_key
    from slipstream.access.settings import entry

    made = new_key()
    print(f"key:   {made}\nentry: {entry(name or roles[0], roles, as_hash(made), tenant)}")


def _exit_0_on_signals() -> None:
    """uvicorn, when it has ended in order, raises the signal that ended it once more for whoever handled it before."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: sys.exit(0))


def _find(library: str) -> None:
    """An error as from importing it, without the seconds that importing it takes."""
    if importlib.util.find_spec(library) is None:
        raise ModuleNotFoundError(f"No module named {library!r}", name=library)


def _engine_config(path: Path, mode: Literal["serve", "train"], overlays: list[Path] | None) -> EngineConfig:
    """Read and check a file of the embedded engine, before torch is imported: that takes seconds."""
    from slipstream.embedded.config import load_config
    from slipstream.embedded.model_directory import check_model_directory

    with _embedded_extra():
        _find("torch")
    config = load_config(path, mode, overlays or ())
    check_model_directory(config.model.model_path)
    return config


@contextlib.contextmanager
def _embedded_extra() -> Iterator[None]:
    """A missing library of the extra is the user's to install, and is told so."""
    try:
        yield
    except ImportError as error:
        if (error.name or "").partition(".")[0] == "slipstream":
            raise
        raise SlipstreamError(f"{error}\nthis command needs the embedded engine; install it\n{EMBEDDED}") from error
