"""One seed of an experiment: its tasks as files, a tuning on them, and what was measured by version."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from experiments import report
from slipstream.local import model as models
from slipstream_client.tuner import (
    AlgorithmConfig,
    DatasetConfig,
    TunerModelConfig,
    tune,
)
from slipstream_client.tuner.functions import JudgeType, WorkflowType

Rows = Iterable[Mapping[str, Any]]


def arguments(
    about: str | None, *, steps: int, held_out: int, what: str, measure_every: int
) -> tuple[argparse.Namespace, Path]:
    """The command line of an experiment with its defaults, `what` being the tasks; and the model, fetched."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--steps", type=int, default=steps)
    parser.add_argument("--held-out", type=int, default=held_out, help=f"{what} that are measured on")
    parser.add_argument("--measure-every", type=int, default=measure_every, help="steps")
    parser.add_argument("--model", type=Path, default=report.OUTPUT / "model", help="where it is, or is to be put")
    given = parser.parse_args()
    return given, models.fetch("smollm2", given.model)


def publish(
    name: str,
    seed: report.Seed,
    measures: Sequence[report.Measure],
    title: str,
    part: Callable[[list[report.Seed], str], list[str]],
) -> None:
    """Keeps a seed, and writes the page's part from all that were run."""
    report.keep(name, seed)
    seeds = report.kept(name)
    report.write_part(name, part(seeds, report.chart(name, seeds, measures, title)))


def trained(
    name: str,
    seed: int,
    training: Rows,
    held_out: Rows,
    steps: int,
    *,
    workflow_func: WorkflowType,
    judge_func: JudgeType | None = None,
    model: TunerModelConfig,
    auxiliary_models: dict[str, TunerModelConfig] | None = None,
    algorithm: AlgorithmConfig,
) -> report.Seed:
    """Tunes from version 0, in a folder of the experiment's that is emptied before. The scores are the means of the
    workflow's and the judge's metrics, and of the reward."""
    folder = report.OUTPUT / name / f"seed-{seed}"
    shutil.rmtree(folder, ignore_errors=True)
    _write(folder / "tasks" / "train.jsonl", training)
    _write(folder / "tasks" / "test.jsonl", held_out)
    os.chdir(folder)  # checkpoints are written below
    began = time.monotonic()
    result = tune(
        workflow_func=workflow_func,
        judge_func=judge_func,
        train_dataset=DatasetConfig(path="tasks", split="train", total_steps=steps),
        eval_dataset=DatasetConfig(path="tasks", split="test"),
        model=model,
        auxiliary_models=auxiliary_models,
        algorithm=algorithm,
        project_name=name,
        experiment_name=f"seed-{seed}",
        concurrency=64,
        seed=seed,
    )
    versions = {each["version"]: {"reward": each["reward"], **each["metrics"]} for each in result.evaluations}
    counts = {
        "steps": len(result.steps),
        "runs": sum(each["runs"] for each in result.steps),
        "dropped": sum(each["dropped"] for each in result.steps),
        "held_out": result.evaluations[0]["runs"] + result.evaluations[0]["dropped"],
        **{
            in_step(metric, number): value
            for number, each in enumerate(result.steps, start=1)
            for metric, value in each["metrics"].items()
        },
    }
    return report.Seed(seed, versions, time.monotonic() - began, counts)


def in_step(metric: str, number: int) -> str:
    """The name of a count: the mean of a metric over the runs of a training step."""
    return f"{metric} in step {number}"


def _write(path: Path, rows: Rows) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
