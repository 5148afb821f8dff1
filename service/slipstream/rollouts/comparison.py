"""Evidence about a rollout, from its units in the order of assignment.

An accumulator: units are added as their values become final, and what was proven stays proven. After the promotion the
units that are assigned from then on go to the detectors.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable

from slipstream.evidence import Claim, Detector, Evidence, Session, differences, guardrail_level
from slipstream.rollouts.guardrails import Measure, measures, objective
from slipstream.rollouts.plan import Plan
from slipstream.store.rollout_units import CountedUnit, UnitValues

RUN_LENGTH = 10_000.0
"""Differences until the detectors of a promoted version give one false alarm, all together, in the mean at least."""


class Blocks:
    """Differences of one measure, a block of units at a time."""

    def __init__(self) -> None:
        self._block: list[Session] = []
        self._arms: set[bool] = set()

    def add(self, treated: bool, value: float) -> float | None:
        """Take the next unit; returns the difference of the block that it ends, if it ends one."""
        self._block.append(Session(treated, value))
        self._arms.add(treated)
        if len(self._arms) < 2:
            return None
        [difference] = differences(self._block)
        self._block, self._arms = [], set()
        return difference


class Track:
    """The evidence of one measure.

    Attributes:
        differences: of treatment less control, in the measure's own direction.
        harm: evidence that the loss is more than the margin.
        not_worse: evidence that it is less.
        better: evidence that the gain is more than the margin.
        sums, units: of the values and of the units, by the arm: control, treatment.
    """

    def __init__(self, measure: Measure, run_length: float) -> None:
        self.measure = measure
        self.differences: list[float] = []
        self.harm = Evidence(Claim.WORSE, measure.margin)
        self.not_worse = Evidence(Claim.BETTER, -measure.margin)
        self.better = Evidence(Claim.BETTER, measure.margin)
        self.sums, self.units = [0.0, 0.0], [0, 0]
        self.alarm = False
        self._blocks, self._watched = Blocks(), Blocks()
        self._detector = Detector(measure.margin, run_length)

    def add(self, treated: bool, value: float) -> None:
        """Take a unit into account that was assigned before the promotion."""
        self.sums[treated] += value
        self.units[treated] += 1
        difference = self._blocks.add(treated, value)
        if difference is None:
            return
        self.differences.append(difference)
        for evidence in (self.harm, self.not_worse, self.better):
            evidence.add(self.measure.sign * difference)

    def watch(self, treated: bool, value: float) -> None:
        """Take a unit into account that was assigned after it."""
        difference = self._watched.add(treated, value)
        if difference is not None and not self.alarm:
            self.alarm = self._detector.add(-self.measure.sign * difference)


class Comparison:
    """The units of a rollout so far.

    Args:
        promoted_at: Unix seconds; None before the promotion.

    Attributes:
        last: the number of the last unit that was added.
        units: counted units, by the arm: control, treatment.
        tracks: of the guardrails, by name.
        objective: the track of the objective.
    """

    def __init__(self, plan: Plan, promoted_at: float | None = None) -> None:
        guarded = measures(plan)
        # by Bonferroni's inequality: that many detectors together give an alarm as often as one of this length
        run_length = RUN_LENGTH * (len(guarded) + 1)
        self.promoted_at = promoted_at
        self.last = 0
        self.units = [0, 0]
        self.tracks = {measure.name: Track(measure, run_length) for measure in guarded}
        self.objective = Track(objective(plan), run_length)
        self.harm_level = guardrail_level(plan.level, len(guarded))
        self._begun: tuple[list[float], list[float]] = ([], [])

    def add(self, units: Iterable[CountedUnit[UnitValues]]) -> None:
        """Take the next units into account, in their order."""
        for unit in units:
            self.last = unit.id
            self.units[unit.treated] += 1
            insort(self._begun[unit.treated], unit.first_at)  # nearly always at its end
            watched = self.promoted_at is not None and unit.first_at >= self.promoted_at
            for track in (*self.tracks.values(), self.objective):
                value = getattr(unit.values, track.measure.value)
                if value is not None:
                    (track.watch if watched else track.add)(unit.treated, value)

    def since(self, at: float) -> tuple[int, int]:
        """Return the units of control and of treatment that were assigned since this time."""
        control, treated = self._begun
        return len(control) - bisect_left(control, at), len(treated) - bisect_left(treated, at)

    @property
    def harmed(self) -> list[str]:
        """The guardrails whose harm is proven."""
        return [name for name, track in self.tracks.items() if track.harm.proven(self.harm_level)]

    @property
    def alarmed(self) -> list[str]:
        """The measures whose detectors gave an alarm."""
        return [track.measure.name for track in (*self.tracks.values(), self.objective) if track.alarm]
