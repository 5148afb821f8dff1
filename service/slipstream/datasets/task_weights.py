"""Weights of tasks, from the shares that they are to have in training.

`dataset.task_weights` multiplies how often the rows of a task are taken, so that a task with more rows still has more
of training. The agent-training articles say shares instead: a third of training is tool selection, whatever there is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence


def weights_of_shares(labels: Iterable[Sequence[str]], shares: Mapping[str, float]) -> dict[str, float]:
    """Return the weights by which each task has its share, with rows of no such task at weight 1.

    Rows of no such task keep the share that they have by their number. The tasks divide the rest in proportion to their
    shares. A task without rows takes nothing from the others; its weight is not returned.

    Args:
        labels: of each row's task. A row counts for the first of its labels that has a share.
        shares: of tasks, by their labels; they need not add up to 1.

    Raises:
        ValueError: no task that has rows has a share above 0.
    """
    counts = Counter(next((label for label in each if label in shares), None) for each in labels)
    of_tasks = {task: count for task, count in counts.items() if task is not None}
    if not of_tasks:
        return {}
    total = sum(shares[task] for task in of_tasks)
    if not total:
        raise ValueError(f"shares: expected one above 0 among those of {', '.join(sorted(of_tasks))}")
    rows = sum(of_tasks.values())
    return {task: shares[task] / total * rows / count for task, count in of_tasks.items()}
