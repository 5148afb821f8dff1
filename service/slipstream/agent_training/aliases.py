"""The articles' commands, said as jobs and as arguments of `slipstream`."""

from __future__ import annotations

import json
import math
from pathlib import Path

from slipstream.agent_training.configs import AgentSFTConfig, DpoConfig, RLTrainingConfig
from slipstream.agent_training.jobs import Job, dataset_name, rl_job, sft_job
from slipstream.agent_training.trainers import model_directory
from slipstream.datasets.dialog_measures import TASK_ALIASES
from slipstream.errors import ConfigError
from slipstream.evaluation.metrics import metric_named

_BENCHMARKS = ("bfcl", "reasoning-gym")
"""Benchmarks that `slipstream evaluate` has, and that are no data sets."""


def sft_alias(
    data: str, output: Path, base_model: str | None = None, epochs: int | None = None, task_weights: str | None = None
) -> Job:
    """Return the job of `train sft --base-model --data --output --epochs --task-weights`.

    Args:
        data: `NAME:train`.
        output: directory of the checkpoints.
        task_weights: a JSON object of shares by tasks; `planning`, `timing` and `retrieval` are short names.

    Raises:
        ConfigError: an option cannot be used; names it.
    """
    name = dataset_name("--data", data, "train")
    fields = {
        "base_model": base_model,
        "num_epochs": epochs,
        "task_weights": None if task_weights is None else _shares(task_weights),
    }
    given = {field: value for field, value in fields.items() if value is not None}
    try:
        config = AgentSFTConfig.model_validate({"train_data": f"{name}:train", "dev_data": f"{name}:dev", **given})
    except ValueError as error:
        raise ConfigError(f"train sft: {error}") from error
    return sft_job(config, output=output)


def dpo_alias(data: str, output: Path, sft_model: Path, beta: float = 0.1, num_samples: int = 4) -> Job:
    """Return the job of `train dpo --sft-model --data --output --beta --num-samples`.

    Args:
        data: `NAME:train`.
        sft_model: a model directory, or a directory of checkpoints of one job.
        num_samples: runs of a prompt, of which the best and the worst are paired: the groups of the sidecar.

    Raises:
        ConfigError: an option cannot be used; names it.
    """
    name = dataset_name("--data", data, "train")
    if not (math.isfinite(beta) and beta > 0):
        raise ConfigError(f"--beta: expected a number above 0, found {beta:g}")
    if num_samples < 2:
        raise ConfigError(f"--num-samples: expected 2 or more, found {num_samples}")
    config = RLTrainingConfig(algorithm="dpo", dpo_config=DpoConfig(beta=beta))
    job = rl_job(config, name=name, model=str(model_directory(sft_model)), output=output)
    note = (
        f"num_samples: a group has runs.repeat_time of sidecar.yaml runs; set it to {num_samples} before they are made"
    )
    return Job(job.data, job.overlay, [*job.notes, note])


def evaluate_alias(
    model: str, benchmark: str, metrics: str | None = None, datasets: Path = Path("datasets")
) -> list[str]:
    """Return the arguments of `slipstream evaluate` for `evaluate --model --benchmark --metrics`.

    Args:
        model: as `slipstream evaluate` names models.
        benchmark: `NAME:test` of a data set, or what `slipstream evaluate --benchmark` takes, such as `bfcl`.
        metrics: names with commas.
        datasets: the folder of data sets.

    Raises:
        ConfigError: an option cannot be used; names it.
    """
    if Path(model).exists():
        raise ConfigError(
            f"--model: expected policy, version:NUMBER, production or a URL, found the folder {model}; "
            "`slipstream explorer` serves it"
        )
    cases = ["--benchmark", benchmark]
    if benchmark.partition(":")[0] not in _BENCHMARKS:
        cases = ["--held-out", str(datasets / dataset_name("--benchmark", benchmark, "test"))]
    try:
        named = [metric_named(each.strip()).value for each in metrics.split(",")] if metrics else []
    except ValueError as error:
        raise ConfigError(f"--metrics: {error}") from error
    return ["evaluate", "--model", model, *cases, *(["--metrics", ",".join(named)] if named else [])]


def _shares(text: str) -> dict[str, float]:
    try:
        read = json.loads(text)
    except ValueError as error:
        raise ConfigError(f"--task-weights: expected a JSON object, found {error}") from error
    if not isinstance(read, dict) or not all(_is_share(value) for value in read.values()):
        raise ConfigError(f"--task-weights: expected a JSON object of numbers from 0, found {text[:200]}")
    return {TASK_ALIASES.get(str(task), str(task)): float(share) for task, share in read.items()}


def _is_share(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < math.inf
