"""Commands of the Explorer and the Trainer, ours and Trinity-RFT's, and of what is trained without a sidecar."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from slipstream.cli.dataset import held_out_share
from slipstream.cli.engine import embedded_extra, engine_config, exit_0_on_signals
from slipstream.cli.options import SIDECAR_FILE, Overlays
from slipstream.output import relayed

commands = typer.Typer()


@commands.command()
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
    settings = engine_config(config, "serve", overlays)
    with relayed():
        with embedded_extra():
            from slipstream.embedded.serving import serve as run
        exit_0_on_signals()
        run(settings, vllm)


@commands.command()
def trainer(
    config: Annotated[Path, typer.Option(help="The Trainer's file.")] = Path("trainer.yaml"),
    overlays: Overlays = None,
    sidecar: Annotated[
        Path, typer.Option(help="The sidecar's file, for `datasets.held_out`; only algorithm_type mix reads it.")
    ] = SIDECAR_FILE,
) -> None:
    """Run the embedded Trainer until total_steps, or until no data has come for max_read_timeout."""
    settings = engine_config(config, "train", overlays)
    share = held_out_share(sidecar) if settings.algorithm.algorithm_type == "mix" else 0.0
    with relayed():
        with embedded_extra():
            from slipstream.embedded.trainer import train as run
        run(settings, share)


@commands.command()
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


@commands.command()
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


@commands.command(context_settings={"ignore_unknown_options": True})  # which are the script's
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
