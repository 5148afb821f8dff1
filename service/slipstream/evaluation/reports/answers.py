"""Models asked the cases of a report, all of them a case side by side, a few cases at a time."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any

from slipstream.evaluation.completions import ModelAway
from slipstream.evaluation.reports.cases import CaseSet, ReportCase
from slipstream.evaluation.reports.models import AskedModel, ModelFailed
from slipstream.evaluation.reports.scorers import Measurer
from slipstream.store.evaluations import Outcome

_AWAY_AFTER = 5
"""Answers in a row that a model did not give, after all tries, from which on it is not asked again."""


@dataclass(slots=True)
class Answers:
    """The answers of one model, by their values alone: what it said is not kept.

    Attributes:
        values: of each case, by its position: those of each answer that has some.
        outcomes: answers by their kind.
        reason: why the first answer is missing that is.
        missed: answers in a row that it did not give.
    """

    values: dict[int, list[Mapping[str, float | None]]] = field(default_factory=dict)
    outcomes: Counter[Outcome] = field(default_factory=Counter)
    reason: str | None = None
    missed: int = 0

    @property
    def is_away(self) -> bool:
        """Return whether half of its answers or more are missing, so that nothing is said about it."""
        return 2 * self.outcomes[Outcome.AWAY] >= max(1, self.outcomes.total())


async def ask_all(
    models: Sequence[AskedModel],
    cases: CaseSet,
    measurer: Measurer,
    *,
    repeat: int,
    parameters: Mapping[str, Any],
    concurrency: int,
) -> list[Answers]:
    """Ask each model each case, and measure the answers.

    Args:
        repeat: how often each case is asked.
        parameters: fields of each request.
        concurrency: cases that are asked at the same time.

    Raises:
        ReportError: a version was not served any more.
    """
    found = [Answers() for _ in models]
    places = iter(product(range(repeat), range(len(cases.cases))))

    async def work() -> None:
        for time, position in places:
            case = cases.cases[position]
            request = {**case.case.request, **parameters}
            async with asyncio.TaskGroup() as asked:
                for model, answers in zip(models, found, strict=True):
                    if time < model.times:
                        asked.create_task(_ask(model, case, position, request, measurer, answers))

    try:
        async with asyncio.TaskGroup() as workers:
            for _ in range(concurrency):
                workers.create_task(work())
    except ExceptionGroup as errors:
        raise _first(errors) from errors
    return found


async def _ask(
    model: AskedModel,
    case: ReportCase,
    position: int,
    request: Mapping[str, Any],
    measurer: Measurer,
    answers: Answers,
) -> None:
    if answers.missed >= _AWAY_AFTER:
        answers.outcomes[Outcome.AWAY] += 1
        return
    try:
        answer = await model.ask(case, request)
    except ModelAway as error:
        answers.missed += 1
        answers.outcomes[Outcome.AWAY] += 1
        answers.reason = answers.reason or str(error)
        return
    except ModelFailed as error:
        outcome, values = Outcome.FAILED, await measurer.failed(case)
        answers.reason = answers.reason or str(error)
    else:
        outcome, values = await measurer.measure(case, answer)
    answers.missed = 0
    answers.outcomes[outcome] += 1
    answers.values.setdefault(position, []).append(values)


def _first(errors: BaseExceptionGroup[Exception]) -> Exception:
    """The first error of a group, which is what its reader can put right."""
    first = errors.exceptions[0]
    return _first(first) if isinstance(first, BaseExceptionGroup) else first
