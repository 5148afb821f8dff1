"""Metrics of tool use: tool calls that a model made against those that a case expects. Each value is in [0, 1].

Arguments are compared as the Berkeley Function Calling Leaderboard's `ast_checker` compares them (S. Patil et al.,
bfcl-eval): a parameter has possible values, the empty text among them says that it may be left out, texts are equal
without case, spaces and some punctuation, and numbers by value. One difference: what is partly right counts in part.
A plan is judged by order: the expected calls are to be an ordered subsequence of those that were made.

A metric is None if the case gives no basis for it. It then counts for nothing in a mean, and it is the case that
decides this, never the answer, so that the means of two models are over the same cases.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from slipstream.errors import ScoringError
from slipstream.rewards.tool_use import ToolCall, parsed

_MOST_PAIRS = 250_000
"""Pairs of calls of one case that are compared, as for the `tool_calls` reward."""


class Metric(StrEnum):
    """Name of a metric."""

    TOOL_ACCURACY = "tool_accuracy"
    """F1 of the tools' names; the names of the agent-training articles: `tool_selection_accuracy`."""
    ARGUMENT_ACCURACY = "argument_accuracy"
    """Share of right arguments of the expected calls; 0 for a call that was not made."""
    RECALL = "recall"
    """Share of the expected calls that were made with each argument right."""
    PLAN_SUCCESS = "plan_success"
    """1 if the expected tools were called in the expected order; `plan_success_rate`."""
    STEP_EFFICIENCY = "step_efficiency"
    """Expected steps over steps of a plan that succeeded, at most 1; 0 for one that did not."""
    TIMING_PRECISION = "timing_precision"
    """Share of steps at which a tool was called exactly if one was due."""
    END_TO_END = "end_to_end"
    """1 if all that the case says of the right answer holds; `end_to_end_success`."""


ALIASES: Mapping[str, Metric] = {
    "tool_selection_accuracy": Metric.TOOL_ACCURACY,
    "arg_accuracy": Metric.ARGUMENT_ACCURACY,
    "plan_success_rate": Metric.PLAN_SUCCESS,
    "efficiency": Metric.STEP_EFFICIENCY,
    "timing": Metric.TIMING_PRECISION,
    "end_to_end_success": Metric.END_TO_END,
}
"""Further names under which a metric can be asked for."""


@dataclass(frozen=True, slots=True)
class ExpectedCall:
    """A tool call that a case expects.

    Attributes:
        arguments: possible values of each parameter; the empty text among them: it may be left out. A value that is an
            object has possible values for each of its keys again.
    """

    name: str
    arguments: Mapping[str, Sequence[Any]] = field(default_factory=dict)


def metric_named(name: str) -> Metric:
    """Return the metric of a name or an alias.

    Raises:
        ValueError: there is none; names those that there are.
    """
    if name in ALIASES:
        return ALIASES[name]
    try:
        return Metric(name)
    except ValueError:
        raise ValueError(f"expected one of {', '.join([*Metric, *ALIASES])}, found {name!r}") from None


def expected_call(raw: Mapping[str, Any]) -> ExpectedCall:
    """Read a call as a case has it: in OpenAI's form, whose arguments are the only possible ones, or in BFCL's,
    `{"function": {"parameter": [possible values]}}`.

    Raises:
        ValueError: it is neither.
    """
    if "name" in raw or "function" in raw:
        return exactly(parsed(raw))
    (name, arguments), *more = raw.items() or [("", None)]
    if more or not isinstance(arguments, Mapping) or not all(isinstance(each, list) for each in arguments.values()):
        raise ValueError("expected a tool call, or one function with lists of possible values of its parameters")
    return ExpectedCall(str(name), arguments)


def exactly(call: ToolCall) -> ExpectedCall:
    """Return the expectation of this call and no other, such as one that production made. An argument that is the
    empty text may be left out too.

    Raises:
        ValueError: it has no name, or its arguments are no object, or nested deeper than can be followed.
    """
    if not call.name or call.arguments is None:
        raise ValueError("expected a tool call with a name and arguments that are an object")
    try:
        return ExpectedCall(call.name, {name: [_possible_values(value)] for name, value in call.arguments.items()})
    except RecursionError as error:
        raise ValueError("expected arguments that are nested less deeply") from error


def tool_accuracy(expected: Sequence[ExpectedCall], made: Sequence[ToolCall]) -> float:
    """F1 of the names of the calls, each counted as often as it stands there; 1 if there is none on either side."""
    if not expected and not made:
        return 1.0
    shared = Counter(call.name for call in expected) & Counter(call.name for call in made)
    return 2 * shared.total() / (len(expected) + len(made))


def argument_accuracy(expected: Sequence[ExpectedCall], made: Sequence[ToolCall]) -> float | None:
    """Mean share of right arguments over the expected calls, in any order; None if no call is expected.

    Raises:
        ScoringError: there are too many calls to compare.
    """
    return _mean_of_matches(expected, made, lambda share: share)


def recall(expected: Sequence[ExpectedCall], made: Sequence[ToolCall]) -> float | None:
    """Share of the expected calls that were made with each argument right, in any order; None if none is expected.

    Raises:
        ScoringError: there are too many calls to compare.
    """
    return _mean_of_matches(expected, made, lambda share: float(share == 1))


def plan_success(
    expected: Sequence[ExpectedCall], made: Sequence[ToolCall], *, arguments: bool = False
) -> float | None:
    """1 if the expected calls are an ordered subsequence of those made, otherwise 0; None if none is expected.

    Args:
        arguments: compare the arguments too, and not the names alone.
    """
    if not expected:
        return None
    left = iter(made)
    return float(all(any(_meets(call, wanted, arguments) for call in left) for wanted in expected))


def step_efficiency(
    expected: Sequence[ExpectedCall],
    made: Sequence[ToolCall],
    *,
    due_steps: float | None = None,
    steps: int | None = None,
) -> float | None:
    """Steps that are due over steps taken, at most 1; 0 for a plan that did not succeed, since doing nothing would be
    the most efficient otherwise. None if no call is expected.

    Args:
        due_steps: of the best solution; by default the expected calls.
        steps: that the model took; by default its calls.
    """
    succeeded = plan_success(expected, made)
    if succeeded is None:
        return None
    due, taken = due_steps or len(expected), steps or len(made)
    return min(1.0, due / taken) if succeeded else 0.0


def timing_precision(due: Sequence[bool], called: Sequence[bool]) -> float:
    """Share of steps at which a tool was called exactly if one was due; a step that only one side has counts as wrong.

    Args:
        due: a value for each step, at least one: a tool is to be called there.
        called: the same of the model.
    """
    return sum(one == other for one, other in zip(due, called, strict=False)) / max(len(due), len(called))


def end_to_end(
    expected: Sequence[ExpectedCall], made: Sequence[ToolCall], answer_right: bool | None = None
) -> float | None:
    """1 if the plan succeeded with each argument right, and the answer is right; otherwise 0.

    Args:
        answer_right: None if the case has no right answer. If it expects no call either, then none may be made.
    """
    if not expected:
        return float(not made) if answer_right is None else float(answer_right)
    return float(plan_success(expected, made, arguments=True) == 1 and answer_right is not False)


def measured(
    expected: Sequence[ExpectedCall],
    made: Sequence[ToolCall],
    *,
    due: Sequence[bool] | None = None,
    called: Sequence[bool] | None = None,
    due_steps: float | None = None,
    answer_right: bool | None = None,
) -> dict[Metric, float | None]:
    """Compute every metric of one answer.

    Args:
        due, called: of a case of several steps; without them, whether a call is expected, and whether one was made.

    Raises:
        ScoringError: there are too many calls to compare.
    """
    due, called = due or [bool(expected)], called or [bool(made)]
    steps = len(called) if len(called) > 1 else None
    return {
        Metric.TOOL_ACCURACY: tool_accuracy(expected, made),
        Metric.ARGUMENT_ACCURACY: argument_accuracy(expected, made),
        Metric.RECALL: recall(expected, made),
        Metric.PLAN_SUCCESS: plan_success(expected, made),
        Metric.STEP_EFFICIENCY: step_efficiency(expected, made, due_steps=due_steps, steps=steps),
        Metric.TIMING_PRECISION: timing_precision(due, called),
        Metric.END_TO_END: end_to_end(expected, made, answer_right),
    }


def argument_share(arguments: Mapping[str, Any], expected: Mapping[str, Sequence[Any]]) -> float:
    """Share of right arguments among those given and those that are missing; 1 if there are none of either.

    Args:
        expected: possible values of each parameter. Some of BFCL's objects have one value in their place, which is the
            only possible one then.
    """
    possible = {name: values if isinstance(values, list) else [values] for name, values in expected.items()}
    right = sum(name in possible and _is_possible(value, possible[name]) for name, value in arguments.items())
    missing = sum(name not in arguments and "" not in values for name, values in possible.items())
    counted = len(arguments) + missing
    return right / counted if counted else 1.0


def _mean_of_matches(
    expected: Sequence[ExpectedCall], made: Sequence[ToolCall], credit: Callable[[float], float]
) -> float | None:
    """Mean over the expected calls of the credit of the call that fits each best; each call fits one of them."""
    if not expected:
        return None
    names = Counter(call.name for call in made)
    if sum(names[call.name] for call in expected) > _MOST_PAIRS:
        raise ScoringError(f"too many tool calls to compare: {len(made)} with {len(expected)}, of the same names")
    pairs = [
        (_share(call, wanted), i, j)
        for i, wanted in enumerate(expected)
        for j, call in enumerate(made)
        if call.name == wanted.name
    ]
    found: dict[int, float] = {}
    taken: set[int] = set()
    for share, i, j in sorted(pairs, key=lambda pair: (-pair[0], pair[1], pair[2])):
        if i not in found and j not in taken:
            found[i] = credit(share)
            taken.add(j)
    return sum(found.values()) / len(expected)


def _meets(call: ToolCall, wanted: ExpectedCall, arguments: bool) -> bool:
    return call.name == wanted.name and (not arguments or _share(call, wanted) == 1)


def _share(call: ToolCall, wanted: ExpectedCall) -> float:
    """Share of the call's right arguments; 0 if they are no object, or nested deeper than can be followed."""
    if call.arguments is None:
        return 0.0
    try:
        return argument_share(call.arguments, wanted.arguments)
    except RecursionError:
        return 0.0


def _is_possible(value: Any, values: Sequence[Any]) -> bool:
    return any(_alike(value, each) for each in values)


def _alike(value: Any, right: Any) -> bool:
    if isinstance(right, dict):  # its keys have possible values again
        return isinstance(value, dict) and argument_share(value, right) == 1
    if isinstance(right, list):
        return isinstance(value, list | tuple) and len(value) == len(right) and all(map(_alike, value, right))
    if isinstance(right, str):
        return isinstance(value, str) and _plain(value) == _plain(right)
    return isinstance(value, bool) == isinstance(right, bool) and bool(value == right)


def _possible_values(value: Any) -> Any:
    """A value as the only possible one."""
    if isinstance(value, Mapping):
        return {name: [_possible_values(each)] for name, each in value.items()}
    return [_possible_values(each) for each in value] if isinstance(value, list) else value


def _plain(text: str) -> str:
    return re.sub(r"[ ,./\-_*^]", "", text).lower().replace("'", '"')
