"""The demo's tasks: sums and differences of two or three numbers of two digits, from reasoning-gym."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import reasoning_gym  # type: ignore[import-untyped]

TASKS_A_STEP = 4
_HELD_OUT_SEED = 20_000  # far from the seeds of training, and the same for all of them: what is compared is comparable


@dataclass(frozen=True)
class Task:
    question: str
    reference: str


def held_out_tasks(count: int) -> Sequence[Task]:
    """The tasks that are measured on."""
    return _tasks(_HELD_OUT_SEED, count)


def training_tasks(seed: int, count: int, held_out: Sequence[Task]) -> Sequence[Task]:
    """Other tasks than those held out."""
    known = {task.question for task in held_out}
    return [task for task in _tasks(seed, 2 * count) if task.question not in known][:count]


def _tasks(seed: int, count: int) -> list[Task]:
    data = reasoning_gym.create_dataset(
        "chain_sum", seed=seed, size=count, min_terms=2, max_terms=3, min_digits=2, max_digits=2
    )
    return [Task(entry["question"], entry["answer"]) for entry in data]
