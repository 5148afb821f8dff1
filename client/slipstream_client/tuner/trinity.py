"""A tuning as the YAML of Trinity-RFT's own, full offline run: explorer and trainer together, on GPUs.

The fields are those of Trinity-RFT 0.6.0, set as AgentScope's tuner sets them, except for what it loses on the way:
temperature, top_p and enable_thinking stand where the engine and the trainer read them, and the functions are given
by name, so that the file is all that Trinity needs.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slipstream_client.tuner.config import OFFLINE, AlgorithmConfig, TunerModelConfig
from slipstream_client.tuner.errors import TunerError
from slipstream_client.tuner.function_names import importing
from slipstream_client.tuner.trinity_tasks import here, set_tasks, workflow_arguments
from slipstream_client.tuner.yaml_tree import read, section, write

if TYPE_CHECKING:
    from slipstream_client.tuner.dataset import DatasetConfig

TO_TRINITY = "SLIPSTREAM_TO_TRINITY"
"""The environment variable with the path of the YAML that `tune()` is to write in place of training."""

_DEFAULTS: dict[str, dict[str, Any]] = {
    "explorer": {"runner_per_model": 16, "max_repeat_times_per_runner": 1},
    "synchronizer": {
        "sync_style": "dynamic_by_explorer",
        "sync_method": "nccl",
        "sync_interval": 1,
        "sync_timeout": 7200,
    },
    "monitor": {"monitor_type": "tensorboard"},
}
"""AgentScope's template, where no file of the user's own is given."""


_MONITORS = ("tensorboard", "wandb", "mlflow", "swanlab")
_HEAD = """\
# A full run of Trinity-RFT, written by Slipstream's tune(). On a machine with GPUs and this file's folders:
#   ray start --head && trinity run --config FILE
"""


def wanted_yaml() -> Path | None:
    """The file that `slipstream tune SCRIPT --to-trinity FILE` wants `tune()` to write, or None: then it trains.

    Raises:
        TunerError: the script that calls `tune()` is only being imported for its functions.
    """
    if (script := importing()) is not None:
        raise TunerError(f"{script} calls tune() when it is imported: put the call under `if __name__ == '__main__':`")
    return Path(path) if (path := os.environ.get(TO_TRINITY)) else None


def write_trinity_config(
    path: str | os.PathLike[str],
    *,
    workflow_func: Callable[..., Any],
    judge_func: Callable[..., Any] | None = None,
    train_dataset: DatasetConfig | None = None,
    eval_dataset: DatasetConfig | None = None,
    model: TunerModelConfig | None = None,
    auxiliary_models: Mapping[str, TunerModelConfig] | None = None,
    algorithm: AlgorithmConfig | None = None,
    project_name: str | None = None,
    experiment_name: str | None = None,
    monitor_type: str | None = None,
    config_path: str | None = None,
    run_timeout: float = 3600.0,
    seed: int | None = None,
    now: Callable[[], datetime] = datetime.now,
) -> None:
    """Write what `tune()` was called with as a file for `trinity run --config`. The file is there whole or not at all.

    Args:
        path: the YAML to write; one that is there is replaced.
        config_path: a YAML of Trinity's to start from; whatever else is given overrides it. Without it, `model` and
            `train_dataset` are needed.
        run_timeout: seconds that a run may take, where the file of `config_path` does not say it.
        seed: of the order of the tasks; None: the dataset's.
        now: tells the time for the name of an experiment that has none.

    Raises:
        ValueError: an argument that Trinity could not run with; the message names it.
    """
    if config_path is None:
        tree: dict[str, Any] = {
            "mode": "both",
            "project": "AgentScope",
            "name": f"Experiment-{now():%Y%m%d%H%M%S}",
            "checkpoint_root_dir": str(Path("checkpoints").absolute()),
            **{name: dict(fields) for name, fields in _DEFAULTS.items()},
        }
        for field, value in (("train_dataset", train_dataset), ("model", model)):
            if value is None:
                raise ValueError(f"{field}: missing; Trinity needs it, here or in the file of config_path")
        algorithm = algorithm or AlgorithmConfig()
    else:
        tree = read(config_path)
    section(tree, "explorer").setdefault("max_timeout", math.ceil(run_timeout))
    for field, given in (("project", project_name), ("name", experiment_name)):
        if given is not None:
            tree[field] = given
    if monitor_type is not None:
        if monitor_type not in _MONITORS:
            raise ValueError(f"monitor_type: expected one of {', '.join(_MONITORS)}, found {monitor_type!r}")
        section(tree, "monitor")["monitor_type"] = monitor_type
    if algorithm is not None:
        _set_algorithm(tree, algorithm)
    if model is not None:
        _set_model(tree, model)
    if (tree.get("model") or {}).get("lora_configs") is not None:
        raise ValueError(
            "config_path: expected a file without model.lora_configs for Trinity: its OpenAI server, which workflows "
            "call, answers without the adapter"
        )
    section(tree, "explorer", "rollout_model")["enable_openai_api"] = True  # what workflows call
    arguments = workflow_arguments(workflow_func, judge_func)
    for name, auxiliary in (auxiliary_models or {}).items():
        if auxiliary.base_url is None:
            entry = {"name": name, **_engine(auxiliary), **_sampling(auxiliary, f"auxiliary_models[{name!r}]")}
            section(tree, "explorer").setdefault("auxiliary_models", []).append(entry)
        else:
            section(arguments, "auxiliary_models")[name] = _served(auxiliary, name)
    set_tasks(tree, train_dataset, eval_dataset, arguments, seed)
    write(Path(path), _HEAD, tree)


def _set_algorithm(tree: dict[str, Any], algorithm: AlgorithmConfig) -> None:
    if algorithm.algorithm_type in OFFLINE:
        kind = algorithm.algorithm_type
        raise ValueError(f"algorithm.algorithm_type: {kind} learns from examples, not from the runs of a workflow")
    section(tree, "algorithm")["algorithm_type"] = algorithm.algorithm_type
    section(tree, "algorithm")["repeat_times"] = algorithm.group_size
    section(tree, "algorithm", "optimizer")["lr"] = algorithm.learning_rate
    section(tree, "buffer")["batch_size"] = algorithm.batch_size
    section(tree, "trainer")["save_interval"] = algorithm.save_interval_steps
    section(tree, "explorer")["eval_interval"] = algorithm.eval_interval_steps


def _set_model(tree: dict[str, Any], model: TunerModelConfig) -> None:
    """The sampling stands in `model`: from there Trinity's validators hand it to tasks, engines and the trainer."""
    if model.tinker_config is not None:
        raise ValueError("model.tinker_config: Tinker's models know no tools in Trinity, and have no HTTP of OpenAI's")
    sampling = _sampling(model, "model")
    # Only of the engine: auxiliary models would take it over from `model` where they have none.
    thinking = sampling.pop("enable_thinking", None)
    rollout = section(tree, "explorer", "rollout_model")
    engine = _engine(model)
    section(tree, "model").update(model_path=engine.pop("model_path"), **sampling)
    rollout.update(engine)
    if thinking is not None:
        rollout["enable_thinking"] = thinking


def _engine(model: TunerModelConfig) -> dict[str, Any]:
    return {**model.get_config(), "model_path": here(model.model_path)}


def _served(model: TunerModelConfig, name: str) -> dict[str, Any]:
    """An auxiliary model that is served already: the workflow calls it, and Trinity starts no engine for it.

    The key is not written down: the file has the name of the environment variable that holds it.
    """
    key = "EMPTY" if model.api_key is None else f"${{oc.env:{_variable(name)}}}"
    return model.model_dump(exclude={"tinker_config"}, exclude_unset=True) | {"api_key": key}


def _variable(name: str) -> str:
    return f"{re.sub('[^A-Za-z0-9]', '_', name).upper()}_API_KEY"


def _sampling(model: TunerModelConfig, field: str) -> dict[str, Any]:
    if model.max_tokens >= model.max_model_len:
        raise ValueError(
            f"{field}.max_tokens: expected less than max_model_len ({model.max_model_len}), found {model.max_tokens}; "
            "no token would be left for a prompt, and Trinity's engine refuses such requests"
        )
    sampling = {
        "max_model_len": model.max_model_len,
        "max_response_tokens": model.max_tokens,
        "temperature": model.temperature,
        "top_p": model.top_p,
    }
    return sampling if model.enable_thinking is None else {**sampling, "enable_thinking": model.enable_thinking}
