"""Evaluations that people ask for, and evaluations as they are shown."""

from __future__ import annotations

from typing import Any

from sqlalchemy.ext.asyncio import AsyncSession

from slipstream.errors import ExplorerError, RequestError, SlipstreamError
from slipstream.evaluation import plans
from slipstream.evaluation.stage import Evaluations
from slipstream.settings.evaluation import Evaluation as Settings
from slipstream.settings.evaluation import Suite
from slipstream.stages.context import Context, Stage
from slipstream.store import audit, evaluations, versions
from slipstream.store.audit import Action, Author, Write
from slipstream.store.evaluations import Arm, Evaluation
from slipstream.store.states import OPEN_EVALUATIONS, EvaluationState

_MOST_CASES = 1000
"""Cases that one answer shows."""


async def ask(context: Context, stage: Evaluations, version: int | None, suite: str | None, by: Author) -> Evaluation:
    """Open an evaluation of a version that is served now.

    Args:
        version: None for the one that the Explorer serves.
        suite: None for the only one.

    Raises:
        RequestError: 404, there is no such version or suite; 409, no server serves the version, or it is being
            evaluated already; 422, the suite's cases cannot be read or scored.
    """
    chosen = _suite(context.settings.evaluation, suite)
    if version is None:
        version = await _current(stage)
    async with context.database.read() as session:
        if version not in await versions.known(session):
            raise RequestError(f"version: there is no version {version}", param="version", status=404, code="not_found")
    served = await stage.served(version)
    if served.server is None:
        raise RequestError(
            f"version {version}: expected one that is served, so that it can be asked; {served.told}",
            param="version",
            status=409,
            code="not_served",
        )
    try:
        rewards, share = context.settings.rewards, context.settings.datasets.held_out
        cases = await plans.cases_of(chosen, context.database, rewards, share)
        plans.rewards_of(rewards, cases)
    except SlipstreamError as error:
        raise RequestError(f"suite {chosen.name}: {error}", param="suite", code="cannot_evaluate") from error
    now = context.clock()
    async with context.database.write() as session:
        await _not_open(session, version, chosen.name)
        opened = await evaluations.open_(session, version, chosen.name, "hand", by.key, now)
        await audit.note(session, Write(Action.EVALUATION_ASK, str(opened.id)), by, now)
    context.stages.wake(Stage.EVALUATION)
    return opened


async def shown(session: AsyncSession, stage: Evaluations, number: int) -> dict[str, Any]:
    """An evaluation with the value of each case.

    Raises:
        RequestError: 404, there is no such evaluation.
    """
    found = await evaluations.get(session, number)
    if found is None:
        raise RequestError(f"there is no evaluation {number}", status=404, code="not_found")
    cases, answers = await evaluations.cases(session, number), await evaluations.answers(session, number)
    by_case: dict[int, dict[str, list[dict[str, Any]]]] = {}
    for key, answer in answers.items():
        arms = by_case.setdefault(key.position, {arm.value: [] for arm in Arm})
        arms[key.arm].append(
            {
                "outcome": answer.outcome,
                "reward": answer.value,
                "breakdown": dict(answer.breakdown),
                "latency": answer.latency,
            }
        )
    repeat, production = found.settings.get("repeat", 1), found.settings.get("production")
    times = 0 if production is None else 1 if production == plans.STORED else repeat
    return {
        **summary(found),
        "answered": len(answers),
        "expected": len(cases) * (repeat + times) if found.begun_at is not None else None,
        "waits": stage.waits if found.state in OPEN_EVALUATIONS else None,
        "settings": dict(found.settings),
        "cases": [
            {"case": case.name, "session": case.session, **by_case.get(case.position, {arm.value: [] for arm in Arm})}
            for case in cases[:_MOST_CASES]
        ],
    }


def summary(found: Evaluation) -> dict[str, Any]:
    """An evaluation in a few fields, with its result."""
    return {
        "id": found.id,
        "version": found.version,
        "suite": found.suite,
        "state": found.state,
        "reason": found.reason,
        "used": found.state is EvaluationState.DONE and not found.superseded,
        "trigger": found.trigger,
        "asked_by": found.asked_by,
        "server": found.server,
        "opened_at": found.opened_at,
        "begun_at": found.begun_at,
        "ended_at": found.ended_at,
        "result": found.result,
    }


def _suite(settings: Settings, name: str | None) -> Suite:
    names = ", ".join(suite.name for suite in settings.suites)
    if not settings.suites:
        raise RequestError(
            "suite: expected one of evaluation.suites in sidecar.yaml, found none there",
            param="suite",
            status=404,
            code="not_found",
        )
    if name is None and len(settings.suites) > 1:
        raise RequestError(f"suite: needed, because there are several: {names}", param="suite")
    found = settings.suites[0] if name is None else settings.suite(name)
    if found is None:
        raise RequestError(
            f"suite: expected one of {names}, found {name!r}", param="suite", status=404, code="not_found"
        )
    return found


async def _current(stage: Evaluations) -> int:
    try:
        version = await stage.current()
    except ExplorerError as error:
        raise RequestError(
            f"version: needed, because the Explorer does not say which one it serves ({error})", param="version",
            status=409, code="not_served",
        ) from error  # fmt: skip
    if version is None:
        raise RequestError(
            "version: the Explorer's engines serve several", param="version", status=409, code="not_served"
        )
    return version


async def _not_open(session: AsyncSession, version: int, suite: str) -> None:
    for one in await evaluations.listed(session, 1, version=version, suite=suite):
        if one.state in OPEN_EVALUATIONS:
            raise RequestError(
                f"evaluation {one.id} of version {version} on {suite} is {one.state}",
                status=409,
                code="evaluation_open",
            )
