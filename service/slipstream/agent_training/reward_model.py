"""The reward of an agent's answer, with what it is made of and what is to be said about it.

The components are those of the sidecar's `agent` calculator. A component that the ground truth gives no basis for is
left out of the mean, and form alone is no basis, since it says nothing about what is right.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypedDict

from slipstream.agent_training.configs import AgentRewardConfig
from slipstream.datasets.dialogs import DialogError, called, messages_of_text, without_thoughts
from slipstream.errors import ScoringError
from slipstream.evaluation.metrics import (
    ExpectedCall,
    exactly,
    measured,
    plan_success,
    step_efficiency,
    timing_precision,
)
from slipstream.rewards.calculator import NoBasis, Reward, weighted_mean
from slipstream.rewards.calculators.form import Format
from slipstream.rewards.calculators.reference import Contains
from slipstream.rewards.calculators.tools import ToolCalls
from slipstream.rewards.schemas import conforms
from slipstream.rewards.tool_use import ToolCall, made, parsed, policy_tool_calls
from slipstream.trajectory import Message, PolicyCall, Run, Task, message_text

_NAMES_ALONE = 0.0
"""Share of a call's credit for its arguments, if the ground truth has the tools' names alone."""


class ComputedReward(TypedDict):
    """A reward.

    Attributes:
        total: within the configuration's `clip`.
        breakdown: the value of each component; None for one without a basis, which counts for nothing.
        feedback: in words, what took from the total; empty if nothing did.
    """

    total: float
    breakdown: dict[str, float | None]
    feedback: str


class ToolVerifier:
    """Verifies tool calls by the tools that are offered.

    Args:
        tools: in OpenAI's form.
    """

    def __init__(self, tools: Sequence[Mapping[str, Any]] = ()) -> None:
        self.tools = tools
        self._functions = {str(tool["function"]["name"]): tool["function"] for tool in tools}

    def verify(self, call: Mapping[str, Any]) -> list[str]:
        """Return what is wrong with a call, in words; nothing if it can be carried out.

        A schema is followed in this process. One with a pattern that never ends is the tools' author's own.
        """
        read = parsed(call)
        if self._functions and read.name not in self._functions:
            return [f"{read.name or 'a call without a name'} is none of the tools"]
        if read.arguments is None:
            return [f"the arguments of {read.name} are no JSON object"]
        schema = self._functions.get(read.name, {}).get("parameters")
        if isinstance(schema, dict) and not conforms(read.arguments, schema):
            return [f"the arguments of {read.name} break its schema"]
        return []


class PlanEvaluator:
    """Evaluates the calls of an agent against those of the right plan."""

    def evaluate(
        self, expected: Sequence[Mapping[str, Any] | str], made: Sequence[Mapping[str, Any]]
    ) -> dict[str, Any]:
        """Return each metric of `slipstream.evaluation.metrics` by its name.

        Args:
            expected: tool calls, or tools' names.
            made: tool calls, in their order.

        Raises:
            ValueError: an expected call cannot be read.
        """
        found = measured(_expected(expected), [parsed(call) for call in made])
        return {metric.value: value for metric, value in found.items()}


@dataclass(frozen=True)
class _Truth:
    """The ground truth. `calls`: None if nothing is known of the right calls."""

    calls: Sequence[ExpectedCall] | None
    with_arguments: bool
    raw: Sequence[Mapping[str, Any]]
    reference: Any
    steps: float | None

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> _Truth:
        with_arguments = given.get("tool_calls") is not None
        wanted = given.get("tool_calls") if with_arguments else given.get("target_tools")
        raw = [{"name": each} if isinstance(each, str) else each for each in wanted or ()]
        try:
            calls = None if wanted is None else _expected(raw)
        except ValueError as error:
            name = "tool_calls" if with_arguments else "target_tools"
            raise ScoringError(f"ground_truth.{name}: {error}") from error
        return cls(calls, with_arguments, raw, given.get("reference", given.get("answer")), given.get("optimal_steps"))


class AgentRewardModel:
    """Computes rewards of answers.

    Args:
        tools: that the agent may call, in OpenAI's form; without them calls of unknown tools are not told apart.
    """

    def __init__(self, config: AgentRewardConfig | None = None, tools: Sequence[Mapping[str, Any]] = ()) -> None:
        self.config = config or AgentRewardConfig()
        self.tool_verifier = ToolVerifier(tools)
        self.plan_evaluator = PlanEvaluator()

    def compute_reward(
        self,
        query: str,
        response: str | Message,
        ground_truth: Mapping[str, Any],
        execution_trace: Sequence[Mapping[str, Any]] = (),
    ) -> ComputedReward:
        """Compute the reward of an answer.

        Args:
            query: the user's request.
            response: a text, with tags if it has thoughts and calls, or an assistant message.
            ground_truth: `tool_calls`, or `target_tools` if the names alone are known, in their order; an empty list:
                none is due. `reference` or `answer`: a text that the answer is to contain. `optimal_steps`.
            execution_trace: the steps that were carried out: `tool`, `args`, `result`, and `error` or `timeout` if it
                had one. If the response has no calls, these are the calls.

        Raises:
            NoBasis: the ground truth says nothing about what is right.
            ScoringError: it cannot be read.
        """
        truth = _Truth.of(ground_truth)
        run, well_formed = self._run(query, response, truth, execution_trace)
        calls = policy_tool_calls(run)
        parts = {
            "task_completion": _completion(run, truth, calls, execution_trace),
            "tool_accuracy": self._tool_accuracy(run, truth, execution_trace),
            "efficiency": _efficiency(truth, calls, execution_trace),
            "timing_quality": None if truth.calls is None else timing_precision([bool(truth.calls)], [bool(calls)]),
            "format_compliance": Format().calculate(run) if well_formed else 0.0,
        }
        if all(value is None for name, value in parts.items() if name != "format_compliance"):
            raise NoBasis("ground_truth: expected tool_calls, target_tools, reference, answer or optimal_steps")
        weighed = [
            (name, weight, part if isinstance(part, Reward) or part is None else Reward(part))
            for name, weight in self.config.weights.items()
            for part in (parts[name],)
        ]
        mean = weighted_mean(weighed)
        low, high = self.config.clip
        feedback = self._feedback(mean.breakdown, truth, calls, run)
        return {"total": min(max(mean.value, low), high), "breakdown": dict(mean.breakdown), "feedback": feedback}

    def _run(
        self, query: str, response: str | Message, truth: _Truth, trace: Sequence[Mapping[str, Any]]
    ) -> tuple[Run, bool]:
        """The answer as a run, without its thoughts, and whether it could be read."""
        well_formed = True
        try:
            read = messages_of_text(response, "response") if isinstance(response, str) else [dict(response)]
        except DialogError:
            well_formed, read = False, [{"role": "assistant", "content": response}]
        said = [message for message in read if message["role"] == "assistant"] or [{"role": "assistant", "content": ""}]
        if trace and not made(said):
            steps = [
                called(str(step.get("tool") or ""), step.get("args") or {}, place) for place, step in enumerate(trace)
            ]
            said = [{"role": "assistant", "content": "", "tool_calls": steps}, *said]
        request = {"messages": [{"role": "user", "content": query}], "tools": list(self.tool_verifier.tools)}
        answers = [{**message, "content": without_thoughts(message_text(message))} for message in said]
        metadata = {"reference": truth.reference, "tool_calls": list(truth.raw)}
        return Run(
            task=Task("reward", "reward", (), metadata=metadata),
            group_id="reward",
            run_id=0,
            calls=tuple(PolicyCall(request, {"choices": [{"message": message}]}, "") for message in answers),
            kind="agent_replay",
        ), well_formed

    def _tool_accuracy(self, run: Run, truth: _Truth, trace: Sequence[Mapping[str, Any]]) -> Reward | None:
        if truth.calls is None:
            return None
        share = 0.5 if truth.with_arguments else _NAMES_ALONE
        found = ToolCalls(argument_share=share, penalties=self.config.penalties).calculate(run)
        timeouts = sum(bool(step.get("timeout")) for step in trace)
        deduction = self.config.penalties.timeout * timeouts if timeouts else 0.0
        return Reward(max(-1.0, found.value + deduction), {**found.breakdown, "timeout": deduction})

    def _feedback(
        self, breakdown: Mapping[str, float | None], truth: _Truth, calls: Sequence[ToolCall], run: Run
    ) -> str:
        said = []
        if (breakdown.get("task_completion") or 0.0) < 1 and breakdown.get("task_completion") is not None:
            said.append("The task was not completed.")
        if (accuracy := breakdown.get("tool_accuracy")) is not None and accuracy < 1:
            expected = ", ".join(call.name for call in truth.calls or ()) or "no tool"
            said.append(f"Expected were calls of {expected}; made were {', '.join(c.name for c in calls) or 'none'}.")
        for fault, words in _FAULTS.items():
            if breakdown.get(f"tool_accuracy.{fault}"):
                said.append(words)
        if (efficiency := breakdown.get("efficiency")) is not None and 0 < efficiency < 1:
            said.append("It took more steps than are needed.")
        if breakdown.get("timing_quality") == 0:
            said.append("A tool was due and not called." if truth.calls else "A tool was called, and none was due.")
        if (form := breakdown.get("format_compliance")) is not None and form < 1:
            said.append("The form of the answer is broken.")
        problems = [each for call in run.tool_calls for each in self.tool_verifier.verify(call)]
        return " ".join([*said, *(f"{problem[0].upper()}{problem[1:]}." for problem in problems)])


_FAULTS = {
    "wrong_tool": "A tool was called that is not needed.",
    "redundant_call": "A call was repeated.",
    "timeout": "A step took too long.",
}


def _completion(run: Run, truth: _Truth, calls: Sequence[ToolCall], trace: Sequence[Mapping[str, Any]]) -> float | None:
    """By the reference answer; without one by the plan, unless its last step failed."""
    if truth.reference not in (None, "", []):
        return Contains().calculate(run)
    if not truth.calls:
        return None
    failed = bool(trace) and bool(trace[-1].get("error"))
    return 0.0 if failed else plan_success(truth.calls, calls, arguments=truth.with_arguments)


def _efficiency(truth: _Truth, calls: Sequence[ToolCall], trace: Sequence[Mapping[str, Any]]) -> float | None:
    """The articles take five steps for optimal if nothing is known; here there is no basis then."""
    steps = len(trace) or len(calls)
    if truth.calls:
        return step_efficiency(truth.calls, calls, due_steps=truth.steps, steps=steps)
    return None if truth.steps is None or not steps else min(1.0, truth.steps / steps)


def _expected(calls: Sequence[Mapping[str, Any] | str]) -> list[ExpectedCall]:
    return [exactly(parsed({"name": call} if isinstance(call, str) else call)) for call in calls]
