"""Decisions that people make about rollouts: refused where the state does not have them, with the reason."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any

from slipstream.errors import RequestError
from slipstream.evidence import version_level
from slipstream.rollouts import guardrails
from slipstream.rollouts.comparison import Comparison
from slipstream.rollouts.decider import advanced, change, is_proven, units_until, what_is_missing
from slipstream.rollouts.findings import evidence
from slipstream.rollouts.plan import LARGEST_SHARE, Plan
from slipstream.rollouts.stage import Rollouts
from slipstream.rollouts.values import Waits
from slipstream.settings.sidecar import Settings
from slipstream.stages.context import Context, Stage
from slipstream.store import experiments, rollout_units, rollouts
from slipstream.store.audit import Author
from slipstream.store.rollouts import Change, Rollout, Verdict
from slipstream.store.states import TRANSITIONS, RolloutState


async def open_rollout(
    context: Context, stage: Rollouts, version: int, plan: Plan, by: Author, *, replace: bool
) -> Rollout:
    """Open a rollout.

    Args:
        replace: a version that is live goes back first.

    Raises:
        RequestError: 404, there is no such version; 409, nothing is served or captured, or another rollout or an
            experiment is open, or another version is live; 422, the plan cannot be carried out with this configuration.
    """
    check_settings(context.settings, plan, "a rollout")
    guardrails.check(plan, context.settings.rewards)
    plan = guardrails.with_ranges(plan, context.settings.rewards)
    now = context.clock()
    async with context.database.write() as session:
        if not await rollouts.known_version(session, version):
            raise RequestError(f"version: there is no version {version}", param="version", status=404, code="not_found")
        if (experiment := await experiments.current(session)) is not None:
            raise RequestError(
                f"experiment {experiment.id} of version {experiment.version} is {experiment.state}, and the lane "
                "serves one version; stop it first",
                status=409,
                code="experiment_open",
            )
        before = await rollouts.current(session)
        if before is not None and rollouts.is_open(before):
            raise RequestError(
                f"rollout {before.id} of version {before.version} is {before.state}; one at a time: abort it first",
                status=409,
                code="rollout_open",
            )
        if before is not None and not replace:
            raise RequestError(
                f"replace: version {before.version} is live by rollout {before.id}, and the lane serves one version; "
                "say replace: true to send its users back to production first",
                param="replace",
                status=409,
                code="version_live",
            )
        if before is not None:
            reason = f"version {version} takes its place"
            replaced = Change(Verdict.REPLACE, before.state, before.step, 0.0, reason, {})
            await rollouts.carry_out(session, before, replaced, by, now)
        tested, promotions = await rollouts.stream(session)
        level = version_level(plan.level, tested + 1, promotions)
        await rollout_units.begin_anew(session, version)
        opened = await rollouts.open_(session, version, plan.model_dump(mode="json"), level, by, now)
    stage.told(opened, Verdict.OPEN)
    context.stages.wake(Stage.ROLLOUTS)
    return opened


async def by_hand(
    context: Context, stage: Rollouts, rollout_id: int, verdict: Verdict, by: Author, *, note: str | None = None
) -> Rollout:
    """Make a decision by hand.

    Args:
        note: is added to its reason.

    Raises:
        RequestError: 404, there is no such rollout; 409, its state does not have this decision.
    """
    while True:
        rollout, made = await decided(context, stage, rollout_id, verdict)
        if note is not None:
            made = replace(made, reason=f"{made.reason}; {note}")
        if after := await stage.carry_out(rollout, made, by):
            woken(context)
            return after


async def decided(context: Context, stage: Rollouts, rollout_id: int, verdict: Verdict) -> tuple[Rollout, Change]:
    """A decision by hand as it would be carried out now, and the rollout that it is made on.

    Raises:
        RequestError: as `by_hand`.
    """
    rollout, plan = await _found(context, rollout_id)
    return rollout, _DECISIONS[verdict](rollout, plan, await stage.comparison(rollout, plan))


def woken(context: Context) -> None:
    """Have the stage go on after a decision by hand."""
    context.stages.wake(Stage.ROLLOUTS)


async def shown(context: Context, stage: Rollouts, rollout_id: int) -> dict[str, Any]:
    """A rollout with its decisions, its evidence, and what is missing.

    Raises:
        RequestError: 404, there is no such rollout.
    """
    rollout, plan = await _found(context, rollout_id)
    async with context.database.read() as session:
        decisions = await rollouts.decisions(session, rollout_id)
        # its units may be deleted by now
        found = None if rollout.ended_at is None else await rollouts.last_evidence(session, rollout_id)
    comparison = Comparison(plan) if found else await stage.comparison(rollout, plan)
    goes_on = rollout.state in (RolloutState.RUNNING, RolloutState.HOLDING)
    left = plan.min_time - (context.clock() - (rollout.step_at or 0.0))
    return {
        **summary(rollout),
        "plan": plan.model_dump(mode="json"),
        "evidence": found or evidence(rollout, plan, comparison),
        "missing": {
            "seconds": round(max(0.0, left), 1) if goes_on else None,
            "units": units_until(rollout, plan, comparison) if goes_on else None,
            "reasons": what_is_missing(rollout, plan, comparison) if goes_on else [],
            "lane": stage.waits if rollout.state is RolloutState.PENDING else None,
        },
        "decisions": decisions,
    }


def summary(rollout: Rollout) -> dict[str, Any]:
    """A rollout in a few fields."""
    return {
        "id": rollout.id,
        "version": rollout.version,
        "state": rollout.state,
        "step": rollout.step,
        "share": rollout.share,
        "reason": rollout.reason,
        "test": {"position": rollout.position, "promotions": rollout.promotions, "level": rollout.level},
        "proven": rollout.proven,
        "asked": None if rollout.asked is None else asdict(rollout.asked),
        "opened_by": rollout.opened_by,
        "opened_at": rollout.opened_at,
        "begun_at": rollout.begun_at,
        "promoted_at": rollout.promoted_at,
        "ended_at": rollout.ended_at,
    }


async def _found(context: Context, rollout_id: int) -> tuple[Rollout, Plan]:
    async with context.database.read() as session:
        rollout = await rollouts.get(session, rollout_id)
    if rollout is None:
        raise RequestError(f"there is no rollout {rollout_id}", status=404, code="not_found")
    return rollout, Plan.model_validate(rollout.plan)


def can_be_promoted(rollout: Rollout) -> bool:
    """Return whether its state has a promotion by hand."""
    return rollout.ended_at is None and RolloutState.PROMOTED in TRANSITIONS[RolloutState][rollout.state]


def check_settings(settings: Settings, plan: Waits, kind: str) -> None:
    """Make sure that a version can be compared on users with these settings.

    Args:
        kind: of the comparison, for the messages.

    Raises:
        RequestError: 409, nothing is served or captured; 422, calls are not kept for as long as the plan waits.
    """
    if settings.serving.mode != "on" or settings.serving.lane is None:
        raise RequestError(
            "there is nothing to serve a version from: expected serving.mode: on and serving.lane in sidecar.yaml",
            status=409,
            code="no_lane",
        )
    if settings.capture.rate == 0:
        raise RequestError(
            f"capture.rate: expected above 0, because {kind} counts calls by way of capture; found 0",
            status=409,
            code="nothing_captured",
        )
    longest, kept = plan.longest_wait + plan.grace, settings.capture.retention
    if longest > kept:
        raise RequestError(
            f"longest_session: expected, with grace, at most capture.retention ({kept:g} s), because a unit's value is "
            f"read from its calls; found {longest:g} s",
            param="longest_session",
        )


_Decided = Callable[[Rollout, Plan, Comparison], Change]


def _moving(verdict: Verdict, state: RolloutState, reason: str, share: float | None = None) -> _Decided:
    """A decision that does nothing but move the rollout to a state."""

    def made(rollout: Rollout, plan: Plan, comparison: Comparison) -> Change:
        _may(rollout, verdict, state)
        return change(rollout, plan, comparison, verdict, state, reason, share=share)

    return made


def _advance(rollout: Rollout, plan: Plan, comparison: Comparison) -> Change:
    _may(rollout, Verdict.ADVANCE, RolloutState.RUNNING, RolloutState.RUNNING, RolloutState.HOLDING)
    if rollout.step >= len(plan.steps) - 1:
        raise _refusal(rollout, Verdict.ADVANCE, f"it is at its last step, {rollout.step + 1}; promote it")
    return advanced(rollout, plan, comparison)


def _promote(rollout: Rollout, plan: Plan, comparison: Comparison) -> Change:
    _may(rollout, Verdict.PROMOTE, RolloutState.PROMOTED)
    proven = is_proven(rollout, comparison)
    reason = "by hand, after better was proven" if proven else "by hand, without proof"
    return change(
        rollout,
        plan,
        comparison,
        Verdict.PROMOTE,
        RolloutState.PROMOTED,
        reason,
        share=LARGEST_SHARE,
        proven=proven,
    )


def _may(rollout: Rollout, verdict: Verdict, after: RolloutState, *only: RolloutState) -> None:
    """
    Raises:
        RequestError: 409, the rollout's state does not have this change.
    """
    allowed = after in TRANSITIONS[RolloutState][rollout.state] or rollout.state in only
    if rollout.ended_at is not None or not allowed or (only and rollout.state not in only):
        raise _refusal(rollout, verdict, f"it is {rollout.state}")


def _refusal(rollout: Rollout, verdict: Verdict, why: str) -> RequestError:
    return RequestError(f"rollout {rollout.id} cannot {verdict}: {why}", status=409, code="rollout_state")


def _resume(rollout: Rollout, plan: Plan, comparison: Comparison) -> Change:
    _may(rollout, Verdict.RESUME, RolloutState.RUNNING, RolloutState.PAUSED)
    return change(rollout, plan, comparison, Verdict.RESUME, RolloutState.RUNNING, "by hand")


_DECISIONS: dict[Verdict, _Decided] = {
    Verdict.PAUSE: _moving(Verdict.PAUSE, RolloutState.PAUSED, "by hand"),
    Verdict.RESUME: _resume,
    Verdict.ADVANCE: _advance,
    Verdict.PROMOTE: _promote,
    Verdict.ABORT: _moving(Verdict.ABORT, RolloutState.ABORTED, "by hand", share=0.0),
}
