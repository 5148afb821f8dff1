"""The plain strategies: each one a function of a task, made from its settings."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from slipstream.selection.decision import Decision
from slipstream.selection.fraction import hash_fraction
from slipstream.selection.settings import Budget, ExplicitMark, HasTools, Labels, Model, Sampling
from slipstream.trajectory import Task

Strategy = Callable[[Task], Decision]
Clock = Callable[[], float]

_HOUR = 3600.0


def sampling(settings: Sampling) -> Strategy:
    salt = f"sampling:{settings.seed}"
    taken, left = Decision(True, "sampling"), Decision(False, "not_sampled")

    def decide(task: Task) -> Decision:
        return taken if hash_fraction(task.task_id, salt) < settings.rate else left

    return decide


def explicit_mark(settings: ExplicitMark) -> Strategy:
    def decide(task: Task) -> Decision:
        if not task.marked:
            return Decision(False, "no_mark")
        labels = task.labels if settings.labels is None else task.labels.intersection(settings.labels)
        if settings.labels is not None and not labels:
            return Decision(False, "other_mark")
        return Decision(True, "explicit_mark", labels)

    return decide


def labels(settings: Labels) -> Strategy:
    def decide(task: Task) -> Decision:
        any_of = task.labels.intersection(settings.any_of or task.labels)
        all_of = task.labels.issuperset(settings.all_of or ())
        if not all_of or (settings.any_of and not any_of):
            return Decision(False, "no_label")
        return Decision(True, "labels", task.labels.intersection((settings.any_of or ()) + (settings.all_of or ())))

    return decide


def model(settings: Model) -> Strategy:
    def decide(task: Task) -> Decision:
        name = task.model or ""
        selected = name in (settings.names or ()) or any(pattern.fullmatch(name) for pattern in settings.patterns or ())
        return Decision(selected, "model" if selected else "other_model")

    return decide


def has_tools(settings: HasTools) -> Strategy:
    def decide(task: Task) -> Decision:
        return Decision(task.has_tools is settings.value, "has_tools" if task.has_tools else "no_tools")

    return decide


PLAIN: Mapping[str, Callable[[Any], Strategy]] = {
    "sampling": sampling,
    "explicit_mark": explicit_mark,
    "labels": labels,
    "model": model,
    "has_tools": has_tools,
}
"""Constructors of the plain strategies, by their keys in `SelectionSettings`."""


class Budgeted:
    """At most so many tasks in any hour, by when they were let through.

    Deciding spends nothing: the task may yet be refused by another strategy. `spend` does, once it is selected.
    """

    def __init__(self, settings: Budget, clock: Clock) -> None:
        self._limit = settings.tasks_per_hour
        self._clock = clock
        self._spent: deque[float] = deque()

    def __call__(self, task: Task) -> Decision:
        hour_ago = self._clock() - _HOUR
        while self._spent and self._spent[0] <= hour_ago:
            self._spent.popleft()
        selected = len(self._spent) < self._limit
        return Decision(selected, "budget" if selected else "budget_spent")

    def spend(self) -> float:
        """Count a task; returns when, by which it can be taken back."""
        now = self._clock()
        self._spent.append(now)
        return now

    def take_back(self, at: float) -> None:
        """Count a task no longer that was counted at this time."""
        with suppress(ValueError):  # by now it may be more than an hour ago
            self._spent.remove(at)
