"""The shares that tasks have in training, as `dataset.task_weights` says them."""

from __future__ import annotations

import random
from collections.abc import Hashable, Mapping, Sequence

_OTHER = object()
"""Rows of tasks without a weight."""


def task_of(labels: Sequence[str], weights: Mapping[str, float]) -> str | None:
    """Return the first label that has a weight; None if none has."""
    return next((label for label in labels if label in weights), None)


def shares(tasks: Sequence[str | None], weights: Mapping[str, float]) -> dict[str | None, float]:
    """Return the share of each task that has rows; they add up to 1.

    Rows without a weight keep the share that they have by their number. The others divide the rest in proportion to
    their weights. A task without rows takes nothing from the others.
    """
    there = {task for task in tasks if task is not None}
    total = sum(weights[task] for task in there)
    other = sum(task is None for task in tasks) / len(tasks) if tasks else 0.0
    if not total:
        other = 1.0 if other else 0.0
    found: dict[str | None, float] = {task: (1 - other) * weights[task] / total for task in there} if total else {}
    return found | ({None: other} if other else {})


def drawn(tasks: Sequence[str | None], weights: Mapping[str, float], size: int, seed: int = 0) -> list[int]:
    """Draw an epoch in which each task has its share.

    The rows of a task are each taken equally often, but for the remainder, which is drawn. So a task of which there is
    too little is repeated, and one of which there is too much is cut.

    Args:
        tasks: of each row, as `task_of` says; None for a task without a weight.
        size: places that are drawn.

    Returns:
        Places of rows, shuffled.

    Raises:
        ValueError: no task that has rows has a weight above 0.
    """
    chance = random.Random(seed)  # noqa: S311 - a sample, no secret
    rows: dict[Hashable, list[int]] = {}
    for place, task in enumerate(tasks):
        rows.setdefault(_OTHER if task is None else task, []).append(place)
    quotas = _whole({_OTHER if task is None else task: share * size for task, share in shares(tasks, weights).items()})
    if tasks and not quotas:
        raise ValueError(f"task_weights: expected a weight above 0 for one of {', '.join(sorted(map(str, rows)))}")
    found: list[int] = []
    for task, quota in quotas.items():
        times, more = divmod(quota, len(rows[task]))
        found += rows[task] * times + chance.sample(rows[task], more)
    chance.shuffle(found)
    return found


def _whole(parts: Mapping[Hashable, float]) -> dict[Hashable, int]:
    """Whole numbers with the same sum, by largest remainders (Hamilton's method)."""
    found = {name: int(part) for name, part in parts.items()}
    left = round(sum(parts.values())) - sum(found.values())
    for name in sorted(parts, key=lambda name: (found[name] - parts[name], str(name)))[:left]:
        found[name] += 1
    return found
