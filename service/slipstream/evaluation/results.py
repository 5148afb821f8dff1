"""The result of an evaluation, from its cases and the value of each answer."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any

from slipstream.evaluation.statistics import judged, paired, summed
from slipstream.store.evaluations import Answer, Arm, Case, Evaluation, Key


def result_of(evaluation: Evaluation, cases: Sequence[Case], answers: Mapping[Key, Answer]) -> dict[str, Any]:
    """Sums of each arm, and the version compared with production where production was asked."""
    settings = evaluation.settings
    sessions = {case.key: case.session for case in cases}
    treated, control = (values_of(cases, answers, arm) for arm in (Arm.VERSION, Arm.PRODUCTION))
    against = None
    if settings["production"] is not None:
        differences, both = paired(treated, control, sessions, width_of(settings))
        against = judged(differences, both, margin=settings["margin"], level=settings["level"])
    return {
        "cases": len(cases),
        "sessions": len(set(sessions.values())),
        "version": _of_arm(cases, answers, Arm.VERSION, settings["threshold"]),
        "production": None
        if settings["production"] is None
        else _of_arm(cases, answers, Arm.PRODUCTION, settings["threshold"]),
        "against_production": against,
    }


def values_of(cases: Iterable[Case], answers: Mapping[Key, Answer], arm: Arm) -> dict[str, float]:
    """The value of each case by its key: the mean over its answers; a case without any value is left out."""
    keys = {case.position: case.key for case in cases}
    found: dict[str, list[float]] = {}
    for key, answer in answers.items():
        if key.arm is arm and answer.value is not None:
            found.setdefault(keys[key.position], []).append(answer.value)
    return {key: math.fsum(some) / len(some) for key, some in found.items()}


def width_of(settings: Mapping[str, Any]) -> float:
    """The width of the range of rewards of an evaluation."""
    low, high = settings["clip"]
    return float(high - low)


def _of_arm(cases: Sequence[Case], answers: Mapping[Key, Answer], arm: Arm, threshold: float) -> dict[str, Any]:
    sessions: dict[str, Hashable] = {case.key: case.session for case in cases}
    mine = {key: answer for key, answer in answers.items() if key.arm is arm}
    values = values_of(cases, mine, arm)
    scored = [answer.value for answer in mine.values() if answer.value is not None]
    latencies = [answer.latency for answer in mine.values() if answer.latency is not None]
    return {
        "reward": summed([(sessions[key], value) for key, value in values.items()]),
        "components": _components(cases, mine, sessions),
        "success_rate": round(sum(value >= threshold for value in scored) / len(scored), 6) if scored else None,
        "latency": round(math.fsum(latencies) / len(latencies), 3) if latencies else None,
        "answers": dict(sorted(Counter(answer.outcome.value for answer in mine.values()).items())),
    }


def _components(
    cases: Sequence[Case], answers: Mapping[Key, Answer], sessions: Mapping[str, Hashable]
) -> dict[str, Any]:
    keys = {case.position: case.key for case in cases}
    found: dict[str, dict[str, list[float]]] = {}
    for key, answer in answers.items():
        for name, value in answer.breakdown.items():
            if value is not None:
                found.setdefault(name, {}).setdefault(keys[key.position], []).append(value)
    return {
        name: summed([(sessions[key], math.fsum(some) / len(some)) for key, some in by_case.items()])
        for name, by_case in sorted(found.items())
    }
