"""The tasks of Trinity-RFT's run, and the functions of the user's that do and judge them."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slipstream_client.tuner.function_names import name_of
from slipstream_client.tuner.yaml_tree import section

if TYPE_CHECKING:
    from slipstream_client.tuner.dataset import DatasetConfig

WORKFLOW = "slipstream_client.tuner.trinity_workflow.TunedWorkflow"
"""Trinity's registry takes the import path of a class for its name."""


def set_tasks(
    tree: dict[str, Any],
    train_dataset: DatasetConfig | None,
    eval_dataset: DatasetConfig | None,
    arguments: Mapping[str, Any],
    seed: int | None,
) -> None:
    """Set the place of the tasks, and the workflow that runs each of them.

    Raises:
        ValueError: a dataset that Trinity could not read, or that is too small for a step; it is named.
    """
    explorer_input = section(tree, "buffer", "explorer_input")
    if train_dataset is not None:
        explorer_input.pop("tasksets", None)  # Trinity takes one or the other
        taskset = section(tree, "buffer", "explorer_input", "taskset")
        taskset.update(_taskset(train_dataset, "train_dataset", least=section(tree, "buffer").get("batch_size") or 1))
        if seed is not None:
            taskset["data_selector"] = {"selector_type": "shuffle", "seed": seed}
        section(tree, "buffer")["total_epochs"] = train_dataset.total_epochs
        section(tree, "buffer")["total_steps"] = train_dataset.total_steps
    if eval_dataset is not None:
        evaluation = explorer_input.get("eval_tasksets") or []
        explorer_input["eval_tasksets"] = [*evaluation, _taskset(eval_dataset, "eval_dataset")]
    one = explorer_input.get("taskset")
    training = [one] if one else explorer_input.get("tasksets") or []
    if not training:
        raise ValueError("train_dataset: missing, and config_path has no buffer.explorer_input.taskset")
    for taskset in (*training, *(explorer_input.get("eval_tasksets") or ())):
        taskset["default_workflow_type"] = WORKFLOW
        taskset["workflow_args"] = {**(taskset.get("workflow_args") or {}), **copy.deepcopy(arguments)}


def _taskset(dataset: DatasetConfig, field: str, least: int = 1) -> dict[str, Any]:
    path = Path(dataset.path).expanduser()
    if dataset.split is None:
        raise ValueError(f"{field}.split: missing; Trinity reads one split")
    if path.is_file():
        raise ValueError(
            f"{field}.path: {dataset.path!r} is a file; Trinity reads a directory, or a dataset of the Hub"
        )
    if path.is_dir() or path.is_absolute() or dataset.path.startswith((".", "~")):
        tasks = len(dataset.load()) * dataset.total_epochs  # what is wrong is better known here than on the cluster
        if dataset.total_steps is None and tasks < least:
            raise ValueError(
                f"{field}: {tasks} tasks in all epochs make no step of {least}, and Trinity leaves them out"
            )
    return {
        "name": field.replace("dataset", "taskset"),
        "storage_type": "file",
        "path": here(dataset.path),
        "subset_name": dataset.name,
        "split": dataset.split,
    }


def workflow_arguments(workflow_func: Callable[..., Any], judge_func: Callable[..., Any] | None) -> dict[str, Any]:
    names = {"workflow_func": name_of(workflow_func, "workflow_func")}
    if judge_func is not None:
        names["judge_func"] = name_of(judge_func, "judge_func")
    folders = dict.fromkeys(str(found.folder) for found in names.values() if found.folder is not None)
    return {**{field: found.name for field, found in names.items()}, "python_path": list(folders)}


def here(path: str) -> str:
    """Name a local path so that a worker finds it from its own directory; anything else is a name on the hub."""
    local = Path(path).expanduser()
    return str(local.absolute()) if local.exists() else path
