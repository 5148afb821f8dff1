"""The evidence about a rollout as JSON: what is written beside a decision, and what people are shown."""

from __future__ import annotations

import math
from typing import Any

from slipstream.evidence import Evidence, differences_missing, interval, sessions_per_difference
from slipstream.rollouts.comparison import Comparison, Track
from slipstream.rollouts.plan import Plan
from slipstream.store.rollouts import Rollout

_DIGITS = 6


def evidence(rollout: Rollout, plan: Plan, comparison: Comparison) -> dict[str, Any]:
    """Counts, intervals and evidence of each measure.

    Differences and intervals are those of treatment less control, in parts of the range: of `failure` and `latency`
    less is better, of all others more. `log_e` is a natural logarithm; a claim is proven where it reaches `needed`.
    `missing` estimates the units, of both arms together, until then; null if no number is foreseen.
    """
    control, treated = comparison.since(rollout.step_at or 0.0)
    share = share_of_both(rollout, plan)
    return {
        "units": {"control": comparison.units[0], "treatment": comparison.units[1]},
        "units_of_step": {"control": control, "treatment": treated, "needed": plan.min_units},
        "guardrails": {
            name: {
                **_measured(track, plan.level),
                "harm": _claim(track.harm, comparison.harm_level, share),
                "not_worse": _claim(track.not_worse, plan.level, share),
                "alarm": track.alarm,
            }
            for name, track in comparison.tracks.items()
        },
        "objective": {
            "value": plan.objective,
            **_measured(comparison.objective, plan.level),
            "better": _claim(comparison.objective.better, rollout.level, share),
            "alarm": comparison.objective.alarm,
        },
    }


def share_of_both(rollout: Rollout, plan: Plan) -> float:
    """Return the share that units are assigned by, or would be if the first step began."""
    return rollout.share if 0 < rollout.share < 1 else plan.steps[min(rollout.step, len(plan.steps) - 1)]


def _measured(track: Track, level: float) -> dict[str, Any]:
    low, high = interval(track.differences, level)
    count = len(track.differences)
    return {
        "margin": track.measure.margin,
        "means": {"control": _mean(track, 0), "treatment": _mean(track, 1)},
        "differences": count,
        "difference": round(math.fsum(track.differences) / count, _DIGITS) if count else None,
        "interval": [round(low, _DIGITS), round(high, _DIGITS)],
    }


def _mean(track: Track, arm: int) -> float | None:
    return round(track.sums[arm] / track.units[arm], _DIGITS) if track.units[arm] else None


def _claim(found: Evidence, level: float, share: float) -> dict[str, Any]:
    missing = differences_missing(found, level)
    return {
        "log_e": round(found.log_e, _DIGITS),
        "needed": round(-math.log(level), _DIGITS),
        "proven": found.proven(level),
        "missing": None if missing is None else math.ceil(missing * sessions_per_difference(share)),
    }
