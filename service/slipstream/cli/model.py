"""`slipstream model`: models to start from."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from slipstream.cli.engine import embedded_extra, exit_0_on_signals
from slipstream.output import relayed

commands = typer.Typer(help="Models to start from.", no_args_is_help=True)


@commands.command()
def fetch(
    name: Annotated[str, typer.Argument(help="smollm2: SmolLM2-135M-Instruct, de-quantised from Q4_1.")],
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="Where the model directory is written.")],
) -> None:
    """Bring a small real model, as a Hugging Face model directory."""
    with embedded_extra():
        from slipstream.local.model import fetch as run

        run(name, directory)


@commands.command("serve")
def serve_model(
    directory: Annotated[
        Path, typer.Argument(metavar="DIR", help="A Hugging Face model directory; its name in requests.")
    ],
    port: Annotated[int, typer.Option(help="On 127.0.0.1.", min=1, max=65535)] = 8011,
    max_model_len: Annotated[
        int | None,
        typer.Option(
            help="Tokens of a prompt and its answer (default: the model's own, at most 4096).",
            min=2,
            show_default=False,
        ),
    ] = None,
) -> None:
    """Serve a model that nothing trains, by OpenAI's chat completions, until SIGTERM or SIGINT."""
    with relayed():
        with embedded_extra():
            from slipstream.embedded.serving import serve_frozen as run
        exit_0_on_signals()
        run(directory, port, max_model_len)
