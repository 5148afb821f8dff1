"""A report made: from models that are asked, or from two reports that were made before."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import fmean
from typing import Any

from prometheus_client import CollectorRegistry

from slipstream import __version__
from slipstream.evaluation.reports import conditions
from slipstream.evaluation.reports.answers import Answers, ask_all
from slipstream.evaluation.reports.cases import CaseSet
from slipstream.evaluation.reports.conditions import Wanted
from slipstream.evaluation.reports.document import CasePart, ModelPart, Report, SettingsPart
from slipstream.evaluation.reports.models import AskedModel, Models
from slipstream.evaluation.reports.names import ModelName, ReportError
from slipstream.evaluation.reports.scorers import Measurer, end_to_end_for
from slipstream.evaluation.reports.summary import mean_of, pairs_of, ranges_of
from slipstream.isolation import Isolation
from slipstream.memory.parsing import ParseMemory
from slipstream.metrics import Metrics
from slipstream.redaction.kinds import without_secrets
from slipstream.settings.sidecar import Settings
from slipstream.terminal.inert import inert

_LONGEST_REASON = 1000
"""Characters of what a server said of an answer that it did not give; it may quote keys, which are taken out."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Plan of a report: who is asked what.

    Attributes:
        models: that are asked, in the order in which they are shown.
        against: the model that others are compared with by conditions; one of the models.
        measures: that are shown.
        repeat: how often each case is asked.
        parameters: fields of each request.
        concurrency: cases that are asked at the same time.
        most_requests: calls of models, judges' included; a report that needs more is not begun.
        secret: sent to models that are named by a URL; empty for none.
        wanted: conditions.
    """

    models: Sequence[ModelName]
    against: str | None
    measures: Sequence[str]
    repeat: int
    parameters: Mapping[str, Any]
    concurrency: int
    most_requests: int
    secret: str
    wanted: Wanted


async def make(plan: Plan, cases: CaseSet, settings: Settings) -> Report:
    """Ask the models and make the report.

    Raises:
        ReportError: a version is not served, or not any more; production's model is not named; or more would be asked
            than is allowed.
    """
    metrics = Metrics(CollectorRegistry())
    isolation = Isolation(
        content_memory=settings.isolation.content_memory,
        content_timeout=settings.isolation.content_timeout,
        user_memory=settings.isolation.user_memory,
        start_timeout=settings.isolation.start_timeout,
    )
    parsing = ParseMemory(settings.limits.parse_memory, metrics)
    models = Models(settings, parsing, plan.secret, plan.concurrency)
    try:
        end_to_end = end_to_end_for(cases.cases, settings.rewards, metrics, isolation)
        measurer = Measurer(end_to_end, plan.measures, metrics, isolation)
        try:
            stored = all(each.stored is not None for each in cases.cases)
            asked = [await models.open(name, stored=stored) for name in plan.models]
            _affordable(plan, cases, asked, end_to_end.judges)
            answers = await ask_all(
                asked,
                cases,
                measurer,
                repeat=plan.repeat,
                parameters=plan.parameters,
                concurrency=plan.concurrency,
            )
        finally:
            await measurer.aclose()
    finally:
        await models.aclose()
        await asyncio.to_thread(isolation.close)
    section = SettingsPart(
        source=inert(cases.source, _LONGEST_REASON),
        cases_digest=cases.digest,
        repeat=plan.repeat,
        parameters=dict(plan.parameters),
        end_to_end=end_to_end.name,
        digest=end_to_end.digest,
        range=end_to_end.range,
        level=settings.evaluation.level,
        margin=settings.evaluation.margin,
        against=plan.against,
    )
    parts = [_model(model, some) for model, some in zip(asked, answers, strict=True)]
    return await asyncio.to_thread(_report, section, parts, _cases(cases, parts, answers), plan.measures, plan.wanted)


def _affordable(plan: Plan, cases: CaseSet, asked: Sequence[AskedModel], judges: int) -> None:
    times = sum(min(model.times, plan.repeat) for model in asked)
    calls = int(len(cases.cases) * times * (1 + judges))
    if calls > plan.most_requests:
        raise ReportError(
            f"--max-requests: expected {plan.most_requests} calls at most, and {len(cases.cases)} cases for "
            f"{len(asked)} models{'' if plan.repeat == 1 else f', {plan.repeat} times each,'} need {calls}"
            f"{', judges included' if judges else ''}; take a part of the cases by --limit, or allow more"
        )


def _model(model: AskedModel, answers: Answers) -> ModelPart:
    name = model.name
    reason = None if answers.reason is None else inert(without_secrets(answers.reason), _LONGEST_REASON)
    away = (reason or "it gave no answer") if answers.is_away else None
    return ModelPart(
        name=name.text,
        kind=name.kind,
        model=name.model,
        version=name.version,
        away=away,
        reason=reason,
        answers={outcome.value: count for outcome, count in sorted(answers.outcomes.items())},
        measures={},
    )


def _cases(cases: CaseSet, models: Sequence[ModelPart], answers: Sequence[Answers]) -> list[CasePart]:
    found = []
    for position, each in enumerate(cases.cases):
        values = {
            model.name: _means(some.values[position])
            for model, some in zip(models, answers, strict=True)
            if model.away is None and position in some.values
        }
        session = hashlib.sha256(each.case.session.encode("utf-8", "surrogatepass")).hexdigest()[:32]
        found.append(CasePart(case=each.case.name, key=each.case.key, session=session, values=values))
    return found


def _means(values: Sequence[Mapping[str, float | None]]) -> dict[str, float | None]:
    """The mean of each measure over the answers to a case."""
    found: dict[str, float | None] = {}
    for name in dict.fromkeys(name for each in values for name in each):
        some = [value for each in values if (value := each.get(name)) is not None]
        found[name] = round(fmean(some), 9) if some else None
    return found


def _report(
    settings: SettingsPart,
    models: Sequence[ModelPart],
    cases: list[CasePart],
    measures: Sequence[str],
    wanted: Wanted,
) -> Report:
    """The report from the values of each case: everything else follows from these."""
    names = [model.name for model in models if model.away is None]
    there = {
        measure
        for case in cases
        for values in case.values.values()
        for measure, value in values.items()
        if value is not None
    }
    shown = [name for name in measures if name in there]
    ranges = ranges_of(shown, settings.range)
    parts = [
        model.model_copy(
            update={
                "measures": {}
                if model.away is not None
                else {name: mean_of(cases, model.name, name, settings.level) for name in shown}
            }
        )
        for model in models
    ]
    pairs = pairs_of(cases, names, shown, ranges, margin=settings.margin, level=settings.level)
    return Report(
        slipstream=__version__,
        made_at=datetime.now(UTC).isoformat(timespec="seconds"),
        settings=settings,
        models=parts,
        pairs=pairs,
        conditions=conditions.judged(wanted, parts, pairs, settings.against),
        cases=cases,
    )


def compare(before: Report, after: Report, names: tuple[str, str], measures: Sequence[str], wanted: Wanted) -> Report:
    """Put two reports together: all models of both, on the cases that both have.

    Args:
        names: of the two reports; each model gets that of its own.

    Raises:
        ReportError: they have no case in common.
    """
    reports = (before, after)
    theirs = {case.key: case for case in after.cases}
    cases = []
    for case in before.cases:
        if (twin := theirs.get(case.key)) is not None:
            values = {
                _renamed(model, name): found
                for each, name in zip((case, twin), names, strict=True)
                for model, found in each.values.items()
            }
            cases.append(case.model_copy(update={"values": values}))
    if not cases:
        raise ReportError(f"--compare: expected reports on the same cases, found none that {' and '.join(names)} share")
    models = [
        model.model_copy(update={"name": _renamed(model.name, name)})
        for report, name in zip(reports, names, strict=True)
        for model in report.models
    ]
    one, other = before.settings, after.settings
    update: dict[str, Any] = {"against": models[0].name, "source": f"{one.source}, of both reports"}
    if (one.repeat, one.parameters, one.asked) != (other.repeat, other.parameters, other.asked):
        asked = "; ".join(f"{name} {_asked(each)}" for name, each in zip(names, (one, other), strict=True))
        update |= {"repeat": None, "parameters": None, "asked": asked}
    if one.digest != other.digest or one.range != other.range:
        measures = [name for name in measures if name != "end_to_end"]
        update["end_to_end"] = f"{one.end_to_end} in the one and {other.end_to_end} in the other, and not compared"
    return _report(one.model_copy(update=update), models, cases, measures, wanted)


def _asked(settings: SettingsPart) -> str:
    """Say how the cases of a report were asked."""
    times = "once" if settings.repeat == 1 else f"{settings.repeat} times"
    told = settings.asked or f"{times} with the parameters {json.dumps(settings.parameters)}"
    return inert(told, _LONGEST_REASON)


def _renamed(model: str, report: str) -> str:
    return f"{model}, {report}"


def names_of(folders: tuple[Path, Path]) -> tuple[str, str]:
    """Name two reports by their folders: by the last part of their paths, or the whole where that is the same."""
    one, other = (folder.resolve() for folder in folders)
    return (one.name, other.name) if one.name != other.name else (str(folders[0]), str(folders[1]))
