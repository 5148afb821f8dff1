"""Retention: what is due is deleted, and what waited too long is told so."""

from __future__ import annotations

from collections.abc import Callable

import structlog

from slipstream.metrics import Metrics
from slipstream.store import (
    audit,
    erasure,
    facade,
    feedback,
    outbox,
    page_sessions,
    preferences,
    quarantine,
    rollout_units,
    tasks,
    units,
)
from slipstream.store.database import Database
from slipstream.store.rollout_units import OF_EXPERIMENTS, OF_ROLLOUTS

_log = structlog.get_logger(__name__)

FEEDBACK_WAIT = 3600.0
"""Seconds that feedback waits for the answer it names. An answer is stored when its stream has ended, and an agent
that streams may send feedback before that; no stream lasts an hour."""

UNITS_KEPT = 90 * 86400.0
"""Seconds that the outcomes of a unit are kept after its last request, longer than a comparison of versions takes, and
its values after the end of the rollout or experiment that counted it."""

PREFERENCES_KEPT = 90 * 86400.0
"""Seconds that what annotators chose is kept after the last judgement of a pair, as numbers; the answers that they saw
are deleted with their task."""

DELETIONS_KEPT = max(FEEDBACK_WAIT, UNITS_KEPT, PREFERENCES_KEPT)
"""Seconds that a deletion on request is remembered at least: as long as anything is kept that outlives its task, and
that a backup of before would bring back."""

_BATCH = 200
"""Tasks, posts of feedback or marks deleted in one transaction: about 10 ms, so that other writers get their turn."""


class Retention:
    """Deletes tasks, with all that hangs on them, feedback, and what the facade keeps, once nobody touched them for
    `retention` seconds, entries of the audit after `audit_retention`, and events that no receiver took."""

    def __init__(
        self,
        database: Database,
        metrics: Metrics,
        *,
        retention: float,
        audit_retention: float,
        clock: Callable[[], float],
    ) -> None:
        self._database = database
        self._metrics = metrics
        self._retention = retention
        self._audit_retention = audit_retention
        self._clock = clock
        self._deleted_tasks = self._deleted_feedback = 0

    async def step(self) -> bool:
        """Delete a batch. Returns True when more may be due."""
        now = self._clock()
        async with self._database.write() as session:
            await tasks.expire_marks(session, now)
            await feedback.give_up_waiting(session, now - FEEDBACK_WAIT)
            erased = await erasure.go_on(session, now)
            forgotten = await erasure.forget_older(session, now - max(self._retention, DELETIONS_KEPT))
            deleted, expired = await tasks.delete_older(session, now - self._retention, _BATCH)
            apart = await quarantine.delete_older(session, now - self._retention, _BATCH)
            marks = await tasks.delete_older_marks(session, now - self._retention, _BATCH)
            posts = await feedback.delete_older(session, now - self._retention, _BATCH)
            passed, dropped = await facade.delete_older(session, now - self._retention, _BATCH, now)
            entries = await audit.prune(session, now - self._audit_retention, now, _BATCH)
            outcomes = await units.delete_older(session, now - UNITS_KEPT, _BATCH)
            counted = await rollout_units.delete_older(session, OF_ROLLOUTS, now - UNITS_KEPT, _BATCH)
            compared = await rollout_units.delete_older(session, OF_EXPERIMENTS, now - UNITS_KEPT, _BATCH)
            pairs = await preferences.delete_older(session, now - PREFERENCES_KEPT, _BATCH)
            signed_in = await page_sessions.delete_expired(session, now, _BATCH)
            events, untold = await outbox.drop(session, now, _BATCH)
        self._metrics.groups.labels("dropped").inc(dropped)
        self._metrics.groups.labels("erased").inc(sum(one.undelivered for one in erased))
        self._metrics.groups.labels("expired").inc(expired)
        self._deleted_tasks += deleted
        self._deleted_feedback += posts
        if dropped:
            _log.warning("facade_groups_dropped_by_retention", groups=dropped)
        for receiver, count in untold.items():
            self._metrics.webhook_deliveries.labels(receiver, "dropped").inc(count)
            _log.warning("webhook_events_dropped", receiver=receiver, events=count)
        if expired:
            _log.warning("groups_expired", groups=expired)
        kept_for_a_time = (outcomes, counted, compared, pairs, signed_in, events)
        batches = (deleted, apart, marks, posts, passed, entries, *kept_for_a_time)
        if any(batches) or forgotten or any(count for one in erased for count in one.rows.values()):
            self._database.unscrubbed = True
        more = _BATCH in batches
        if more:  # what follows is done once a sweep, which may take many batches
            return True
        if self._deleted_tasks or self._deleted_feedback:
            _log.info("retention", deleted_tasks=self._deleted_tasks, deleted_feedback=self._deleted_feedback)
            self._deleted_tasks = self._deleted_feedback = 0
        if self._database.unscrubbed:
            await self._database.scrub()
        return False
