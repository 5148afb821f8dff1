"""What an answer with tool calls is worth, by a case's possible answers.

Values are compared as BFCL's `ast_checker` compares them (texts without case, spaces and some punctuation; a parameter
may be left out where its possible values say so), with one difference: what is partly right counts in part.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

WEIGHTS = {"called": 0.1, "tool": 0.3, "arguments": 0.3, "recall": 0.3}
"""What the parts of a `Score` count for in the reward."""

Call = tuple[str, Mapping[str, Any]]
"""A function's name and its arguments."""


@dataclass(frozen=True)
class Score:
    """One answer; each is in [0, 1].

    Attributes:
        called: whether there is a call that could be read.
        tool: whether the right function was called, and no other.
        arguments: the share of arguments that are right, of those given and those missing; 0 for another function.
        recall: whether the expected call was made, with every argument right.
    """

    called: float
    tool: float
    arguments: float
    recall: float

    @property
    def reward(self) -> float:
        return sum(weight * getattr(self, part) for part, weight in WEIGHTS.items())


def score(calls: Sequence[Call], function: str, expected: Mapping[str, Sequence[Any]]) -> Score:
    """Of several calls of the right function the best counts for its arguments."""
    shares = [share(arguments, expected) for name, arguments in calls if name == function]
    best = max(shares, default=0.0)
    return Score(
        called=float(bool(calls)),
        tool=float(len(calls) == 1 and bool(shares)),
        arguments=best,
        recall=float(best == 1),
    )


def share(arguments: Mapping[str, Any], expected: Mapping[str, Sequence[Any]]) -> float:
    """The share of right arguments among those given and those that are missing; 1 where there are none of either."""
    right = sum(name in expected and _possible(value, expected[name]) for name, value in arguments.items())
    missing = sum(name not in arguments and "" not in values for name, values in expected.items())
    counted = len(arguments) + missing
    return right / counted if counted else 1.0


def _possible(value: Any, values: Sequence[Any]) -> bool:
    return any(_alike(value, each) for each in values)


def _alike(value: Any, right: Any) -> bool:
    if isinstance(right, dict):  # its parameters have possible values again
        return isinstance(value, dict) and share(value, right) == 1
    if isinstance(right, list):
        return isinstance(value, list) and len(value) == len(right) and all(map(_alike, value, right))
    if isinstance(right, str):
        return isinstance(value, str) and _plain(value) == _plain(right)
    return isinstance(value, bool) == isinstance(right, bool) and bool(value == right)


def _plain(text: str) -> str:
    return re.sub(r"[ ,./\-_*^]", "", text).lower().replace("'", '"')
