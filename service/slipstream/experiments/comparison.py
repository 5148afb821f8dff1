"""Evidence about an experiment, from its units in the order of assignment.

What was proven stays proven. Both directions are tested, each at half of the level, so that at most the level of all
experiments between equal arms end with a winner.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping

from slipstream.evidence import Claim, Evidence
from slipstream.experiments.measuring import measures
from slipstream.experiments.plan import COST, ExperimentPlan
from slipstream.rollouts.comparison import Blocks
from slipstream.rollouts.guardrails import Measure
from slipstream.store.experiments import Winner
from slipstream.store.rollout_units import CountedUnit

_GRID = 1000
"""Values are rounded to parts of this for the intervals of the arms' means, so that memory does not grow with units."""

_MOST_WITHOUT = 0.05
"""Part of an arm's units that may be without a cost: those that are can differ from the others by their arm."""


class Arm:
    """The values of one arm's units.

    Attributes:
        units: with a value.
        without: units without one, but for those that `capture.rate` leaves out.
        counts: of the values, rounded to a grid.
    """

    def __init__(self) -> None:
        self.units = self.without = 0
        self.counts: Counter[float] = Counter()
        self._sum = self._squares = 0.0

    def add(self, value: float | None) -> None:
        """Take a unit into account."""
        if value is None:
            self.without += 1
            return
        self.units += 1
        self.counts[round(value * _GRID) / _GRID] += 1
        self._sum += value
        self._squares += value * value

    @property
    def mean(self) -> float | None:
        """The mean of the values; None without any."""
        return self._sum / self.units if self.units else None

    @property
    def deviation(self) -> float | None:
        """Their standard deviation; None with fewer than two."""
        if self.units < 2:
            return None
        return math.sqrt(max(0.0, self._squares - self._sum * self._sum / self.units) / (self.units - 1))


class Metric:
    """The evidence of one metric.

    Attributes:
        arms: of control and of treatment: `a` and `b`.
        differences: of `b` less `a`, rounded to a grid, with their numbers; in the metric's own direction.
        b_better, a_better: evidence for these; `equal`: that the difference is within the margin, None without one.
    """

    def __init__(self, measure: Measure) -> None:
        self.measure = measure
        self.arms = Arm(), Arm()
        self.differences: Counter[float] = Counter()
        self.b_better = Evidence(Claim.BETTER, measure.margin)
        self.a_better = Evidence(Claim.WORSE, measure.margin)
        self.equal = Evidence(Claim.EQUAL, measure.margin) if measure.margin > 0 else None
        self._sum = 0.0
        self._blocks = Blocks()

    def add(self, treated: bool, value: float | None) -> None:
        """Take a unit into account."""
        self.arms[treated].add(value)
        difference = None if value is None else self._blocks.add(treated, value)
        if difference is None:
            return
        self._sum += difference
        self.differences[round(difference * _GRID) / _GRID] += 1
        for evidence in self.claims.values():
            evidence.add(self.measure.sign * difference)

    @property
    def claims(self) -> dict[Winner, Evidence]:
        """The evidence for each result."""
        found: dict[Winner, Evidence] = {"b": self.b_better, "a": self.a_better}
        return found if self.equal is None else {**found, "equal": self.equal}

    @property
    def difference(self) -> float | None:
        """The mean difference; None without any."""
        count = self.differences.total()
        return self._sum / count if count else None

    @property
    def comparable(self) -> bool:
        """Return whether the units without a value cannot make the difference."""
        if self.measure.name != COST:
            return True
        return all(arm.without <= _MOST_WITHOUT * (arm.units + arm.without) for arm in self.arms)

    def proven(self, level: float) -> Winner | None:
        """Return the result that is proven, each claim at half of the level."""
        if not self.comparable:
            return None
        return next((result for result, evidence in self.claims.items() if evidence.proven(level / 2)), None)


class Comparison:
    """The units of an experiment so far.

    Attributes:
        last: the number of the last unit that was added.
        units: counted units of `a` and of `b`.
        metrics: by name.
        primary: the metric that is decided by.
    """

    def __init__(self, plan: ExperimentPlan) -> None:
        self.last = 0
        self.units = [0, 0]
        self.metrics = {measure.name: Metric(measure) for measure in measures(plan)}
        self.primary = self.metrics[plan.decided_by]

    def add(self, units: Iterable[CountedUnit[Mapping[str, float | None]]]) -> None:
        """Take the next units into account, in their order."""
        for unit in units:
            self.last = unit.id
            self.units[unit.treated] += 1
            for name, metric in self.metrics.items():
                if name in unit.values:
                    metric.add(unit.treated, unit.values[name])
