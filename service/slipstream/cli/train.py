"""`slipstream train`: from a data set to a version of the policy."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from slipstream.cli.dataset import Directory, datasets_directory, held_out_share
from slipstream.cli.engine import embedded_extra, engine_config
from slipstream.cli.options import SIDECAR_FILE
from slipstream.cli.training_choice import RowChoice, show
from slipstream.output import relayed

if TYPE_CHECKING:
    from slipstream.agent_training.jobs import Job
    from slipstream.datasets.config import Train
    from slipstream.datasets.trained_dataset import Outcome, TrainedDataset

Sidecar = Annotated[Path, typer.Option(help="The sidecar's file, for `datasets.directory`.")]
NamedData = Annotated[str, typer.Option("--data", metavar="NAME:train", help="The data set's name.")]
Output = Annotated[Path, typer.Option("--output", help="The folder of checkpoints; data.yaml is written there.")]

commands = typer.Typer(invoke_without_command=True)


@commands.callback()
def train(
    context: typer.Context,
    config: Annotated[Path, typer.Option(help="What is trained on, and by which Trainer's file.")] = Path("data.yaml"),
    sidecar: Sidecar = SIDECAR_FILE,
    directory: Directory = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run that was stopped or killed.")] = False,
    estimate: Annotated[bool, typer.Option("--estimate", help="Only say what memory and time it would take.")] = False,
    calibrate: Annotated[
        bool, typer.Option("--calibrate", help="With --estimate: run two steps, and reckon from these.")
    ] = False,
) -> None:
    """Train on a data set, and publish the next version of the policy. Stop the job's Trainer first."""
    if context.invoked_subcommand is not None:
        return
    from slipstream.datasets import folder
    from slipstream.datasets.config import load_data_file
    from slipstream.datasets.erasure import apply_notes
    from slipstream.datasets.trained_dataset import TrainedDataset
    from slipstream.errors import ConfigError

    file = load_data_file(config)
    if file.train.engine == "trinity" and (estimate or calibrate):
        raise ConfigError(f"{config}: train.engine: expected embedded, which alone has estimates; found trinity")
    where = datasets_directory(directory, sidecar)
    path = where / file.dataset.name
    earlier = file.dataset.replay.datasets if file.dataset.replay is not None else ()
    applied = apply_notes(where)  # of deletions that came while the data set was being made
    applied.check(f"{config}: dataset.name", path)
    for name in earlier:
        applied.check(f"{config}: dataset.replay.datasets", where / name)
    made = folder.manifest(path)
    for key, found, expected in (
        ("kind", file.dataset.kind, made.kind),
        ("format", file.dataset.format, made.format if file.train.engine == "trinity" else file.dataset.format),
    ):
        if found != expected:
            raise ConfigError(f"{config}: dataset.{key}: expected {expected}, as {path} was made, found {found}")
    dataset = TrainedDataset(
        name=made.name,
        digest=made.digest,
        kind=made.kind,
        start=file.train.start,
        task_weights=file.dataset.task_weights,
        seed=file.dataset.seed,
        also=earlier,
    )
    share = max(held_out_share(sidecar), float(made.about.get("held_out", {}).get("share", 0)))
    choice = RowChoice(file.dataset, where, share)
    if file.train.engine == "trinity":
        show(_by_trinity(file.train, choice, dataset, resume=resume))
    else:
        done = _by_us(file.train, choice, dataset, resume=resume, estimates=estimate or calibrate, calibrates=calibrate)
        print(done) if isinstance(done, str) else show(done)


def _by_trinity(train: Train, choice: RowChoice, dataset: TrainedDataset, *, resume: bool) -> Outcome:
    from slipstream.datasets.trinity_training import TrainerFiles, train_rows

    return train_rows(TrainerFiles.read(train, os.environ), choice.rows(None), dataset, resume=resume)


def _by_us(
    train: Train, choice: RowChoice, dataset: TrainedDataset, *, resume: bool, estimates: bool, calibrates: bool
) -> Outcome | str:
    """Train by the embedded engine, or return the estimate of it as text."""
    settings = engine_config(train.trainer, "train", list(train.overlays))
    with relayed():
        with embedded_extra():
            from slipstream.embedded.policy_scores import PolicyScores
            from slipstream.embedded.supervised import train_rows
            from slipstream.embedded.training_report import report
        rows = choice.rows(lambda each: PolicyScores(settings, train.start)(each))
        if estimates:
            return report(settings, rows, dataset, calibrates=calibrates)
        return train_rows(settings, rows, dataset, resume=resume)


@commands.command()
def sft(
    data: NamedData,
    output: Output,
    base_model: Annotated[
        str | None, typer.Option("--base-model", help="The model directory to start from.", show_default=False)
    ] = None,
    epochs: Annotated[int | None, typer.Option(min=1, help="Passes over the rows (default: 3).")] = None,
    task_weights: Annotated[
        str | None, typer.Option("--task-weights", metavar="JSON", help="Shares by tasks.", show_default=False)
    ] = None,
    sidecar: Sidecar = SIDECAR_FILE,
    directory: Directory = None,
) -> None:
    """Supervised training by the names of the agent-training articles: writes data.yaml, and runs it."""
    from slipstream.agent_training.aliases import sft_alias

    _run(sft_alias(data, output, base_model, epochs, task_weights), output, datasets_directory(directory, sidecar))


@commands.command()
def dpo(
    data: NamedData,
    output: Output,
    sft_model: Annotated[Path, typer.Option("--sft-model", help="A model, or a job's checkpoints, to start from.")],
    beta: Annotated[float, typer.Option(help="How near the policy stays to the one that it starts from.")] = 0.1,
    num_samples: Annotated[int, typer.Option("--num-samples", help="Runs of a prompt.")] = 4,
    sidecar: Sidecar = SIDECAR_FILE,
    directory: Directory = None,
) -> None:
    """Preference training by the names of the agent-training articles: writes data.yaml, and runs it."""
    from slipstream.agent_training.aliases import dpo_alias

    _run(dpo_alias(data, output, sft_model, beta, num_samples), output, datasets_directory(directory, sidecar))


def _run(job: Job, output: Path, datasets: Path) -> None:
    for note in job.notes:
        print(note)
    job.run(output, datasets)
