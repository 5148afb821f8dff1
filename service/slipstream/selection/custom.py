"""The `python` strategy: the user's own code decides, and its mistakes select nothing."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable
from functools import partial
from typing import Any

from slipstream.errors import ConfigError
from slipstream.selection.decision import Decision
from slipstream.selection.settings import Python, check_select
from slipstream.trajectory import Task
from slipstream.user_code.errors import UserErrors
from slipstream.user_code.python_object import load_object

_REASON = re.compile(r"[A-Za-z0-9_.:-]{1,64}")
_MOST_REASONS = 20  # each one is a time series; a reason made of task ids must not become a million of them


class CustomStrategy:
    """Calls a function of the user's own, or the `select` of an object of the user's own, for each task.

    Raises:
        ConfigError: the object is neither, is asynchronous, or cannot be made with these params.
    """

    def __init__(self, settings: Python, path: str) -> None:
        self._name = settings.object.rpartition(":")[2]
        self._select = _select_of(settings, path)
        self._reasons: set[str] = set()
        self._errors = UserErrors("selection_failed")

    def decide(self, task: Task) -> Decision:
        try:
            return self._checked(self._select(task))
        except (Exception, SystemExit) as error:  # noqa: BLE001 - the user's code can raise anything
            self._errors.log(error, strategy=self._name, task_id=task.task_id)
            return Decision(False, f"error:{self._name}")

    def _checked(self, outcome: Any) -> Decision:
        if isinstance(outcome, bool):
            return Decision(outcome, self._name if outcome else f"not:{self._name}")
        if not isinstance(outcome, Decision):
            raise TypeError(f"expected bool or Decision; found {type(outcome).__name__}")
        metadata = json.loads(json.dumps(dict(outcome.metadata), allow_nan=False))  # the store keeps JSON
        labels = frozenset(map(str, outcome.labels))
        return Decision(bool(outcome.selected), self._bounded(outcome.reason), labels, metadata)

    def _bounded(self, reason: str) -> str:
        if reason not in self._reasons and len(self._reasons) < _MOST_REASONS and _REASON.fullmatch(reason):
            self._reasons.add(reason)
        return reason if reason in self._reasons else f"other:{self._name}"


def _select_of(settings: Python, path: str) -> Callable[[Task], Any]:
    found = load_object(settings.object)
    params = settings.params
    if inspect.isclass(found):
        try:
            found, params = found(**params), {}
        except Exception as error:  # the user's code can raise anything
            raise ConfigError(
                f"{path}.params: {settings.object} refused them ({type(error).__name__}: {error})"
            ) from error
    select = getattr(found, "select", found)
    try:
        check_select(select)
    except ValueError as error:
        raise ConfigError(f"{path}.object: expected {error}") from error
    return partial(select, **params)
