"""Weights of rows, from the shares that tasks have in training as `dataset.task_weights` says them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence


def task_of(labels: Sequence[str], weights: Mapping[str, float]) -> str | None:
    """Return the first label that has a weight; None if none has."""
    return next((label for label in labels if label in weights), None)


def shares(tasks: Sequence[str | None], weights: Mapping[str, float]) -> dict[str | None, float]:
    """Return the share of each task that has rows; they add up to 1.

    Rows without a weight keep the share that they have by their number. The others divide the rest in proportion to
    their weights. A task without rows takes nothing from the others.

    Args:
        tasks: of each row, as `task_of` says.

    Raises:
        ValueError: no task that has rows has a weight above 0.
    """
    counts = Counter(tasks)
    total = sum(weights[task] for task in counts if task is not None)
    other = counts[None] / len(tasks) if tasks else 0.0
    if tasks and not total and other < 1:
        raise ValueError(f"task_weights: expected a weight above 0 for one of {', '.join(sorted(map(str, counts)))}")
    found: dict[str | None, float] = {}
    for task in counts:
        found[task] = other if task is None else (1 - other) * weights[task] / total
    return found


def row_weights(labels: Sequence[Sequence[str]], weights: Mapping[str, float]) -> list[float]:
    """Return the weight of each row, so that each task has its share; their mean is 1.

    Args:
        labels: of each row's task.
        weights: of tasks, by their labels.

    Raises:
        ValueError: no task that has rows has a weight above 0.
    """
    tasks = [task_of(each, weights) for each in labels]
    counts, parts = Counter(tasks), shares(tasks, weights)
    return [parts[task] * len(tasks) / counts[task] for task in tasks]
