"""The side job of Trinity-RFT that trains on a data set: its file, made from the file of the policy's Trainer.

It is a job of its own, in a folder of its own, since a job of Trinity's has one algorithm and one numbering of steps.
Facts about Trinity-RFT 0.6.0 that decide what is written here:

- its reader takes `message` for the column of messages, unless it is told otherwise;
- its DPO takes rows two by two from a micro-batch, and `use_dynamic_bsz` puts the two of a pair into different ones;
- its DPO's reference is `model.model_path`, which is the version that training starts from here;
- after a resume it counts the passes over the data anew, so the end is given in steps;
- its losses get the arguments in `policy_loss_fn_args` by name, and fail on those of other engines;
- without `cluster.gpu_per_node` a single GPU would turn the mode into `colocate`, which has an Explorer.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from slipstream.errors import ConfigError

Algorithm = Literal["sft", "dpo"]

PROJECT, NAME = "job", "dataset"
"""Project and name of the side job, below its folder."""

_SCHEDULES = ("constant", "cosine")
_LOSS = {"sft": ("loss_agg_mode",), "dpo": ("beta", "label_smoothing")}
_FORMAT = {
    "sft": {"prompt_type": "messages", "messages_key": "messages", "tools_key": "tools"},
    "dpo": {
        "prompt_type": "messages",
        "messages_key": "messages",
        "chosen_key": "chosen",
        "rejected_key": "rejected",
    },
}
_WITH_CRITIC = "ppo"  # alone of Trinity's algorithms, and its default
_STRATEGY = ("trainer.trainer_strategy", "fsdp2")
"""The key with Trinity's default."""
_KEPT = 2
"""Full checkpoints of the side job: the one before is there until the next one is whole."""


@dataclass(frozen=True)
class SideJob:
    """Inputs of a side job.

    Attributes:
        folder: that it works in.
        model: the Hugging Face directory that training starts from.
        rows: the folder of its data set.
        steps: training steps in all.
        id: of the run, by which its actors are told from those of other jobs on the same Ray.
    """

    folder: Path
    model: Path
    rows: Path
    steps: int
    id: str


def check(policy: Mapping[str, Any], algorithm: Algorithm) -> None:
    """Refuse what a side job cannot do.

    Args:
        policy: the file of the policy's Trainer, with the overlays of `data.yaml`.
        algorithm: of the data set's kind.

    Raises:
        ConfigError: a key is wrong; names each.
    """
    problems = [
        f"{key}: expected {expected}, found {found!r}"
        for key, expected, found, right in _expectations(policy, algorithm)
        if not right
    ]
    if problems:
        raise ConfigError(*problems)


def check_resumable(policy: Mapping[str, Any], training: Mapping[str, Any]) -> None:
    """Refuse a side job whose checkpoint the policy's own Trainer could not resume from.

    Its optimizer and weights are in one file for each GPU, in the way of the strategy; and a Trainer with a critic
    looks for that beside them, which no data set trains. The Trainer would end at its start, at each start.

    Args:
        policy: the file of the policy's Trainer, with its own overlays.
        training: with all overlays of `data.yaml`; `check` let it pass.

    Raises:
        ConfigError: a key differs, or the policy's algorithm has a critic; names each.
    """
    of, trained = _Sections(policy), _Sections(training)
    problems = []
    algorithm = of("algorithm.algorithm_type") or _WITH_CRITIC
    if algorithm == _WITH_CRITIC:
        problems.append(
            "algorithm.algorithm_type: expected one without a critic in the policy's own Trainer, found "
            f"{algorithm}: it could not resume from a checkpoint that has none; train on the data set in a job of "
            "another algorithm, and give its Hugging Face directory to a new job as model.model_path"
        )
    for key, default in (("cluster.node_num", None), ("cluster.gpu_per_node", None), _STRATEGY):
        own, found = of(key) or default, trained(key) or default
        if own != found:
            problems.append(
                f"{key}: expected that of the policy's own Trainer, which is to resume from this checkpoint; found "
                f"{found!r}, and {own!r} there; overlays of that Trainer come before the algorithm's"
            )
    if problems:
        raise ConfigError(*problems)


def document(policy: Mapping[str, Any], algorithm: Algorithm, job: SideJob) -> dict[str, Any]:
    """Return the side job's file.

    Args:
        policy: the file of the policy's Trainer, which `check` let pass. Model, GPUs and optimizer are those in it.
    """
    made = copy.deepcopy(dict(policy))
    for key in ("stages", "data_processor"):  # stages rename the job
        made.pop(key, None)
    trainer = dict(made.get("trainer") or {})
    trainer |= {
        "name": "trainer",
        "total_steps": job.steps,
        "save_interval": trainer.get("save_interval") or job.steps,
        "save_hf_checkpoint": "last",
        "max_checkpoints_to_keep": _KEPT,
        "enable_preview": False,  # it would log texts of rows
    }
    if algorithm == "dpo":
        trainer["use_dynamic_bsz"] = False
    synchronizer = made.get("synchronizer") or {}
    return made | {
        "mode": "train",
        "project": PROJECT,
        "group": "",
        "name": NAME,
        "checkpoint_root_dir": str(job.folder),
        "continue_from_checkpoint": True,  # with false the job gets another name
        "ray_namespace": f"slipstream-dataset-{job.id}",
        "model": {**made["model"], "model_path": str(job.model)},
        "algorithm": _algorithm(made["algorithm"], algorithm),
        "buffer": {
            "train_batch_size": made["buffer"]["train_batch_size"],
            "total_steps": job.steps,
            "trainer_input": {
                "experience_buffer": {
                    "name": "rows",
                    "storage_type": "file",
                    "path": str(job.rows),
                    "split": "train",
                    "format": dict(_FORMAT[algorithm]),
                }
            },
        },
        "trainer": trainer,
        "synchronizer": {
            "sync_method": "checkpoint",
            **({"sync_timeout": synchronizer["sync_timeout"]} if "sync_timeout" in synchronizer else {}),
        },
    }


def _algorithm(given: Mapping[str, Any], algorithm: Algorithm) -> dict[str, Any]:
    """The section without what belongs to learning from rewards, of which the policy's file may have any part."""
    loss = given.get("policy_loss_fn_args") or {}
    made: dict[str, Any] = {
        "algorithm_type": algorithm,
        "repeat_times": 2 if algorithm == "dpo" else 1,
        "optimizer": given.get("optimizer") or {},
        "entropy_loss_fn": "none",
        "policy_loss_fn_args": {name: loss[name] for name in _LOSS[algorithm] if name in loss},
    }
    if algorithm == "sft":
        made["kl_loss_fn"] = "none"
        if mode := loss.get("loss_agg_mode", given.get("loss_agg_mode")):
            made["loss_agg_mode"] = mode  # Trinity overrides the argument by this
        return made
    made["kl_loss_fn"] = given.get("kl_loss_fn") or "k2"
    if made["kl_loss_fn"] == "none":
        made |= {"kl_loss_fn": "k2", "kl_loss_fn_args": {"kl_coef": 0}}  # Trinity's DPO does not do without one
    elif "kl_loss_fn_args" in given:
        made["kl_loss_fn_args"] = given["kl_loss_fn_args"]
    return made


def _expectations(policy: Mapping[str, Any], algorithm: Algorithm) -> list[tuple[str, str, Any, bool]]:
    """Each key with what is expected, what is found, and whether that is right."""
    of = _Sections(policy)
    batch, nodes, gpus = of("buffer.train_batch_size"), of("cluster.node_num"), of("cluster.gpu_per_node")
    schedule = of("algorithm.optimizer.lr_scheduler_type")
    strategy, kind = of("trainer.trainer_strategy"), of("trainer.trainer_type")
    loss, reference_free = (
        of("algorithm.policy_loss_fn_args.loss_type"),
        of("algorithm.policy_loss_fn_args.reference_free"),
    )
    lora, model = of("model.lora_configs"), of("model.model_path")
    given = of("algorithm.algorithm_type")
    return [
        ("mode", "train: the file of the policy's Trainer", policy.get("mode"), policy.get("mode") == "train"),
        ("model.model_path", "a directory", model, isinstance(model, str) and bool(model)),
        (
            "algorithm.algorithm_type",
            f"{algorithm}, which overlays/{algorithm}.yaml among train.overlays says",
            given,
            given == algorithm,
        ),
        (
            "algorithm.optimizer.lr_scheduler_type",
            "constant or cosine with train.engine trinity",
            schedule,
            schedule in (None, *_SCHEDULES),
        ),
        (
            "algorithm.policy_loss_fn_args.loss_type",
            "sigmoid with train.engine trinity",
            loss,
            algorithm != "dpo" or loss in (None, "sigmoid"),
        ),
        (
            "algorithm.policy_loss_fn_args.reference_free",
            "false: Trinity-RFT's DPO has a reference",
            reference_free,
            algorithm != "dpo" or not reference_free,
        ),
        (
            "model.lora_configs",
            "none with train.engine trinity: a checkpoint of adapters is no version that can be moved",
            lora,
            not lora,
        ),
        ("buffer.train_batch_size", "a number of rows, at least 1", batch, _is_count(batch)),
        ("cluster.node_num", "a number of machines, at least 1", nodes, _is_count(nodes)),
        ("cluster.gpu_per_node", "a number of GPUs, at least 1", gpus, _is_count(gpus)),
        (
            "trainer.trainer_strategy",
            "fsdp or fsdp2 with train.engine trinity",
            strategy,
            strategy in (None, "fsdp", "fsdp2"),
        ),
        ("trainer.trainer_type", "verl with train.engine trinity", kind, kind in (None, "verl")),
    ]


class _Sections:
    """Values of a file by their dotted keys; None for what is not there."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self._document = document

    def __call__(self, key: str) -> Any:
        value: Any = self._document
        for part in key.split("."):
            value = value.get(part) if isinstance(value, Mapping) else None
        return value


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1
