"""`slipstream train`: from a data set to a version of the policy."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from slipstream.cli.dataset import Directory, datasets_directory
from slipstream.cli.engine import embedded_extra, engine_config
from slipstream.cli.options import SIDECAR_FILE
from slipstream.output import relayed

if TYPE_CHECKING:
    from slipstream.embedded.supervised import Outcome

commands = typer.Typer()


@commands.command()
def train(
    config: Annotated[Path, typer.Option(help="What is trained on, and by which Trainer's file.")] = Path("data.yaml"),
    sidecar: Annotated[Path, typer.Option(help="The sidecar's file, for `datasets.directory`.")] = SIDECAR_FILE,
    directory: Directory = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run that was stopped or killed.")] = False,
    estimate: Annotated[bool, typer.Option("--estimate", help="Only say what memory and time it would take.")] = False,
    calibrate: Annotated[
        bool, typer.Option("--calibrate", help="With --estimate: run two steps, and reckon from these.")
    ] = False,
) -> None:
    """Train on a data set, and publish the next version of the policy. The job's Trainer is stopped."""
    from slipstream.datasets import folder
    from slipstream.datasets.config import load_data_file
    from slipstream.errors import ConfigError

    file = load_data_file(config)
    if file.train.engine != "embedded":
        raise ConfigError(f"{config}: train.engine: expected embedded, found {file.train.engine}")
    for part in ("coreset", "replay"):
        if getattr(file.dataset, part) is not None:
            raise ConfigError(f"{config}: dataset.{part}: expected none: slipstream train does not know it yet")
    path = datasets_directory(directory, sidecar) / file.dataset.name
    made = folder.manifest(path)
    if made.kind is not file.dataset.kind:
        raise ConfigError(
            f"{config}: dataset.kind: expected {made.kind}, as {path} was made, found {file.dataset.kind}"
        )
    settings = engine_config(file.train.trainer, "train", list(file.train.overlays))
    with relayed():
        with embedded_extra():
            from slipstream.embedded.dataset_inputs import TrainedDataset
            from slipstream.embedded.supervised import train_rows
        dataset = TrainedDataset(
            name=made.name,
            digest=made.digest,
            kind=made.kind,
            start=file.train.start,
            task_weights=file.dataset.task_weights,
            seed=file.dataset.seed,
        )
        rows = folder.read_rows(path, "train")
        if estimate or calibrate:
            from slipstream.embedded.training_report import report

            print(report(settings, rows, dataset, calibrates=calibrate))
            return
        done = train_rows(settings, rows, dataset, resume=resume)
    _show(done)
    if done.version is None:
        raise typer.Exit(1)


def _show(done: Outcome) -> None:
    if done.version is None:
        print(f"stopped after step {done.steps}; --resume goes on")
        return
    started = f"version {done.parent}" if done.parent else "the base model"
    print(f"version {done.version}: {done.steps} steps from {started}")
    _show_left_out(done.left_out)
    for name, value in done.metrics.items():
        print(f"  {name}: {value:.4g}")
    if done.discarded:
        print(f"  {done.discarded} experiences of earlier versions are discarded: they are off-policy now")
    if done.warning:
        print(f"  warning: {done.warning}")


def _show_left_out(left_out: Mapping[str, int]) -> None:
    for reason, count in left_out.items():
        print(f"  left out, {reason}: {count}")
