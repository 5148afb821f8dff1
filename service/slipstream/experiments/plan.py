"""The plan of an experiment, as it is started: how users are split, what is compared, and how it ends."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, ValidationInfo, field_validator

from slipstream.config.units import PositiveDuration
from slipstream.http.body import Body
from slipstream.rollouts.plan import FEEDBACK, REWARD, LiveScoring, Margin, Ranges, Share

FAILURE, LATENCY, COST = "failure", "latency", "cost"

Metric = Annotated[str, Field(pattern=rf"^({FAILURE}|{LATENCY}|{COST}|{FEEDBACK}|{REWARD}(\..+)?)$", max_length=256)]
"""A value of the units: `failure`, `latency`, `cost`, `feedback`, `reward` or `reward.COMPONENT`."""

_SMALLEST_LEVEL = 1e-6


class ExperimentPlan(Body):
    """The plan of an experiment.

    Attributes:
        share: of the units, for arm `b`; those of arm `a` are the others.
        metrics: the values that are compared.
        primary: the one that is decided by; by default the first.
        margin: of the primary metric, in parts of its range: a difference of at most this is none.
        ends: `evidence`: as soon as enough is proven; `duration`: after that time; `by_hand`.
        duration: seconds from the first assignment; for `evidence` the longest time.
        min_units: units of each arm that a decision needs, at least.
        decision: `switch_traffic`: arm `b` gets the traffic if it wins; `report_only`: production answers all users
            after the end, whoever wins.
        force: switch whatever the verdict for the version is.
        level: the error rate that is accepted.
        grace: seconds after a unit's last call until its value is final.
        longest_session: seconds after a unit's first call until its value is final, whatever follows.
        latency_bound: seconds; a longer wait for a first byte counts as this.
        token_bound: tokens; a unit that took more counts as this.
        ranges: of components of the reward. The start adds those of its metrics that their calculators say.
    """

    share: Share = 0.5
    metrics: Annotated[list[Metric], Field(min_length=1, max_length=8)] = Field(
        default_factory=lambda: [FEEDBACK, FAILURE, LATENCY]
    )
    primary: Metric | None = None
    margin: Margin = 0.0
    ends: Literal["evidence", "duration", "by_hand"] = "evidence"
    duration: PositiveDuration | None = Field(default=None, validate_default=True)
    min_units: int = Field(default=30, ge=1, le=1_000_000)
    decision: Literal["switch_traffic", "report_only"] = "report_only"
    force: bool = False
    level: float = Field(default=0.05, ge=_SMALLEST_LEVEL, lt=1)
    grace: PositiveDuration = 300.0
    longest_session: PositiveDuration = 3600.0
    latency_bound: PositiveDuration = 10.0
    token_bound: int = Field(default=20_000, ge=1, le=1_000_000_000)
    ranges: Ranges = Field(default_factory=dict)
    scoring: LiveScoring = LiveScoring()

    @field_validator("metrics")
    @classmethod
    def _differ(cls, metrics: list[str]) -> list[str]:
        if len(set(metrics)) < len(metrics):
            raise ValueError("each metric once")
        return metrics

    @field_validator("primary")
    @classmethod
    def _is_measured(cls, primary: str | None, info: ValidationInfo) -> str | None:
        metrics = info.data.get("metrics", [])
        if primary is not None and metrics and primary not in metrics:
            raise ValueError(f"one of the metrics ({', '.join(metrics)}), found {primary}")
        return primary

    @field_validator("duration")
    @classmethod
    def _fits_the_end(cls, duration: float | None, info: ValidationInfo) -> float | None:
        ends = info.data.get("ends")
        if ends == "duration" and duration is None:
            raise ValueError("a duration, because ends is duration; found none")
        if ends == "by_hand" and duration is not None:
            raise ValueError(f"none, because ends is by_hand; found {duration:g} s")
        return duration

    @field_validator("decision")
    @classmethod
    def _can_be_made(cls, decision: str, info: ValidationInfo) -> str:
        if decision == "switch_traffic" and info.data.get("ends") == "by_hand":
            raise ValueError("report_only, because ends is by_hand: the stop decides; found switch_traffic")
        return decision

    @property
    def decided_by(self) -> str:
        """Return the primary metric."""
        return self.primary or self.metrics[0]

    @property
    def scores(self) -> bool:
        """Return whether live answers have to be scored for it."""
        return any(map(is_reward, self.metrics))

    @property
    def longest_wait(self) -> float:
        """Return the longest time from a unit's first call to its final value, in seconds."""
        return max(self.longest_session, self.grace)


def is_reward(metric: str) -> bool:
    """Return whether a metric is a reward, or a component of it."""
    return metric.partition(".")[0] == REWARD


def component_of(metric: str) -> str | None:
    """Return the component that a metric names; None for the whole reward."""
    return metric.partition(".")[2] or None
