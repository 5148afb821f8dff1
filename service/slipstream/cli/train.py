"""`slipstream train`: from a data set to a version of the policy."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from slipstream.cli.dataset import Directory, datasets_directory, held_out_share
from slipstream.cli.engine import embedded_extra, engine_config
from slipstream.cli.options import SIDECAR_FILE
from slipstream.output import relayed

if TYPE_CHECKING:
    from slipstream.agent_training.jobs import Job
    from slipstream.datasets.row import Row
    from slipstream.embedded.supervised import Outcome

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
    """Train on a data set, and publish the next version of the policy. The job's Trainer is stopped."""
    if context.invoked_subcommand is not None:
        return
    from slipstream.datasets import folder
    from slipstream.datasets.config import load_data_file
    from slipstream.datasets.erasure import apply_notes
    from slipstream.datasets.selection import is_selective, selected, taught
    from slipstream.errors import ConfigError

    file = load_data_file(config)
    if file.train.engine != "embedded":
        raise ConfigError(
            f"{config}: train.engine: expected embedded, found {file.train.engine}; for Trinity-RFT export with format "
            "trinity, and name the files in the experience_buffer of a job of its own"
        )
    where = datasets_directory(directory, sidecar)
    path = where / file.dataset.name
    apply_notes(where)  # of deletions that came while the data set was being made
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
            also=file.dataset.replay.datasets if file.dataset.replay is not None else (),
        )
        share = max(held_out_share(sidecar), float(made.about.get("held_out", {}).get("share", 0.0)))
        rows: Iterable[Row] = taught(path, share)
        if is_selective(file.dataset):
            from slipstream.embedded.policy_scores import PolicyScores

            chosen = selected(
                file.dataset,
                rows,
                lambda name: taught(where / name, share),
                PolicyScores(settings, file.train.start),
                {row.provenance.session for row in folder.read_rows(path, "held_out")},
            )
            rows = chosen.rows
            _show_choice(len(chosen.rows), chosen.report)
        if estimate or calibrate:
            from slipstream.embedded.training_report import report

            print(report(settings, rows, dataset, calibrates=calibrate))
            return
        done = train_rows(settings, rows, dataset, resume=resume)
    _show(done)
    if done.version is None:
        raise typer.Exit(1)


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


def _show_choice(rows: int, report: Mapping[str, Any]) -> None:
    print(f"{rows} rows are trained on, {report.get('replayed', 0)} of them of earlier data sets")
    for which, figures in report.get("coreset", {}).items():
        print(f"  {which}: " + ", ".join(f"{name} {value:.4g}" for name, value in figures.items()))


def _show_left_out(left_out: Mapping[str, int]) -> None:
    for reason, count in left_out.items():
        print(f"  left out, {reason}: {count}")
