"""End to end: how right an answer is, by the configured calculators, by the case's reference, or by a benchmark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, Protocol

from slipstream.errors import ScoringError
from slipstream.evaluation import metrics
from slipstream.evaluation.metrics import Metric
from slipstream.evaluation.reports import bfcl_rules
from slipstream.evaluation.reports.benchmarks import BFCL, GYM, gym_of
from slipstream.evaluation.reports.cases import ReportCase
from slipstream.evaluation.scoring import CaseScorer, calculators_for, digest_of, of_last_answers, run_of
from slipstream.isolation import Isolation, NotFinished, Raised
from slipstream.metrics import Metrics
from slipstream.rewards import RewardsSettings
from slipstream.rewards.tool_use import ToolCall, parsed
from slipstream.store.evaluations import Answer, Outcome
from slipstream.trajectory import PolicyCall

_NOTHING = PolicyCall({}, {}, "")
"""The answer of a model that gave none."""

_GYM_TIMEOUT = 30.0
"""Seconds for an answer's score; the first one of a process makes the tasks too."""


class EndToEnd(Protocol):
    """A way to say how right an answer is.

    Attributes:
        name: for people.
        digest: values are compared only if they were given in the same way.
        range: the lowest and the highest value.
        judges: models that an answer is shown.
    """

    name: str
    digest: str
    range: tuple[float, float]
    judges: int

    async def score(self, case: ReportCase, answered: PolicyCall) -> Answer:
        """Score an answer; an outcome without a value if the case has no basis for one."""

    async def aclose(self) -> None:
        """Close what it holds."""


class ByCalculators:
    """The configured reward."""

    def __init__(self, rewards: RewardsSettings, tally: Metrics, isolation: Isolation) -> None:
        self._scorer = CaseScorer(rewards, tally, isolation)
        self.name = "reward: " + ", ".join(spec.component for spec in rewards.calculators)
        self.digest = digest_of(rewards)
        self.range = rewards.clip
        self.judges = self._scorer.judges

    async def score(self, case: ReportCase, answered: PolicyCall) -> Answer:
        return await self._scorer.score(run_of(0, case.case, case.task, answered))

    async def aclose(self) -> None:
        await self._scorer.aclose()


class ByReference:
    """The case's right answer: its reference by `exact_match`, and each expected call with each argument right."""

    name = "exact match with the reference, and the expected calls with each argument right"
    digest = "reference"
    range = (0.0, 1.0)
    judges = 0

    def __init__(self, tally: Metrics, isolation: Isolation) -> None:
        exact = RewardsSettings.model_validate({"calculators": ["exact_match"]})
        self._scorer = CaseScorer(exact, tally, isolation)

    async def score(self, case: ReportCase, answered: PolicyCall) -> Answer:
        found = await self._scorer.score(run_of(0, case.case, case.task, answered))
        if case.expected is None or found.outcome is Outcome.UNSCORED:
            return found
        right = None if found.value is None else found.value == 1
        value = metrics.end_to_end(case.expected, calls_of(answered), right)
        return found._replace(outcome=Outcome.NO_BASIS if value is None else Outcome.SCORED, value=value)

    async def aclose(self) -> None:
        await self._scorer.aclose()


class ByBfcl:
    """The benchmark's own rules; see `bfcl_rules`."""

    name = "the rules of bfcl-eval's ast_checker"
    digest = "bfcl"
    range = (0.0, 1.0)
    judges = 0

    async def score(self, case: ReportCase, answered: PolicyCall) -> Answer:
        made, about = calls_of(answered), case.case.metadata[BFCL]
        if about["possible"] is None:
            right = bool(made) == case.due
        else:
            try:
                right = bfcl_rules.accepts(about["category"], about["functions"], about["possible"], made)
            except (KeyError, TypeError, AttributeError, OverflowError):  # what the rules have no word for
                right = False
        return Answer(Outcome.SCORED, float(right), {}, answered.latency)

    async def aclose(self) -> None:
        """Nothing to close."""


class ByGym:
    """The task's own scorer, in a process of its own: it interprets what models say."""

    range = (0.0, 1.0)
    judges = 0

    def __init__(self, isolation: Isolation) -> None:
        self._pool = isolation.content
        self.name = "reasoning-gym's scorer of the task"
        self.digest = "reasoning-gym"

    async def score(self, case: ReportCase, answered: PolicyCall) -> Answer:
        about = case.case.metadata[GYM]
        place = (about["name"], about["size"], about["seed"], about["place"])
        try:
            value = await self._pool.ask(gym_score, *place, answered.text, timeout=_GYM_TIMEOUT)
        except (NotFinished, Raised):
            return Answer(Outcome.UNSCORED, 0.0, {}, answered.latency)
        return Answer(Outcome.SCORED, min(1.0, max(0.0, float(value))), {}, answered.latency)

    async def aclose(self) -> None:
        """Nothing to close."""


def gym_score(name: str, size: int, seed: int, place: int, text: str) -> float:
    """Score an answer to a task of reasoning-gym: what stands between the last `<answer>` and `</answer>`, or the whole
    text without them."""
    from reasoning_gym.utils import extract_answer  # type: ignore[import-untyped]

    tasks = _tasks(name, size, seed)
    answer = extract_answer(text)
    return float(tasks.score_answer(text.strip() if answer is None else answer, tasks[place]))


@cache
def _tasks(name: str, size: int, seed: int) -> Any:
    return gym_of(name, size, seed)


def end_to_end_for(
    cases: Sequence[ReportCase], rewards: RewardsSettings, tally: Metrics, isolation: Isolation
) -> EndToEnd:
    """Choose how the answers to these cases are scored: by the benchmark that they are of, by the configured
    calculators that can judge each answer by itself, or by the references if there is none."""
    if all(BFCL in each.case.metadata for each in cases):
        return ByBfcl()
    if all(GYM in each.case.metadata for each in cases):
        return ByGym(isolation)
    chosen = calculators_for(rewards, [each.case for each in cases])
    return ByCalculators(chosen, tally, isolation) if chosen.calculators else ByReference(tally, isolation)


def by_last_answers(rewards: RewardsSettings) -> bool:
    """Return whether the last answer of a stored task is scored end to end, and not its first: by a calculator that
    goes by it, or by the reference because no calculator can judge an answer by itself."""
    return of_last_answers(rewards) or not calculators_for(rewards, ()).calculators


class Measurer:
    """Measures answers: everything that a report says of one.

    Args:
        end_to_end: how the answer as a whole is scored.
        measures: that the report shows; what costs time and is not among them is left out.
    """

    def __init__(self, end_to_end: EndToEnd, measures: Sequence[str], tally: Metrics, isolation: Isolation) -> None:
        self.end_to_end = end_to_end
        form = RewardsSettings.model_validate({"calculators": ["format"]})
        self._format = CaseScorer(form, tally, isolation) if "format" in measures else None

    async def aclose(self) -> None:
        """Close the calculators."""
        await self.end_to_end.aclose()
        if self._format is not None:
            await self._format.aclose()

    async def measure(self, case: ReportCase, answered: PolicyCall) -> tuple[Outcome, dict[str, float | None]]:
        """Return the outcome of an answer, and the value of each metric; None where the case gives no basis for it."""
        whole = await self.end_to_end.score(case, answered)
        run = run_of(0, case.case, case.task, answered)
        form = None if self._format is None else (await self._format.score(run)).value
        usage = answered.usage if isinstance(answered.usage, Mapping) else {}
        values: dict[str, float | None] = {
            **self._of_tools(case, answered),
            Metric.END_TO_END.value: whole.value,
            "format": form,
            "latency": answered.latency,
            "tokens": _count(usage.get("completion_tokens")),
            "prompt_tokens": _count(usage.get("prompt_tokens")),
        }
        return whole.outcome, values

    async def failed(self, case: ReportCase) -> dict[str, float | None]:
        """Return the values of an answer that the model did not give, though it was there: the lowest ones, and None
        where the case gives no basis for one. No judge is asked about an answer that is not there."""
        of_nothing = self._of_tools(case, _NOTHING)
        lowest = {name: None if value is None else 0.0 for name, value in of_nothing.items()}
        scored = self.end_to_end.judges or (await self.end_to_end.score(case, _NOTHING)).outcome is not Outcome.NO_BASIS
        form = {} if self._format is None else {"format": 0.0}
        return {**lowest, Metric.END_TO_END.value: self.end_to_end.range[0] if scored else None, **form}

    def _of_tools(self, case: ReportCase, answered: PolicyCall) -> dict[str, float | None]:
        made = calls_of(answered)
        if case.expected is None:
            timing = None if case.due is None else metrics.timing_precision([case.due], [bool(made)])
            return {Metric.TIMING_PRECISION.value: timing}
        try:
            found = metrics.measured(case.expected, made)
        except ScoringError:  # more calls than anybody makes
            found = dict.fromkeys(Metric, 0.0)
        return {name.value: value for name, value in found.items() if name is not Metric.END_TO_END}


def calls_of(answered: PolicyCall) -> list[ToolCall]:
    """Return the tool calls of an answer; what is none, of a server that goes its own way, is a call of no tool."""
    raw = answered.tool_calls
    found = raw if isinstance(raw, list | tuple) else ()
    return [parsed(each) if isinstance(each, Mapping) else ToolCall("", None) for each in found]


def _count(value: Any) -> float | None:
    return float(value) if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**53 else None
