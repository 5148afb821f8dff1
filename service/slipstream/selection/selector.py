"""The tree of strategies, carried out for one task after another."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from slipstream.isolation import Isolation, Pool
from slipstream.selection import strategies
from slipstream.selection.custom import CustomStrategy
from slipstream.selection.decision import Decision
from slipstream.selection.held_out import is_held_out
from slipstream.selection.settings import SelectionSettings
from slipstream.tenants import qualified
from slipstream.trajectory import Task


@dataclass(frozen=True, slots=True)
class Verdict:
    """A decision with its budgets.

    Attributes:
        budgets: those that it spends if the whole tree selects the task by it.
        spent: when it spent each of them; empty if it spent none.
    """

    decision: Decision
    budgets: tuple[strategies.Budgeted, ...] = ()
    spent: tuple[float, ...] = ()


_Node = Callable[[Task], Verdict]


class Selector:
    """Decides which tasks are trained on; one task at a time, whichever thread asks.

    Args:
        clock: seconds, never going back. Budgets go by it, and start anew with the process.
        isolation: the processes of the user's own code; without it, some that end with this process.
        held_out: share of the sessions that nothing is trained on.

    Raises:
        ConfigError: a custom strategy cannot be made.

    Attributes:
        quick: no code of the user's own is asked, so that a decision takes microseconds.
    """

    def __init__(
        self,
        settings: SelectionSettings,
        clock: strategies.Clock = time.monotonic,
        isolation: Isolation | None = None,
        held_out: float = 0.0,
    ) -> None:
        self._held_out = held_out
        self._root = _node(settings, _Made(clock, (isolation or Isolation()).user), "selection")
        self._deciding = threading.Lock()
        self.quick = not any(node.python for node in settings.walk())

    def decide(self, task: Task) -> Decision:
        """The decision on a task. A task decided on twice spends budgets twice."""
        return self.verdict(task).decision

    def verdict(self, task: Task) -> Verdict:
        """The decision on a task, with what it spends.

        One that the policy cannot be asked is never selected: what it is asked must be what production was asked. Nor
        is one that a version of the policy answered: its answers would pass for production's. Nor is one of a session
        that is held out for evaluation, whoever marked it.
        """
        problem = next((call.problem for call in task.calls if call.problem is not None), None)
        if problem is not None:
            return Verdict(Decision(False, f"ineligible:{problem}"))
        if any(call.by_policy for call in task.calls):
            return Verdict(Decision(False, "answered_by_version"))
        if is_held_out(qualified(task.tenant, task.session_id), self._held_out):
            return Verdict(Decision(False, "held_out"))
        with self._deciding:
            verdict = self._root(task)
            if not verdict.decision.selected:
                return verdict
            return replace(verdict, spent=tuple(budget.spend() for budget in verdict.budgets))

    def take_back(self, verdicts: Iterable[Verdict]) -> None:
        """Give back what these decisions spent, because they do not hold."""
        with self._deciding:
            for verdict in verdicts:
                for budget, at in zip(verdict.budgets, verdict.spent, strict=False):
                    budget.take_back(at)


@dataclass(frozen=True, slots=True)
class _Made:
    """Parts that strategies are made with."""

    clock: strategies.Clock
    pool: Pool


def _node(settings: SelectionSettings, made: _Made, path: str) -> _Node:
    if settings.budget:
        budgeted = strategies.Budgeted(settings.budget, made.clock)
        return lambda task: Verdict(budgeted(task), (budgeted,))
    if settings.not_:
        return _not(_node(settings.not_, made, f"{path}.not"))
    if settings.any:
        return _any([_node(member, made, f"{path}.any.{place}") for place, member in enumerate(settings.any)])
    if settings.all:
        members = [(member, _node(member, made, f"{path}.all.{place}")) for place, member in enumerate(settings.all)]
        # Budgets last: "budget_spent" is then the reason only where all else would have selected the task.
        members.sort(key=lambda pair: any(below.budget for below in pair[0].walk()))
        return _all([node for _, node in members])
    strategy = _plain(settings, made.pool, path)
    return lambda task: Verdict(strategy(task))


def _plain(settings: SelectionSettings, pool: Pool, path: str) -> strategies.Strategy:
    if settings.python:
        return CustomStrategy(settings.python, f"{path}.python", pool).decide
    return next(make(own) for name, make in strategies.PLAIN.items() if (own := getattr(settings, name)) is not None)


def _not(member: _Node) -> _Node:
    def decide(task: Task) -> Verdict:
        decision = member(task).decision
        return Verdict(Decision(not decision.selected, decision.reason))

    return decide


def _any(members: Sequence[_Node]) -> _Node:
    def decide(task: Task) -> Verdict:
        reasons = []
        for member in members:
            verdict = member(task)
            if verdict.decision.selected:
                return verdict
            reasons.append(verdict.decision.reason)
        return Verdict(Decision(False, "+".join(reasons)))

    return decide


def _all(members: Sequence[_Node]) -> _Node:
    def decide(task: Task) -> Verdict:
        verdicts: list[Verdict] = []
        for member in members:
            verdict = member(task)
            if not verdict.decision.selected:
                return Verdict(Decision(False, verdict.decision.reason))
            verdicts.append(verdict)
        decisions = [verdict.decision for verdict in verdicts]
        return Verdict(
            Decision(
                True,
                "+".join(decision.reason for decision in decisions),
                frozenset().union(*(decision.labels for decision in decisions)),
                {key: value for decision in reversed(decisions) for key, value in decision.metadata.items()},
            ),
            tuple(budget for verdict in verdicts for budget in verdict.budgets),
        )

    return decide
