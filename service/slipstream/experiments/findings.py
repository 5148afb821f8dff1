"""The report on an experiment as JSON: what is written beside a decision, and what people are shown."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from slipstream.evidence import Evidence, differences_missing, interval_of, sessions_per_difference
from slipstream.experiments.comparison import Arm, Comparison, Metric
from slipstream.experiments.measuring import scale_of
from slipstream.experiments.plan import ExperimentPlan
from slipstream.rollouts.values import Range
from slipstream.serving.page import PRODUCTION, variant_of
from slipstream.store.experiments import Experiment

_DIGITS = 6

_GRID = 200
"""Intervals are wider by one part of this at most. With a finer grid a report takes seconds."""

_CLAIMS = {"b": "b_better", "a": "a_better", "equal": "equal"}


def report(experiment: Experiment, plan: ExperimentPlan, comparison: Comparison, within: Range) -> dict[str, Any]:
    """Counts, means, differences and evidence.

    Means, deviations and differences are in the units of each metric; intervals are right, each by itself, with 1 less
    `level`, at all times at once. `log_e` is a natural logarithm; a claim is proven where it reaches `needed`.
    `missing` estimates the units, of both arms together, until then; null if no number is foreseen.

    Args:
        within: the range of rewards.
    """
    control, treated = comparison.units
    return {
        "arms": {
            "a": {"variant": PRODUCTION, "units": control},
            "b": {"variant": variant_of(experiment.version), "units": treated},
        },
        "metrics": {
            name: _metric(plan, metric, scale_of(plan, name, within)) for name, metric in comparison.metrics.items()
        },
    }


def _metric(plan: ExperimentPlan, metric: Metric, scale: tuple[float, float, str]) -> dict[str, Any]:
    low, width, unit = scale
    ends = interval_of(metric.differences, plan.level, _GRID)
    mean = metric.difference
    return {
        "primary": metric.measure.name == plan.decided_by,
        "unit": unit,
        "better": "more" if metric.measure.sign > 0 else "less",
        "a": _arm(metric.arms[0], plan.level, low, width),
        "b": _arm(metric.arms[1], plan.level, low, width),
        "difference": None if mean is None else round(mean * width, _DIGITS),
        "interval": [round(end * width, _DIGITS) for end in ends],
        "comparable": metric.comparable,
        "claims": {
            _CLAIMS[result]: _claim(evidence, plan.level / 2, plan.share, comparable=metric.comparable)
            for result, evidence in metric.claims.items()
        },
    }


def _arm(arm: Arm, level: float, low: float, width: float) -> dict[str, Any]:
    mean, deviation = arm.mean, arm.deviation
    ends = interval_of(_stretched(arm.counts), level, _GRID)  # of 2 v - 1: in [-1, 1], as differences are
    return {
        "count": arm.units,
        "without": arm.without,
        "mean": None if mean is None else round(low + mean * width, _DIGITS),
        "std": None if deviation is None else round(deviation * width, _DIGITS),
        "interval": [round(low + (end + 1) / 2 * width, _DIGITS) for end in ends],
    }


def _stretched(counts: Mapping[float, int]) -> dict[float, int]:
    return {2 * value - 1: count for value, count in counts.items()}


def _claim(found: Evidence, level: float, share: float, *, comparable: bool) -> dict[str, Any]:
    missing = differences_missing(found, level)
    return {
        "log_e": round(found.log_e, _DIGITS),
        "needed": round(-math.log(level), _DIGITS),
        "proven": comparable and found.proven(level),
        "missing": None if missing is None else math.ceil(missing * sessions_per_difference(share)),
    }
