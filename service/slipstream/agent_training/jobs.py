"""Configurations of the articles, said in `data.yaml` and in an overlay over `trainer.yaml`.

A key that this system has no counterpart for is refused in words if it would change what is learned, and noted if it
would not.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import yaml

from slipstream.agent_training.configs import AgentSFTConfig, DpoConfig, GrpoConfig, PpoConfig, RLTrainingConfig
from slipstream.datasets.config import DataFile
from slipstream.datasets.task_weights import weights_of_shares
from slipstream.errors import ConfigError, SlipstreamError

_DATA, _OVERLAY = "data.yaml", "overlay.yaml"

_NO_VALUE_MODEL = (
    "ppo_config.vf_coef: expected 0, found {found:g}: the policy has no value head. The embedded engine compares an "
    "answer with the mean of its batch, and Trinity-RFT's critic (overlays/ppo.yaml) is a model of its own, whose loss "
    "has no weight in the policy's"
)


@dataclass(frozen=True)
class Job:
    """A training as this system has it.

    Attributes:
        data: the data set, and what is trained on it; None for an algorithm that learns from the sidecar's traffic,
            whose Trainer only needs the overlay.
        overlay: keys over `trainer.yaml`; those of `model` and `algorithm` belong over `explorer.yaml` too.
        notes: in words, what was asked for and has no effect here, or belongs into `sidecar.yaml`.
    """

    data: DataFile | None
    overlay: Mapping[str, Any]
    notes: Sequence[str] = field(default=())

    def write(self, directory: Path) -> Path:
        """Write `overlay.yaml`, and `data.yaml` if there is one.

        Returns:
            The path of `data.yaml`, or of the overlay without it.
        """
        directory.mkdir(parents=True, exist_ok=True)
        overlay = directory / _OVERLAY
        overlay.write_text(yaml.safe_dump(dict(self.overlay), sort_keys=False), encoding="utf-8")
        if self.data is None:
            return overlay
        said = self.data.model_dump(mode="json", by_alias=True, exclude_defaults=True)
        said.setdefault("train", {})["overlays"] = [*map(str, self.data.train.overlays), str(overlay.absolute())]
        path = directory / _DATA
        path.write_text(yaml.safe_dump(said, sort_keys=False), encoding="utf-8")
        return path

    def commands(self, path: Path, datasets: Path) -> Iterator[tuple[str, ...]]:
        """Yield the commands of `slipstream` that carry it out: an export, unless there is a data set of its name, and
        the training.

        Args:
            path: of `data.yaml`.
            datasets: the folder of data sets.
        """
        folder = ("--directory", str(datasets))
        if self.data is not None and not (datasets / self.data.dataset.name).exists():
            yield "dataset", "export", "--data", str(path), *folder
        yield "train", "--config", str(path), *folder

    def run(self, directory: Path, datasets: Path) -> None:
        """Write the files and carry it out.

        Args:
            datasets: the folder of data sets.

        Raises:
            SlipstreamError: the algorithm learns from traffic, or a command failed; its own words are on stderr.
        """
        path = self.write(directory)
        if self.data is None:
            raise SlipstreamError(
                "ppo and grpo learn from the sidecar's traffic: start it with `slipstream up --overlay "
                f"{path}`, or name it in `slipstream tune`"
            )
        for command in self.commands(path, datasets):
            slipstream(*command)


def slipstream(*arguments: str) -> None:
    """Run a command of this program in a process of its own, which gives its memory back.

    Raises:
        SlipstreamError: it failed.
    """
    command = [sys.executable, "-m", "slipstream", *arguments]
    if (code := subprocess.run(command, check=False).returncode) != 0:  # noqa: S603 - our own program
        raise SlipstreamError(f"slipstream {' '.join(arguments)}: ended with {code}")


def sft_job(
    config: AgentSFTConfig,
    *,
    labels: Iterable[Sequence[str]] | None = None,
    output: Path | None = None,
    engine: Literal["embedded", "trinity"] = "embedded",
) -> Job:
    """Return the job of a supervised training.

    Args:
        labels: of the data set's rows, by which shares become weights; None before the data set is made.
        output: directory of the checkpoints; None for that of `trainer.yaml`.

    Raises:
        ConfigError: a key cannot be said here; names it.
    """
    name = dataset_name("train_data", config.train_data, "train")
    if dataset_name("dev_data", config.dev_data, "dev") != name:
        raise ConfigError(f"dev_data: expected {name}:dev, found {config.dev_data}: a data set holds out its own rows")
    notes = []
    if config.lora_dropout:
        notes.append(f"lora_dropout {config.lora_dropout:g} has no effect: the adapters have no dropout")
    if labels is None:
        notes.append("task_weights multiply what there is: the shares are met once the data set's labels are known")
    dataset: dict[str, Any] = {
        "name": name,
        "sources": [{"policy": {"best_of_group": 1}}],
        "task_weights": _task_weights(config.task_weights, labels),
    }
    if config.use_coreset_selection:
        dataset["coreset"] = {"strategy": config.coreset_strategy, "size": config.coreset_target_size}
    if config.use_online_continual:
        dataset["replay"] = {
            "datasets": config.continual_datasets,
            "buffer": config.continual_buffer_size,
            "ratio": config.continual_replay_ratio,
        }
    return Job(_data_file(dataset, engine), _merged(_model(config), _sft(config), _output(output)), notes)


def rl_job(
    config: RLTrainingConfig,
    *,
    name: str = "agent_pairs",
    model: str | None = None,
    output: Path | None = None,
    engine: Literal["embedded", "trinity"] = "embedded",
) -> Job:
    """Return the job of a reinforcement learning.

    Args:
        name: of the data set, for `dpo` and `rft`.
        model: directory of the model that is trained; None for that of `trainer.yaml`.

    Raises:
        ConfigError: a key cannot be said here; names it.
    """
    common = _merged({"model": {"model_path": model}} if model else {}, _output(output))
    if config.algorithm == "dpo":
        overlay = _dpo(config.dpo_config, engine)
        return Job(
            _data_file({"name": name, "kind": "preference", "pairs": {"from": ["runs"]}}, engine),
            _merged(common, overlay),
        )
    if config.algorithm == "rft":
        data = _data_file({"name": name, "sources": [{"policy": {"best_of_group": 1}}]}, engine)
        return Job(data, _merged(common, {"algorithm": {"algorithm_type": "sft", "kl_loss_fn": "none"}}))
    if config.algorithm == "ppo":
        return Job(
            None,
            _merged(common, _ppo(config.ppo_config)),
            [f"chunk_size: set runs.concurrency: {config.ppo_config.chunk_size} in sidecar.yaml"],
        )
    return Job(
        None,
        _merged(common, _grpo(config.grpo_config)),
        [f"group_size: set runs.repeat_time: {config.grpo_config.group_size} in sidecar.yaml"],
    )


def dataset_name(key: str, data: str, split: str) -> str:
    """Return the name of a data set that is said as `NAME:SPLIT` or `NAME`.

    Raises:
        ConfigError: it is another split, or there is no name.
    """
    name, colon, found = data.partition(":")
    if not name or (colon and found != split):
        raise ConfigError(f"{key}: expected NAME:{split}, found {data!r}")
    return name


def _task_weights(shares: Mapping[str, float], labels: Iterable[Sequence[str]] | None) -> dict[str, float]:
    if not shares or not any(shares.values()):
        return {}
    if labels is not None:
        try:
            return weights_of_shares(labels, shares)
        except ValueError as error:
            raise ConfigError(f"task_weights: {error}") from error
    mean = sum(shares.values()) / len(shares)  # so that rows of no such task, which weigh 1, keep their share
    return {task: share / mean for task, share in shares.items()}


def _data_file(dataset: Mapping[str, Any], engine: str) -> DataFile:
    form = {"format": "trinity"} if engine == "trinity" else {}
    try:
        return DataFile.model_validate({"dataset": {**dataset, **form}, "train": {"engine": engine}})
    except ValueError as error:
        raise ConfigError(f"dataset: {error}") from error


def _model(config: AgentSFTConfig) -> dict[str, Any]:
    lora: dict[str, Any] = {
        "lora_rank": config.lora_r,
        "lora_alpha": config.lora_alpha,
        "target_modules": list(config.lora_target_modules),
    }
    lora |= {name: True for name in ("load_in_4bit", "load_in_8bit") if getattr(config, name)}
    model = {
        "model_path": config.base_model,
        "max_model_len": config.max_length,
        "max_response_tokens": config.max_length // 2,  # of answers that are sampled: below max_model_len
        "lora_configs": [lora],
    }
    return {"model": model}


def _sft(config: AgentSFTConfig) -> dict[str, Any]:
    optimizer = {
        "lr": config.learning_rate,
        "lr_warmup_steps_ratio": config.warmup_ratio,
        "lr_scheduler_type": config.lr_scheduler,
    }
    return {
        "algorithm": {"algorithm_type": "sft", "kl_loss_fn": "none", "optimizer": optimizer},
        "buffer": {
            "train_batch_size": config.batch_size * config.gradient_accumulation,
            "total_epochs": config.num_epochs,
        },
        "trainer": {"max_token_len_per_gpu": config.batch_size * config.max_length},
    }


def _dpo(config: DpoConfig, engine: str) -> dict[str, Any]:
    if config.reference_free:
        raise ConfigError(
            "dpo_config.reference_free: expected false, found true: TRL, which trains here, has no DPO without a "
            "reference. With LoRA the reference is the model without its adapters, and takes no memory"
        )
    if engine == "trinity" and config.loss_type != "sigmoid":
        raise ConfigError(f"dpo_config.loss_type: expected sigmoid of Trinity-RFT, found {config.loss_type}")
    arguments: dict[str, Any] = {"beta": config.beta, "label_smoothing": config.label_smoothing}
    if engine == "embedded":
        arguments["loss_type"] = config.loss_type
    return {"algorithm": {"algorithm_type": "dpo", "kl_loss_fn": "none", "policy_loss_fn_args": arguments}}


def _ppo(config: PpoConfig) -> dict[str, Any]:
    if config.vf_coef:
        raise ConfigError(_NO_VALUE_MODEL.format(found=config.vf_coef))
    algorithm = {
        "algorithm_type": "ppo",
        "repeat_times": 1,
        "policy_loss_fn_args": {"clip_range": config.clip_range},
        **_kl(config.kl_coef),
    }
    return {"algorithm": algorithm, "buffer": {"train_batch_size": config.num_rollouts}}


def _grpo(config: GrpoConfig) -> dict[str, Any]:
    if not config.use_advantage:
        raise ConfigError(
            "grpo_config.use_advantage: expected true, found false: the advantage over its group is all that GRPO "
            "learns from; `rft` trains on the best runs without one"
        )
    return {"algorithm": {"algorithm_type": "grpo", "repeat_times": config.group_size, **_kl(config.beta)}}


def _kl(weight: float) -> dict[str, Any]:
    """The KL term. The embedded engine has no reference model, and refuses a weight above 0 in its own words."""
    return {"kl_loss_fn": "k2", "kl_loss_fn_args": {"kl_coef": weight}}


def _output(output: Path | None) -> dict[str, Any]:
    return {} if output is None else {"checkpoint_root_dir": str(output.absolute())}


def _merged(*parts: Mapping[str, Any]) -> dict[str, Any]:
    """The parts joined, section by section."""
    found: dict[str, Any] = {}
    for part in parts:
        for name, value in part.items():
            known = found.get(name)
            found[name] = {**known, **value} if isinstance(known, dict) and isinstance(value, Mapping) else value
    return found
