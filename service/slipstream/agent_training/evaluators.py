"""Evaluation of an agent in a program of one's own. `slipstream evaluate` is the one for versions and production: it
asks servers, compares, and says what is proven."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from slipstream.datasets.dialogs import DialogError, messages_of_text, without_thoughts
from slipstream.evaluation.metrics import ExpectedCall, Metric, expected_call, measured, metric_named
from slipstream.evaluation.statistics import summed
from slipstream.rewards.tool_use import ToolCall, made
from slipstream.trajectory import Message, message_text

METRICS = (
    "tool_selection_accuracy", "plan_success_rate", "step_efficiency", "timing_precision", "end_to_end_success",
)  # fmt: skip
"""Metrics of the articles."""


@dataclass(frozen=True)
class BenchmarkSample:
    """A case of a benchmark.

    Attributes:
        instruction: what the model is asked.
        target_tools: tools' names in the right order, or tool calls, in OpenAI's form or BFCL's.
        reference: a text that the answer is to contain.
        optimal_steps: of the best solution; None for the number of calls.
        session: cases of one session count as one unit in the standard error.
        preference_pair: an answer that is better, and one that is worse.
    """

    instruction: str
    target_tools: Sequence[Mapping[str, Any] | str] = ()
    reference: str | None = None
    optimal_steps: int | None = None
    session: str | None = None
    preference_pair: Mapping[str, Any] | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)


class Benchmark(Protocol):
    """A source of cases."""

    def iter_samples(self, split: str) -> Iterable[BenchmarkSample]:
        """Yield the cases of a split."""


class Model(Protocol):
    """A model that answers with a text, with tags if it calls tools, or with an assistant message."""

    def generate(self, instruction: str) -> str | Message:
        """Answer an instruction."""


class AgentTrainingEvaluator:
    """Evaluates a model on a benchmark."""

    def __init__(self, benchmark: Benchmark) -> None:
        self._benchmark = benchmark

    def evaluate(
        self, model: Model, split: str = "test", metrics: Sequence[str] | None = None
    ) -> dict[str, dict[str, Any]]:
        """Ask the model each case once.

        Args:
            metrics: by their names or the articles' names; None for those of the articles.

        Returns:
            For each metric, by the name that was asked for: `mean`, `std`, `count` and `standard_error`, which counts
            sessions; `count` is the cases that give a basis for it.

        Raises:
            ValueError: a metric is unknown, or a case's tools cannot be read.
        """
        wanted = {name: metric_named(name) for name in metrics or METRICS}
        found: dict[Metric, list[tuple[str, float]]] = {metric: [] for metric in wanted.values()}
        for place, sample in enumerate(self._benchmark.iter_samples(split)):
            values = _measured(model.generate(sample.instruction), sample)
            for metric, some in found.items():
                if (value := values[metric]) is not None:
                    some.append((sample.session or f"\0{place}", value))
        return {name: _told(found[metric]) for name, metric in wanted.items()}


class ToolUseEvaluator:
    """Evaluates which tools an agent calls."""

    def evaluate(
        self,
        agent: Callable[[Any], str | Message | Sequence[Mapping[str, Any]]],
        test_cases: Iterable[Mapping[str, Any]],
    ) -> dict[str, float | None]:
        """Have the agent do each case.

        Args:
            agent: called with a case's `input`; returns a text with tags, a message, or tool calls.
            test_cases: each with `input`, and the right `tool_calls`.

        Returns:
            `tool_accuracy`, `arg_accuracy` and `recall`, the mean over the cases as shares of 1; None without any.
        """
        found: dict[str, list[float]] = {"tool_accuracy": [], "arg_accuracy": [], "recall": []}
        for case in test_cases:
            answer = agent(case["input"])
            wanted = [_expected(each) for each in case["tool_calls"]]
            values = measured(wanted, _answer(answer)[0])
            for name, some in found.items():
                if (value := values[metric_named(name)]) is not None:
                    some.append(value)
        return {name: sum(some) / len(some) if some else None for name, some in found.items()}


def _measured(answer: str | Message, sample: BenchmarkSample) -> dict[Metric, float | None]:
    calls, text = _answer(answer)
    right = None if sample.reference is None else _plain(sample.reference) in _plain(text)
    wanted = [_expected(each) for each in sample.target_tools]
    names_alone = all(isinstance(each, str) for each in sample.target_tools)
    made = [ToolCall(call.name, {}) for call in calls] if names_alone else calls
    return measured(wanted, made, due_steps=sample.optimal_steps, answer_right=right)


def _answer(answer: str | Message | Sequence[Mapping[str, Any]]) -> tuple[list[ToolCall], str]:
    """The calls of an answer, and what it says beside its thoughts. One that cannot be read has no calls."""
    if isinstance(answer, str):
        try:
            messages: Sequence[Message] = messages_of_text(answer, "answer")
        except DialogError:
            return [], answer
    elif isinstance(answer, Mapping):
        messages = [answer]
    else:
        messages = [{"role": "assistant", "tool_calls": answer}]
    said = [message_text(message) for message in messages if message["role"] == "assistant"]
    return made(messages), without_thoughts(said[-1] if said else "")


def _expected(call: Mapping[str, Any] | str) -> ExpectedCall:
    return expected_call({"name": call} if isinstance(call, str) else call)


def _plain(text: str) -> str:
    return " ".join(text.casefold().split())


def _told(values: Sequence[tuple[str, float]]) -> dict[str, Any]:
    found = summed(values)
    return {name: found[name] for name in ("mean", "std", "count", "standard_error")}
