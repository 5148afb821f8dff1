"""What an answer with a function call is worth, by a case's possible answers.

The answer is a call as in Python, as BFCL has it from models that are asked in their prompt. Values are compared as
`slipstream.evaluation.metrics` compares them.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from slipstream.evaluation.metrics import argument_share

WEIGHTS = {"called": 0.1, "tool": 0.3, "arguments": 0.3, "recall": 0.3}
"""What the parts of a `Score` count for in the reward."""


@dataclass(frozen=True)
class Score:
    """One answer; each is in [0, 1].

    Attributes:
        called: whether the answer is a call that can be read.
        tool: whether it names the right function, even where the rest cannot be read.
        arguments: the share of arguments that are right, of those given and those missing; 0 for another function, and
            where they cannot be read.
        recall: whether it is the expected call, with every argument right.
    """

    called: float
    tool: float
    arguments: float
    recall: float

    @property
    def reward(self) -> float:
        return float(sum(weight * getattr(self, part) for part, weight in WEIGHTS.items()))


def read(answer: str) -> dict[str, Any] | None:
    """The arguments of the call that an answer is, literal values by name; None where it is anything else."""
    try:
        call = ast.parse(answer.strip(), mode="eval").body
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name) or call.args:
            return None
        return {str(each.arg): ast.literal_eval(each.value) for each in call.keywords}
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError):  # what `ast` says of what it cannot read
        return None


def score(answer: str, function: str, expected: Mapping[str, Sequence[Any]]) -> Score:
    given = read(answer)
    right = answer.partition("(")[0].strip() == function
    arguments = argument_share(given, expected) if given is not None and right else 0.0
    return Score(float(given is not None), float(right), arguments, float(arguments == 1))
