"""Experiments started, shown and stopped by people: refused where they cannot be, with the reason."""

from __future__ import annotations

import re
from typing import Any

from sqlalchemy.ext.asyncio import AsyncSession

from slipstream.errors import RequestError, SlipstreamError
from slipstream.evaluation.verdicts import Verdicts
from slipstream.experiments.comparison import Comparison
from slipstream.experiments.decider import what_is_missing
from slipstream.experiments.plan import ExperimentPlan, component_of, is_reward
from slipstream.experiments.stage import Experiments
from slipstream.experiments.switching import switch
from slipstream.rewards import RewardsSettings
from slipstream.rollouts.commands import check_settings
from slipstream.rollouts.guardrails import check_values, of_component, ranges
from slipstream.serving.page import PRODUCTION, variant_of
from slipstream.settings.sidecar import Settings
from slipstream.stages.context import Context, Stage
from slipstream.store import aliases, experiments, rollout_units, rollouts, serving
from slipstream.store.audit import Author
from slipstream.store.experiments import Change, Experiment, Verdict, Winner
from slipstream.store.states import OPEN_EXPERIMENTS, ExperimentState
from slipstream.versions.registry import VersionRegistry

_VERSION = re.compile(r"version:([0-9]{1,9})")

_ONE_LANE = (
    "the lane serves one version, so that two versions are compared by an experiment of each with production; another "
    "model than a version can be compared if a lane serves it"
)


async def start_experiment(
    context: Context, stage: Experiments, verdicts: Verdicts, versions: VersionRegistry, arms: tuple[str, str],
    name: str, plan: ExperimentPlan, by: Author,
) -> Experiment:  # fmt: skip
    """Start an experiment.

    Args:
        arms: `a` and `b`, as they were asked for.

    Raises:
        RequestError: 404, there is no such version; 409, its weights are not there, nothing is served or captured,
            users are assigned by a rollout or another experiment, all are with production by a kill, or the version's
            verdict or a second person is missing for a switch of the traffic; 422, the arms or the plan cannot be had
            with this configuration.
    """
    _check_settings(context.settings, plan)
    plan = _with_ranges(plan, context.settings.rewards)
    if plan.decision == "switch_traffic":
        _check_one_person(context.settings)
    now = context.clock()
    async with context.database.read() as session:
        version = await _version_of(session, arms)
        if plan.decision == "switch_traffic" and not plan.force:
            await verdicts.required(session, version)
    await versions.check_there(version, "b")
    async with context.database.write() as session:
        await _check_free(session)
        await rollout_units.begin_anew(session, version)
        started = await experiments.start(session, name, version, plan.model_dump(mode="json"), by, now)
    stage.told(started, Verdict.START)
    context.stages.wake(Stage.EXPERIMENTS)
    return started


async def stop(
    context: Context,
    stage: Experiments,
    verdicts: Verdicts,
    experiment_id: int,
    decision: Winner | None,
    by: Author,
    *,
    force: bool,
) -> Experiment:
    """End an experiment, and say who gets the traffic.

    Args:
        decision: `b` has its version answer the users as a promoted one; anything else leaves them with production. It
            may come after the end.
        force: whatever the verdict for the version is.

    Raises:
        RequestError: 404, there is no such experiment; 409, its state or the lane does not have this, or the version's
            verdict or a second person is missing.
    """
    while True:
        experiment, plan = await _found(context, experiment_id)
        if experiment.rollout_id is not None:
            why = f"its b has the traffic by rollout {experiment.rollout_id}: decide about that one"
            raise _refusal(experiment, why)
        if experiment.state not in OPEN_EXPERIMENTS and decision != "b":
            if decision == "a":
                return experiment  # production answers all users already
            raise _refusal(experiment, f"it is {experiment.state}")
        note = "by hand"
        if decision == "b":
            _check_one_person(context.settings)
            note = await _may_switch(context, verdicts, experiment, force=force)
        if experiment.state in OPEN_EXPERIMENTS:
            comparison = await stage.comparison(experiment, plan)
            words = "" if decision is None else f", for {decision}"
            found = await stage.report(experiment, plan, comparison)
            made = Change(Verdict.STOP, ExperimentState.STOPPED, 0.0, f"{note}{words}", found, decision)
            after = await stage.carry_out(experiment, made, by, switches=plan if decision == "b" else None)
        else:
            after = await _switch_after_the_end(context, stage, experiment, plan, note, by)
        if after is not None:
            return after


async def shown(context: Context, stage: Experiments, experiment_id: int) -> dict[str, Any]:
    """An experiment with its report, what is missing, and its decisions.

    Raises:
        RequestError: 404, there is no such experiment.
    """
    experiment, plan = await _found(context, experiment_id)
    async with context.database.read() as session:
        decisions = await experiments.decisions(session, experiment_id)
    of_the_end = (each["evidence"] for each in reversed(decisions) if each["evidence"])
    found = None if experiment.ended_at is None else next(of_the_end, None)  # its units may be deleted by now
    comparison = Comparison(plan) if found else await stage.comparison(experiment, plan)
    goes_on, begun = experiment.ended_at is None, experiment.begun_at
    left = None
    if plan.duration is not None and begun is not None and experiment.state is ExperimentState.RUNNING:
        left = round(max(0.0, plan.duration - (context.clock() - begun)), 1)
    return {
        **summary(experiment),
        "plan": plan.model_dump(mode="json"),
        "report": found or await stage.report(experiment, plan, comparison),
        "missing": {
            "seconds": left,
            "reasons": what_is_missing(plan, comparison) if goes_on and begun is not None else [],
            "lane": stage.waits if experiment.state is ExperimentState.PENDING else None,
        },
        "decisions": decisions,
    }


def summary(experiment: Experiment) -> dict[str, Any]:
    """An experiment in a few fields."""
    return {
        "id": experiment.id,
        "name": experiment.name,
        "a": PRODUCTION,
        "b": variant_of(experiment.version),
        "state": experiment.state,
        "share": experiment.share,
        "winner": experiment.winner,
        "reason": experiment.reason,
        "rollout": experiment.rollout_id,
        "started_by": experiment.started_by,
        "started_at": experiment.started_at,
        "begun_at": experiment.begun_at,
        "settling_at": experiment.settling_at,
        "ended_at": experiment.ended_at,
    }


async def _found(context: Context, experiment_id: int) -> tuple[Experiment, ExperimentPlan]:
    async with context.database.read() as session:
        experiment = await experiments.get(session, experiment_id)
    if experiment is None:
        raise RequestError(f"there is no experiment {experiment_id}", status=404, code="not_found")
    return experiment, ExperimentPlan.model_validate(experiment.plan)


async def _version_of(session: AsyncSession, arms: tuple[str, str]) -> int:
    """The version of arm `b`."""
    a, b = arms
    if a != PRODUCTION:
        raise RequestError(f"a: expected production, found {a!r}: {_ONE_LANE}", param="a", code="arm_not_served")
    named = _VERSION.fullmatch(b)
    version = int(named[1]) if named else await aliases.version_of(session, b)
    if version is None:
        text = f"b: expected version:NUMBER or an alias of a version, found {b!r}: {_ONE_LANE}"
        raise RequestError(text, param="b", code="arm_not_served")
    if not await rollouts.known_version(session, version):
        raise RequestError(f"b: there is no version {version}", param="b", status=404, code="not_found")
    return version


async def _check_free(session: AsyncSession) -> None:
    """
    Raises:
        RequestError: 409, users are assigned by something else, or all are with production by a kill.
    """
    if (other := await experiments.current(session)) is not None:
        text = f"experiment {other.id} ({other.name}) is {other.state}; one at a time: stop it first"
        raise RequestError(text, status=409, code="experiment_open")
    if (rollout := await rollouts.current(session)) is not None:
        text = (
            f"rollout {rollout.id} of version {rollout.version} is {rollout.state}, and the lane serves one version; "
            "abort it first"
        )
        raise RequestError(text, status=409, code="rollout_open")
    if (await serving.current(session)).killed:
        text = "production answers everybody since a kill; take it back first (POST /serving/revive)"
        raise RequestError(text, status=409, code="serving_killed")


async def _may_switch(context: Context, verdicts: Verdicts, experiment: Experiment, *, force: bool) -> str:
    """The reason of a switch of the traffic to arm `b`, by hand.

    Raises:
        RequestError: 409, it may not be made.
    """
    if experiment.state in (ExperimentState.PENDING, ExperimentState.FAILED):
        raise _refusal(experiment, f"it is {experiment.state}: its b cannot get the traffic")
    async with context.database.read() as session:
        if (await serving.current(session)).killed:
            raise _refusal(experiment, "production answers everybody since a kill; take it back first")
        if force:
            return "by hand, by force, whatever the verdict is"
        found = await verdicts.required(session, experiment.version)
    return f"by hand; the verdict is {found['verdict']}"


async def _switch_after_the_end(
    context: Context, stage: Experiments, experiment: Experiment, plan: ExperimentPlan, note: str, by: Author
) -> Experiment | None:
    """Have arm `b` of an experiment that has ended get the traffic. Returns None if another decision came first."""
    async with context.database.read() as session:
        await _check_free(session)  # before the lane loads it in the place of the version that it serves
    try:
        lane_step = await stage.lane.place(experiment.version)
    except (SlipstreamError, OSError) as error:
        raise _refusal(experiment, f"version {experiment.version} does not come into the lane: {error}") from error
    evidence = await stage.report(experiment, plan, await stage.comparison(experiment, plan))
    async with context.database.write() as session:
        await _check_free(session)
        now = await experiments.get(session, experiment.id)
        if now is None or now.revision != experiment.revision:
            return None
        lane = lane_step, context.settings.serving.lane_url
        after = await switch(session, experiment, plan, lane, f"{note}, for b", evidence, by, context.clock())
    stage.told(after, Verdict.SWITCH)
    context.stages.wake(Stage.ROLLOUTS)
    return after


def _refusal(experiment: Experiment, why: str) -> RequestError:
    return RequestError(f"experiment {experiment.id} cannot stop: {why}", status=409, code="experiment_state")


def _check_one_person(settings: Settings) -> None:
    """
    Raises:
        RequestError: 409, a promotion takes two persons.
    """
    if settings.rollouts.by_two:
        text = "decision: an experiment gives nobody the traffic, because rollouts.approval is second_person; open a "
        raise RequestError(f"{text}rollout of the version", param="decision", status=409, code="second_person")


def _check_settings(settings: Settings, plan: ExperimentPlan) -> None:
    check_settings(settings, plan, "an experiment")
    used = [
        (f"metrics.{place}", of_component(component_of(metric), settings.rewards))
        for place, metric in enumerate(plan.metrics)
        if is_reward(metric)
    ]
    check_values(used, settings.rewards, references=plan.scoring.references)


def _with_ranges(plan: ExperimentPlan, rewards: RewardsSettings) -> ExperimentPlan:
    """The plan with the ranges of all components that it compares.

    Raises:
        RequestError: 422, as of `ranges`.
    """
    named = [(f"metrics.{place}", component_of(metric)) for place, metric in enumerate(plan.metrics)]
    used = [(place, component) for place, component in named if component is not None]
    return plan.model_copy(update={"ranges": ranges(used, plan.ranges, rewards)})
