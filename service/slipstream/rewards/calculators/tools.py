"""Calculators for what an agent does with its tools: `tool_calls`, `timing`, `efficiency`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Annotated, ClassVar

from pydantic import BaseModel, ConfigDict, Field

from slipstream.config.units import PositiveDuration
from slipstream.errors import ScoringError
from slipstream.rewards.calculator import UNIT, Bounds, NoBasis, PlainCalculator, Reward, Share
from slipstream.rewards.calculators.form import tool_faults
from slipstream.rewards.registry import calculator
from slipstream.rewards.tool_use import (
    ToolCall,
    expected_tool_calls,
    made_before,
    offered_tools,
    policy_tool_calls,
    production_calls,
    tool_f1,
)
from slipstream.trajectory import Run, message_tool_calls

Penalty = Annotated[float, Field(le=0, allow_inf_nan=False)]


class Penalties(BaseModel):
    """Deduction from the reward for each fault, every time it is found; 0 turns one off."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    wrong_tool: Penalty = -0.3
    redundant_call: Penalty = -0.2
    format_error: Penalty = -0.1
    timeout: Penalty = -0.5


@calculator("tool_calls")
class ToolCalls(PlainCalculator):
    """F1 of names and arguments against the reference or production, less the penalties; from -1 to 1."""

    bounds: ClassVar[Bounds | None] = (-1.0, 1.0)
    interprets: ClassVar[bool] = True

    key: Annotated[str, Field(min_length=1)] = "tool_calls"
    argument_share: Share = 0.5
    penalties: Penalties = Penalties()
    max_latency: PositiveDuration | None = None

    def bounds_of(self, part: str) -> Bounds | None:
        if part in Penalties.model_fields:
            return -1.0, 0.0  # it may take more, but the reward is never less than -1
        return UNIT if part == "f1" else super().bounds_of(part)

    def calculate(self, run: Run) -> Reward:
        expected = expected_tool_calls(run, self.key)
        calls = policy_tool_calls(run)
        f1 = tool_f1(calls, expected, self.argument_share)
        faults = {
            "wrong_tool": _wrong(calls, expected, run),
            "redundant_call": _redundant(calls, expected, run),
            "format_error": sum(tool_faults(call, offered_tools(run)) for call in run.calls),
            "timeout": self._timeouts(run),
        }
        breakdown: dict[str, float | None] = {"f1": f1}
        for fault, times in faults.items():
            breakdown[fault] = times * getattr(self.penalties, fault) if times else 0.0
        return Reward(max(-1.0, f1 + sum(breakdown[fault] or 0.0 for fault in faults)), breakdown)

    def _timeouts(self, run: Run) -> int:
        """Count the answers that ran out of tokens or took too long."""
        limit = self.max_latency or float("inf")
        return sum(1 for call in run.calls if call.finish_reason == "length" or call.latency > limit)


def _wrong(calls: Sequence[ToolCall], expected: Sequence[ToolCall], run: Run) -> int:
    """Count the calls of a tool that was not offered, or that the task has no use for.

    A tool that the conversation called already has its use: to call it again is `redundant_call`'s business.
    """
    right = {call.name for call in [*expected, *made_before(run)]}
    if offered := offered_tools(run):
        right &= offered.keys()
    return sum(1 for call in calls if call.name not in right)


def _redundant(calls: Sequence[ToolCall], expected: Sequence[ToolCall], run: Run) -> int:
    """Count the calls that repeat one of this task, more often than the reference itself makes it."""
    before = {call.key for call in made_before(run)}
    wanted = Counter(call.key for call in expected)
    counted = Counter(call.key for call in calls if call.arguments is not None)  # `format_error` has the malformed
    return sum(max(0, times - max(wanted[key], key not in before)) for key, times in counted.items())


@calculator("timing")
class Timing(PlainCalculator):
    """1 where a tool was called exactly when one was expected, otherwise 0; for a replay the share of such steps.

    A replay of a task that production never answered has no steps to stand beside: it counts as one.
    """

    bounds: ClassVar[Bounds | None] = UNIT
    interprets: ClassVar[bool] = True

    key: Annotated[str, Field(min_length=1)] = "tool_calls"

    def calculate(self, run: Run) -> float:
        expected = expected_tool_calls(run, self.key)
        if run.production or not run.task.calls:
            return float(bool(run.tool_calls) == bool(expected))
        theirs = [bool(message_tool_calls(call.message)) for call in production_calls(run)]
        ours = [bool(call.tool_calls) for call in run.calls]
        return sum(a == b for a, b in zip(theirs, ours, strict=False)) / max(len(theirs), len(ours))


@calculator("efficiency")
class Efficiency(PlainCalculator):
    """1 for as few steps as the reference or fewer, and reference over steps for more.

    A step is one chat completion. A shadow call stands within production's task: its steps are the calls before it,
    itself, and one more if it calls a tool, since the task cannot end there.
    """

    bounds: ClassVar[Bounds | None] = UNIT

    key: Annotated[str, Field(min_length=1)] = "steps"

    def calculate(self, run: Run) -> float:
        reference = run.metadata.get(self.key)
        if reference is None:
            if not run.task.calls:
                raise NoBasis(f"the task has no metadata.{self.key} and no production calls")
            last = run.task.calls[-1].message
            reference = len(run.task.calls) + bool(message_tool_calls(last))  # a task that was left in the middle
        if not isinstance(reference, int | float) or isinstance(reference, bool) or not 1 <= reference < float("inf"):
            raise ScoringError(f"metadata.{self.key} is expected to be a number of steps from 1")
        steps = run.production.position + 1 + bool(run.tool_calls) if run.production else len(run.calls)
        return min(1.0, reference / steps)
