"""Tool calls as values that can be compared, the ones a run was expected to make, and how alike two lists of them are.

What was expected of a run comes from `metadata["tool_calls"]`, the calls of the whole task in order, or else from
production: the captured answer that a shadow call repeats, or all of the task's answers for an agent replay.
"""

from __future__ import annotations

import json
import unicodedata
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from slipstream.errors import ScoringError
from slipstream.rewards.calculator import NoBasis
from slipstream.trajectory import Call, Message, Run, message_tool_calls

_MOST_PAIRS = 250_000
"""Pairs of calls of the same name that are compared: 500 calls with 500, far more than an agent makes for one task, in
about 50 MB of memory. 2,500 with 2,500 take 800 MB."""


@dataclass(frozen=True)
class ToolCall:
    """One tool call; `arguments` is None where it carries no JSON object."""

    name: str
    arguments: Mapping[str, Any] | None

    @cached_property
    def leaves(self) -> frozenset[tuple[str, str]]:
        """(path, value) of each leaf of the arguments."""
        return frozenset(_leaves(self.arguments))

    @property
    def key(self) -> str:
        """Equal for two calls that would do the same."""
        return json.dumps([self.name, sorted(_leaves(self.arguments))], default=str)


def parsed(raw: Mapping[str, Any]) -> ToolCall:
    """A tool call in OpenAI's form, or as its `function` alone; `arguments` as a text or an object."""
    nested = raw.get("function")
    function = nested if isinstance(nested, Mapping) else raw
    arguments = function.get("arguments")
    if arguments is None or arguments == "":
        arguments = {}  # a tool without parameters: both forms are seen in practice
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except (ValueError, RecursionError):
            arguments = None
    return ToolCall(str(function.get("name") or ""), arguments if isinstance(arguments, Mapping) else None)


def made(messages: Sequence[Message]) -> list[ToolCall]:
    """Every tool call in these messages."""
    return [parsed(raw) for message in messages for raw in message_tool_calls(message)]


def policy_tool_calls(run: Run) -> list[ToolCall]:
    return [parsed(raw) for raw in run.tool_calls]


def made_before(run: Run) -> list[ToolCall]:
    """The tool calls that the conversation already held when the run began, those of the current task alone.

    A task begins with the last user message: asking for today's weather again tomorrow repeats nothing.
    """
    messages = run.calls[0].request.get("messages") or ()
    start = max((index for index, message in enumerate(messages) if message.get("role") == "user"), default=0)
    return made(messages[start:])


def production_calls(run: Run) -> tuple[Call, ...]:
    """The production calls that the run stands beside. Raises NoBasis where none were captured."""
    calls = (run.production,) if run.production else run.task.calls
    if not calls:
        raise NoBasis("the task has no production answer")
    return calls


def offered_tools(run: Run) -> dict[str, Mapping[str, Any]]:
    """The functions that the run's requests offered, by name."""
    tools = [tool.get("function") or {} for call in run.calls for tool in call.request.get("tools") or ()]
    return {str(function.get("name")): function for function in tools}


def expected_tool_calls(run: Run, key: str) -> list[ToolCall]:
    """The tool calls that the run should make.

    A shadow call is expected to make those of the reference that the conversation has not made yet.

    Raises:
        NoBasis: no reference, and no production answer or no tools to call.
        ScoringError: the reference is no list of tool calls.
    """
    reference = run.metadata.get(key)
    if reference is None:
        expected = made([call.message for call in production_calls(run)])
        if not expected and not offered_tools(run) and not any(call.has_tools for call in production_calls(run)):
            raise NoBasis("the task offers no tools")
        return expected
    if not isinstance(reference, list) or not all(isinstance(raw, Mapping) for raw in reference):
        raise ScoringError(f"metadata.{key} is expected to be a list of tool calls")
    calls = [parsed(raw) for raw in reference]
    if any(not call.name or call.arguments is None for call in calls):
        raise ScoringError(f"metadata.{key} holds a tool call without a name, or with arguments that are no object")
    done = {right for _, _, right in matched(made_before(run), calls, 0.5)}
    return [call for index, call in enumerate(calls) if index not in done]


def matched(left: Sequence[ToolCall], right: Sequence[ToolCall], share: float) -> Iterator[tuple[float, int, int]]:
    """Pairs of calls of the same name, each call in one pair at most, the most alike first.

    Args:
        share: how much of a pair's credit its arguments decide, from 0 to 1; the name decides the rest.

    Yields:
        (credit from 0 to 1, index on the left, index on the right)

    Raises:
        ScoringError: there are too many pairs.
    """
    names = Counter(call.name for call in right)
    if sum(names[call.name] for call in left) > _MOST_PAIRS:
        raise ScoringError(f"too many tool calls to compare: {len(left)} with {len(right)}, of the same names")
    pairs = [
        (1 - share + share * _arguments_alike(one, other), i, j)
        for i, one in enumerate(left)
        for j, other in enumerate(right)
        if one.name == other.name
    ]
    lefts: set[int] = set()
    rights: set[int] = set()
    for credit, i, j in sorted(pairs, key=lambda pair: (-pair[0], pair[1], pair[2])):
        if i not in lefts and j not in rights:
            lefts.add(i)
            rights.add(j)
            yield credit, i, j


def tool_f1(left: Sequence[ToolCall], right: Sequence[ToolCall], share: float) -> float:
    """F1 of two lists of calls with part credit for arguments, in [0, 1]; 1 where both are empty."""
    if not left and not right:
        return 1.0
    return 2 * sum(credit for credit, _, _ in matched(left, right, share)) / (len(left) + len(right))


def _arguments_alike(left: ToolCall, right: ToolCall) -> float:
    """F1 of (path, value) pairs; arguments that are no JSON object are like nothing."""
    if left.arguments is None or right.arguments is None:
        return 0.0
    ours, theirs = left.leaves, right.leaves
    return 2 * len(ours & theirs) / (len(ours) + len(theirs)) if ours or theirs else 1.0


def _leaves(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """(path, value) of each leaf; texts by NFKC without outer space, numbers by value, so that 1 equals 1.0."""
    if isinstance(value, Mapping) and value:
        for key, item in value.items():
            yield from _leaves(item, f"{path}/{key}")
    elif isinstance(value, list) and value:
        for index, item in enumerate(value):
            yield from _leaves(item, f"{path}/{index}")
    elif isinstance(value, str):
        yield path, f"text {unicodedata.normalize('NFKC', value).strip()}"
    elif isinstance(value, float) and not value.is_integer():
        yield path, f"number {value:.12g}"
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield path, f"number {int(value):x}"  # exact: ids are numbers too; hex has no limit on digits
    elif path:
        yield path, json.dumps(value)
