"""The `python` strategy: the user's own code decides, and its mistakes select nothing."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import structlog

from slipstream.errors import ConfigError, SlipstreamError
from slipstream.isolation import NotFinished, Pool, Raised
from slipstream.selection.decision import Decision
from slipstream.selection.settings import Python, check_select
from slipstream.trajectory import Task
from slipstream.user_code.errors import UserErrors
from slipstream.user_code.python_object import load_object

_log = structlog.get_logger(__name__)

_REASON = re.compile(r"[A-Za-z0-9_.:-]{1,64}")
_MOST_REASONS = 20  # each one is a time series; a reason made of task ids must not become a million of them


_DEADLINE = 10.0
"""Seconds for a decision. One at a time is made, so that a strategy which needs longer would hold up all others."""


class CustomStrategy:
    """Asks a function of the user's own, or the `select` of an object of the user's own, about each task, in the
    process of the user's code.

    Raises:
        ConfigError: the object is neither, is asynchronous, or cannot be made with these params.
    """

    def __init__(self, settings: Python, path: str, pool: Pool) -> None:
        self._name = settings.object.rpartition(":")[2]
        self._named = settings.object, settings.params
        self._pool = pool
        self._reasons: set[str] = set()
        self._errors = UserErrors("selection_failed")
        pool.prepare(_make, *self._named)
        try:
            pool.call(_make, *self._named, timeout=pool.start_timeout)
        except _Refused as error:
            raise ConfigError(f"{path}.{error}") from error
        except (NotFinished, Raised) as error:
            raise ConfigError(f"{path}.object: expected an object that can be made; found that {error}") from error

    def decide(self, task: Task) -> Decision:
        try:
            outcome: bool | Decision = self._pool.call(_decided, *self._named, task, timeout=_DEADLINE)
        except NotFinished as error:
            _log.warning("selection_stopped", strategy=self._name, task_id=task.task_id, reason=str(error))
            return Decision(False, f"error:{self._name}")
        except Raised as error:
            self._errors.log(error, strategy=self._name, task_id=task.task_id)
            return Decision(False, f"error:{self._name}")
        if isinstance(outcome, bool):
            return Decision(outcome, self._name if outcome else f"not:{self._name}")
        return replace(outcome, reason=self._bounded(outcome.reason))

    def _bounded(self, reason: str) -> str:
        if reason not in self._reasons and len(self._reasons) < _MOST_REASONS and _REASON.fullmatch(reason):
            self._reasons.add(reason)
        return reason if reason in self._reasons else f"other:{self._name}"


class _Refused(SlipstreamError):
    """The configuration cannot be carried out."""


_made: dict[str, Callable[[Task], Any]] = {}
"""In the process of the user's code: the strategies by name and parameters. Each is made once."""


def _make(path: str, params: dict[str, Any]) -> None:
    """Make the strategy of that name, unless it is made already. Raises _Refused."""
    _strategy(path, params)


def _decided(path: str, params: dict[str, Any], task: Task) -> bool | Decision:
    """Ask the strategy; raises TypeError or ValueError for an outcome that the store cannot keep."""
    outcome = _strategy(path, params)(task)
    if isinstance(outcome, bool):
        return outcome
    if not isinstance(outcome, Decision):
        raise TypeError(f"expected bool or Decision; found {type(outcome).__name__}")
    metadata = json.loads(json.dumps(dict(outcome.metadata), allow_nan=False))  # the store keeps JSON
    return Decision(bool(outcome.selected), str(outcome.reason), frozenset(map(str, outcome.labels)), metadata)


def _strategy(path: str, params: dict[str, Any]) -> Callable[[Task], Any]:
    name = f"{path} {params!r}"
    if name not in _made:
        _made[name] = _select_of(path, params)
    return _made[name]


def _select_of(path: str, params: dict[str, Any]) -> Callable[[Task], Any]:
    found = load_object(path)
    if inspect.isclass(found):
        try:
            found, params = found(**params), {}
        except Exception as error:  # the user's code can raise anything
            raise _Refused(f"params: {path} refused them ({type(error).__name__}: {error})") from error
    select = getattr(found, "select", found)
    try:
        check_select(select)
    except ValueError as error:
        raise _Refused(f"object: expected {error}") from error
    return partial(select, **params)
