"""Measures of each guardrail and of the objective, and calculators that cannot compare two versions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from slipstream.errors import RequestError
from slipstream.rewards.calculator import Bounds
from slipstream.rewards.calculators.agent import Agent
from slipstream.rewards.calculators.agreement import Agreement
from slipstream.rewards.calculators.form import Format
from slipstream.rewards.calculators.given import PostedFeedback
from slipstream.rewards.calculators.judge import Judge
from slipstream.rewards.calculators.mathematics import Math
from slipstream.rewards.calculators.reference import Contains, ExactMatch
from slipstream.rewards.calculators.tools import Efficiency, Timing, ToolCalls
from slipstream.rewards.settings import CalculatorSpec, RewardsSettings
from slipstream.rollouts.plan import FEEDBACK, REWARD, Plan, Ranges

OBJECTIVE = "objective"

ByLastAnswer = ExactMatch | Contains | Math
"""Calculators that do nothing but compare an answer with a reference, which describes the last answer of a task."""

_LESS_IS_BETTER = ("failure", "latency")


@dataclass(frozen=True, slots=True)
class Measure:
    """A value of the units that is compared.

    Attributes:
        name: of the guardrail, or `objective`.
        value: the field of `UnitValues`.
        sign: 1 if greater values are better, -1 if smaller ones are.
        margin: the size of a difference that matters.
    """

    name: str
    value: str
    sign: int
    margin: float


def measures(plan: Plan) -> list[Measure]:
    """The guardrails of a plan as measures."""
    return [
        Measure(name, name, -1 if name in _LESS_IS_BETTER else 1, guardrail.margin)
        for name, guardrail in plan.guardrails.on.items()
    ]


def objective(plan: Plan) -> Measure:
    """The objective of a plan as a measure."""
    value = FEEDBACK if plan.objective == FEEDBACK else REWARD if plan.component is None else "component"
    return Measure(OBJECTIVE, value, 1, plan.objective_margin)


def check(plan: Plan, rewards: RewardsSettings) -> None:
    """Make sure that the calculators can compare what the plan compares.

    Raises:
        RequestError: 422, they cannot; names the field of the plan and the calculator.
    """
    check_values(_used(plan, rewards), rewards, references=plan.scoring.references)


def of_component(component: str | None, rewards: RewardsSettings) -> list[CalculatorSpec]:
    """The calculators that give a component of the reward; for None, those of the whole reward."""
    if component is None:
        return list(rewards.calculators)
    return [spec for spec in rewards.calculators if spec.component in (component, component.partition(".")[0])]


def check_values(
    used: Iterable[tuple[str, list[CalculatorSpec]]], rewards: RewardsSettings, *, references: bool
) -> None:
    """Make sure that calculators can compare production with a version.

    Args:
        used: the calculators of each value, with the field that names it.
        references: the tasks have their references.

    Raises:
        RequestError: 422, they cannot; names the field and the calculator.
    """
    for place, specs in used:
        if not specs:
            raise RequestError(
                f"{place}: expected a value that rewards.calculators give, found none: they are "
                f"{', '.join(spec.component for spec in rewards.calculators) or 'an empty list'}",
                param=place,
            )
        for spec in specs:
            if why := _refused(spec, references):
                raise RequestError(
                    f"{place}: expected calculators that judge each answer by itself, found {spec.name}, which {why}",
                    param=place,
                    code="takes_production_for_the_truth",
                )


def with_ranges(plan: Plan, rewards: RewardsSettings) -> Plan:
    """The plan with the ranges of all components that it compares.

    Raises:
        RequestError: 422, as of `ranges`.
    """
    used = []
    if plan.component is not None:
        used.append(("objective", plan.component))
    if plan.guardrails.format is not None and (component := format_component(rewards)) is not None:
        used.append(("guardrails.format", component))
    return plan.model_copy(update={"ranges": ranges(used, plan.ranges, rewards)})


def ranges(used: Iterable[tuple[str, str]], given: Ranges, rewards: RewardsSettings) -> Ranges:
    """The ranges of components: those that are given, and of the others those that their calculators say.

    Args:
        used: the components that are compared, each with the field that names it.

    Raises:
        RequestError: 422, one is neither given nor known; names the field.
    """
    found = dict(given)
    for place, component in used:
        if component in found:
            continue
        bounds = _bounds(component, rewards)
        if bounds is None:
            raise RequestError(
                f"{place}: expected a component whose least and greatest value are known, found {component}, whose "
                f'calculator does not say them; add them to the plan: ranges: {{"{component}": [0, 1]}}, for example',
                param=place,
                code="range_not_known",
            )
        found[component] = list(bounds)
    return found


def _bounds(component: str, rewards: RewardsSettings) -> Bounds | None:
    """The least and the greatest value of a component, or of a part of one; None if they are not known."""
    for spec in of_component(component, rewards):
        part = component.removeprefix(spec.component).removeprefix(".")
        if isinstance(spec.parameters, PostedFeedback) and not part:
            return rewards.clip  # nothing else can be posted
        if (bounds := spec.parameters.bounds_of(part)) is not None:
            return bounds
    return None


def comparable(rewards: RewardsSettings, *, references: bool) -> RewardsSettings:
    """The section `rewards` with the calculators that can compare two versions, and no others.

    For the calculator `feedback` the silence of a user is the middle of the range, unless it has a default. If it
    failed, versions would be compared by who speaks up.
    """
    middle = sum(rewards.clip) / 2
    calculators = []
    for spec in rewards.calculators:
        if isinstance(posted := spec.parameters, PostedFeedback) and posted.default is None:
            calculators.append(spec.model_copy(update={"feedback": posted.model_copy(update={"default": middle})}))
        elif not _refused(spec, references):
            calculators.append(spec)
    return rewards.model_copy(update={"calculators": tuple(calculators)})


def lacks_references(rewards: RewardsSettings, metadata: Mapping[str, Any]) -> bool:
    """Return whether a task has not the references by which these calculators can compare."""
    keys = {key for spec in rewards.calculators for key in _reference_keys(spec)}
    return any(metadata.get(key) is None for key in keys)


def format_component(rewards: RewardsSettings) -> str | None:
    """Return the component that the calculator `format` has in a breakdown."""
    return next((spec.component for spec in rewards.calculators if isinstance(spec.parameters, Format)), None)


def _used(plan: Plan, rewards: RewardsSettings) -> Iterator[tuple[str, list[CalculatorSpec]]]:
    """The calculators of each value that the plan takes from rewards, with its field."""
    everything = list(rewards.calculators)
    if plan.objective != FEEDBACK:
        yield "objective", of_component(plan.component, rewards)
    if plan.guardrails.reward is not None:
        yield "guardrails.reward", everything
    if plan.guardrails.format is not None:
        yield "guardrails.format", [spec for spec in everything if isinstance(spec.parameters, Format)]


def _refused(spec: CalculatorSpec, references: bool) -> str | None:
    parameters = spec.parameters
    if isinstance(parameters, Agreement):
        return "takes production's answer for the truth, so that production always wins"
    if isinstance(parameters, Judge) and parameters.show_production:
        return "shows the judge production's answer beside it (show_production)"
    if _reference_keys(spec) and not references:
        return (
            "takes production's answer for the truth where a task has no reference; say scoring.references: true if "
            "the tasks have them"
        )
    return None


def _reference_keys(spec: CalculatorSpec) -> tuple[str, ...]:
    """The keys of a task's metadata in whose place the calculator takes production's answer."""
    parameters = spec.parameters
    if isinstance(parameters, ToolCalls | Timing | Efficiency):
        return (parameters.key,)
    if isinstance(parameters, Agent):
        return (parameters.key, ToolCalls().key, Efficiency().key)
    return ()
