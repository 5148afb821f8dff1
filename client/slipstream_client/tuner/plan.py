"""Arguments of `tune`, worked out: over the file of `config_path` if there is one."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from slipstream_client.tuner.config import GROUPED, OFFLINE, AlgorithmConfig, TunerModelConfig
from slipstream_client.tuner.dataset import DatasetConfig
from slipstream_client.tuner.yaml_tree import read

_PROJECT = "AgentScope"  # where a user of the original looks for checkpoints


@dataclass(frozen=True)
class Plan:
    """Everything but how the engine is reached.

    Attributes:
        model: None where a remote engine's own configuration is all there is.
        total: tasks in all epochs.
        document: of `config_path`; what the local engine knows of it counts for it.
    """

    train: Sequence[Mapping[str, Any]]
    total: int
    evaluation: Sequence[Mapping[str, Any]] | None
    model: TunerModelConfig | None
    algorithm: AlgorithmConfig
    project: str
    experiment: str
    root: Path
    document: Mapping[str, Any]

    @property
    def folder(self) -> Path:
        """Return the folder of the experiment."""
        return self.root / self.project / self.experiment

    @property
    def steps(self) -> int:
        return math.ceil(self.total / self.algorithm.batch_size)

    @property
    def least(self) -> int:
        """Runs that a group must have left: one alone would have its bare reward taken for an advantage."""
        return 2 if self.algorithm.algorithm_type in GROUPED else 1

    def configuration(self, seed: int | None) -> dict[str, Any]:
        """Return what must stay the same between two calls of `tune`, if the second is to go on with the first."""
        algorithm = self.algorithm.model_dump(exclude={"save_interval_steps", "eval_interval_steps"})
        model = self.model.model_dump(mode="json", exclude={"api_key"}) if self.model else {}
        return {
            **{f"algorithm.{name}": value for name, value in algorithm.items()},
            **{f"model.{name}": value for name, value in model.items()},
            "train_dataset": f"{len(self.train)} tasks, sha256 {_digest(self.train)}",
            "seed": seed,
        }


def plan(
    *,
    train_dataset: DatasetConfig | None,
    eval_dataset: DatasetConfig | None,
    model: TunerModelConfig | None,
    algorithm: AlgorithmConfig | None,
    project_name: str | None,
    experiment_name: str | None,
    monitor_type: str | None,
    config_path: str | None,
) -> Plan:
    """Reads the file and the datasets, and checks that they make sense together.

    Raises:
        ValueError: an argument is missing or makes no sense; it is named.
    """
    document = read(config_path) if config_path else {}
    model = model or _model(document)
    algorithm = algorithm or _algorithm(document)
    train_dataset = train_dataset or _dataset(document, _taskset(document))
    evaluated = _section(document, "buffer", "explorer_input").get("eval_tasksets") or [None]
    eval_dataset = eval_dataset or _dataset(document, evaluated[0])
    monitor_type = monitor_type or _section(document, "monitor").get("monitor_type")
    if train_dataset is None:
        raise ValueError("train_dataset: missing, and config_path names none")
    if monitor_type not in (None, "tensorboard"):
        raise ValueError(f"monitor_type: expected 'tensorboard', found {monitor_type!r}")
    if model is not None and model.tinker_config is not None:
        raise ValueError("model.tinker_config: there is no training by Tinker here; AgentScope's own tuner has it")
    if model is not None and (model.base_url or model.api_key):
        raise ValueError("model.base_url, model.api_key: for auxiliary models; the tuned one is at explorer_url")
    if algorithm.algorithm_type in OFFLINE:
        raise ValueError(
            f"algorithm.algorithm_type: {algorithm.algorithm_type} learns from examples, not from a workflow's runs"
        )
    if algorithm.algorithm_type in GROUPED and algorithm.group_size < 2:
        raise ValueError(
            f"algorithm.group_size: {algorithm.algorithm_type} compares the runs of a task with each other: expected "
            f"at least 2, found {algorithm.group_size}"
        )
    train = train_dataset.load()
    steps = train_dataset.total_steps
    return Plan(
        train=train,
        total=len(train) * train_dataset.total_epochs if steps is None else steps * algorithm.batch_size,
        evaluation=eval_dataset.load() if eval_dataset else None,
        model=model,
        algorithm=algorithm,
        project=_name("project_name", project_name or document.get("project") or _PROJECT),
        experiment=_name(
            "experiment_name",
            experiment_name or document.get("name") or f"Experiment-{datetime.now():%Y%m%d%H%M%S}",
        ),
        root=Path(document.get("checkpoint_root_dir") or "checkpoints").expanduser().absolute(),
        document=document,
    )


def _model(document: Mapping[str, Any]) -> TunerModelConfig | None:
    model, rollout = _section(document, "model"), _section(document, "explorer", "rollout_model")
    if not model.get("model_path"):
        return None
    given = {
        "model_path": model["model_path"],
        "max_model_len": model.get("max_model_len"),
        "temperature": model.get("temperature"),
        "top_p": model.get("top_p"),
        "max_tokens": model.get("max_response_tokens"),
        "enable_thinking": rollout.get("enable_thinking"),
    }
    return TunerModelConfig(**{name: value for name, value in given.items() if value is not None})


def _algorithm(document: Mapping[str, Any]) -> AlgorithmConfig:
    algorithm = _section(document, "algorithm")
    given = {
        "algorithm_type": algorithm.get("algorithm_type"),
        "learning_rate": _section(document, "algorithm", "optimizer").get("lr"),
        "group_size": algorithm.get("repeat_times"),
        "batch_size": _section(document, "buffer").get("batch_size"),
        "save_interval_steps": _section(document, "trainer").get("save_interval"),
        "eval_interval_steps": _section(document, "explorer").get("eval_interval"),
    }
    return AlgorithmConfig(**{name: value for name, value in given.items() if value is not None})


def _taskset(document: Mapping[str, Any]) -> Any:
    explorer_input = _section(document, "buffer", "explorer_input")
    return explorer_input.get("taskset") or (explorer_input.get("tasksets") or [None])[0]


def _dataset(document: Mapping[str, Any], taskset: Any) -> DatasetConfig | None:
    if not taskset or not taskset.get("path"):
        return None
    buffer = _section(document, "buffer")
    given = {
        "path": taskset["path"],
        "name": taskset.get("subset_name"),
        "split": taskset.get("split"),
        "total_epochs": buffer.get("total_epochs"),
        "total_steps": buffer.get("total_steps"),
    }
    return DatasetConfig(**{name: value for name, value in given.items() if value is not None})


def _section(document: Mapping[str, Any], *names: str) -> Mapping[str, Any]:
    for depth, name in enumerate(names, start=1):
        document = document.get(name) or {}
        if not isinstance(document, Mapping):
            at = ".".join(names[:depth])
            raise ValueError(f"config_path: expected a mapping at {at}, found {document!r}")  # noqa: TRY004 - as the others
    return document


def _name(field: str, value: str) -> str:
    if value in (".", "..") or Path(value).name != value:
        raise ValueError(f"{field}: expected a name for a folder, found {value!r}")
    return value


def _digest(tasks: Sequence[Mapping[str, Any]]) -> str:
    digest = hashlib.sha256()
    for task in tasks:
        digest.update(json.dumps(task, sort_keys=True, default=lambda value: type(value).__name__).encode())
    return digest.hexdigest()[:16]
