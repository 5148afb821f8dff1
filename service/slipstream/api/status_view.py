"""The status of a sidecar: everything at a glance, read from the store and from the stages."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

from sqlalchemy.ext.asyncio import AsyncSession

from slipstream import __version__
from slipstream.access.scope import Scope
from slipstream.api.costs import total
from slipstream.doctor import live
from slipstream.doctor.findings import Finding
from slipstream.doctor.moment import Moment
from slipstream.sidecar import Sidecar
from slipstream.store import feedback_keys, outbox, token_days
from slipstream.store.constant_components import constant_components
from slipstream.store.feedback_keys import KeyFeedback
from slipstream.store.health import Health, health
from slipstream.store.outbox import Waiting
from slipstream.store.overview import overview

_NOT_TOLD = "(told to a key with the role metrics or admin, because it can quote an answer)"


async def status_view(sidecar: Sidecar, scope: Scope) -> dict[str, Any]:
    """Content of GET /status, as far as a caller may see it.

    Raises:
        SQLAlchemyError, OSError: the store does not answer.
    """
    version = sidecar.watch.version  # read once: it may change while the store is asked
    async with sidecar.database.read() as session:
        recently, problems = await look(sidecar, session, version, scope.tenant, reasons=scope.reasons)
        found = await overview(session, scope.tenant)
        receivers = await _receivers(sidecar, session, scope.tenant)
        today = (await token_days.since(session, token_days.day_of(time.time()), scope.tenant)).values()
    if not scope.reasons:
        for failed in (*found["failed_runs"], *found["facade"]["failed_groups"]):
            failed["reason"] = None
    now, settings, webhook = time.time(), sidecar.settings, sidecar.runs.webhook
    served = recently.served
    next_at = sidecar.next_commit_at
    return {
        "slipstream": __version__,
        "problems": [problem.as_dict() for problem in problems],
        "explorer": {"up": sidecar.watch.up, "breaker": sidecar.runs.breaker.state, "error": sidecar.watch.error},
        "webhook": None if webhook is None else {"breaker": webhook.breaker.state, "error": webhook.error},
        "webhooks": [
            {
                "receiver": each.receiver,
                "waiting": each.count,
                "oldest_seconds": None if each.since is None else round(max(0.0, now - each.since), 1),
                "error": each.error,
            }
            for each in receivers
        ],
        "policy": {
            "version": version,
            "changed_at": None if served is None else served.seen_at,
            "rolled_back_from": None if served is None else served.rolled_back_from,
            "trained_on_commits_up_to": None if served is None else served.last_commit,
        },
        "next_commit": {
            "at": None if next_at is None else round(next_at, 1),
            "in_seconds": None if next_at is None else round(max(0.0, next_at - now), 1),
            "experiences_ready": found.pop("experiences_ready"),
            "min_experiences": settings.commit.min_experiences,
            "max_pending": settings.commit.max_pending,
        },
        "training": {
            "experiences_since_version": None if served is None else served.experiences_since,
            "train_batch_size": settings.explorer.train_batch_size,
        },
        "traffic": sidecar.traffic.figures(),
        "capture": {"waiting": sidecar.waiting},
        "runs_active": sidecar.runs.shadow.active,
        "today": {"currency": settings.costs.currency, **total(settings.costs, next(iter(today), {}))},
        "budget": {"runs": sidecar.runs.budget.as_dict(), "judge": sidecar.judging.as_dict()},
        **found,
        "experiences_delivered": recently.delivered,
    }


async def feedback_by_key(sidecar: Sidecar, session: AsyncSession) -> list[KeyFeedback]:
    """The feedback of each key, compared with the others'."""
    low, high = sidecar.settings.rewards.clip
    return await feedback_keys.by_key(session, high - low)


async def _receivers(sidecar: Sidecar, session: AsyncSession, tenant: str | None) -> list[Waiting]:
    """Find what receivers of webhooks wait for. They are told of versions, which are of all tenants: a key of one sees
    none."""
    return [] if tenant is not None else await outbox.waiting(session, sidecar.notifier.receivers)


async def look(
    sidecar: Sidecar, session: AsyncSession, version: int | None, tenant: str | None = None, *, reasons: bool = True
) -> tuple[Health, list[Finding]]:
    """Read the recent past from the store, and find what is wrong.

    Args:
        reasons: whether findings say why runs and groups failed, which can quote what was said.
    """
    now, watch, webhook = time.time(), sidecar.watch, sidecar.runs.webhook
    recently = await health(session, version, recent=now - live.RECENT, old=now - live.STALE, tenant=tenant)
    if not reasons:
        outcomes = replace(recently.outcomes, failure=_NOT_TOLD, scoring_failure=_NOT_TOLD)
        recently = replace(recently, facade_reason=_NOT_TOLD, outcomes=outcomes)
    moment = Moment(
        now=now,
        settings=sidecar.settings,
        explorer_up=watch.up,
        explorer_error=watch.error,
        explorer_since=watch.since,
        breaker=sidecar.runs.breaker.state,
        webhook="closed" if webhook is None else webhook.breaker.state,
        webhook_error=None if webhook is None else webhook.error,
        versions=(version, watch.newest),
        apart_since=watch.apart_since,
        dropped_at=sidecar.counters.dropped_at,
        waiting=sidecar.waiting,
        store_full=sidecar.capture.store_full,
        health=recently,
        outcomes=sidecar.outcomes.outcomes(),
        published=(sidecar.versions.published, sidecar.versions.published_at),
        lane_steps=sidecar.serving.steps,
        other_version=None if sidecar.answered_by is None else sidecar.answered_by.other,
        constant=await constant_components(session, sidecar.settings.rewards.judging),
        expiring=sidecar.key_expiry.expiring(tenant),
        # of all tenants' keys, so not for one of them
        feedback=() if tenant is not None else await feedback_by_key(sidecar, session),
        receivers=await _receivers(sidecar, session, tenant),
    )
    return recently, live.problems(moment)
