"""A rollout that is played: units come one after the other, and each decision that is due is made."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from slipstream.rollouts.comparison import Comparison
from slipstream.rollouts.decider import LaneSight, decide
from slipstream.rollouts.plan import Plan
from slipstream.store.rollout_units import CountedUnit, UnitValues
from slipstream.store.rollouts import Change, Rollout, Verdict
from slipstream.store.states import RolloutState

BEGUN = 1_000_000.0
"""Time at which each played rollout begins."""

Values = Callable[[random.Random, bool], UnitValues]
"""The values of a unit, by its arm."""


def plan(**fields: Any) -> Plan:
    """A plan whose steps take no time of their own, unless a field says otherwise."""
    return Plan.model_validate({"min_time": 0, "min_units": 10, **fields})


def values(**given: float | None) -> UnitValues:
    """The values of a unit with which all is well, but for those that are given."""
    well: dict[str, Any] = {"failure": 0.0, "latency": 0.0, "format": None, "reward": None, "feedback": 0.5}
    return UnitValues(**{**well, "component": None, **given})


def running(plan: Plan, **fields: Any) -> Rollout:
    """A rollout that has begun."""
    begun: dict[str, Any] = {
        "id": 1, "version": 8, "state": RolloutState.RUNNING, "plan": {}, "position": 1, "promotions": 0,
        "level": plan.level, "step": 0, "share": plan.steps[0], "lane_step": 1, "owner": 1, "revision": 2,
        "opened_by": None, "opened_at": BEGUN, "begun_at": BEGUN, "step_at": BEGUN, "promoted_at": None,
        "proven": False, "ended_at": None, "reason": None,
    }  # fmt: skip
    return Rollout(**{**begun, **fields})


class Play:
    """A rollout and its units.

    Attributes:
        changes: the decisions so far.
        now: Unix seconds; a unit comes each second.
        promotes: as of `decide`.
    """

    def __init__(self, plan: Plan, seed: int = 1, **fields: Any) -> None:
        self.plan = plan
        self.rollout = running(plan, **fields)
        self.comparison = Comparison(plan)
        self.changes: list[Change] = []
        self.now = BEGUN
        self.promotes = True
        self._units: list[CountedUnit] = []
        self._random = random.Random(seed)

    @property
    def verdicts(self) -> list[Verdict]:
        """The decisions so far by their kinds."""
        return [change.verdict for change in self.changes]

    def units(self, count: int, of: Values) -> None:
        """Have units come, one a second; ends with the rollout."""
        for _ in range(count):
            if self.rollout.ended_at is not None:
                return
            treated = self._random.random() < self.rollout.share
            self.unit(treated, of(self._random, treated))

    def unit(self, treated: bool, of: UnitValues) -> None:
        """Have one unit come, whose value is final at once."""
        self.now += 1
        self._units.append(CountedUnit(len(self._units) + 1, treated, self.now, of))
        self.comparison.add(self._units[-1:])
        self.look()

    def look(self, lane: LaneSight | None = None) -> Change | None:
        """Make the decision that is due."""
        change = decide(self.rollout, self.plan, self.comparison, lane or LaneSight(), self.now, promotes=self.promotes)
        if change is not None:
            self.changes.append(change)
            self._carry_out(change)
        return change

    def _carry_out(self, change: Change) -> None:
        """As the store does."""
        fields: dict[str, Any] = {"state": change.state, "step": change.step, "share": change.share}
        if change.verdict is Verdict.ADVANCE:
            fields["step_at"] = self.now
        if change.verdict is Verdict.PROMOTE:
            fields |= {"promoted_at": self.now, "proven": change.proven}
        if change.state in (RolloutState.ROLLED_BACK, RolloutState.ABORTED):
            fields["ended_at"] = self.now
        self.rollout = replace(self.rollout, **fields)
        if change.verdict is Verdict.PROMOTE:
            self.comparison = Comparison(self.plan, self.now)
            self.comparison.add(self._units)
