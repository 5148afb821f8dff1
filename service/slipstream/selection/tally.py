"""Decisions counted, once they are stored: who asks why nothing is selected finds the answer there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

import structlog

from slipstream.metrics import Metrics
from slipstream.selection.decision import Decision

_log = structlog.get_logger(__name__)


def tally(metrics: Metrics, decisions: Collection[tuple[str, Decision]]) -> None:
    """Count what was decided on these tasks, each with its id."""
    outcomes = Counter((decision.selected, decision.reason) for _, decision in decisions)
    for (selected, reason), times in outcomes.items():
        metrics.decisions.labels(str(selected).lower(), reason).inc(times)
    for task_id, decision in decisions:
        if decision.selected:
            _log.debug("task_selected", task_id=task_id, reason=decision.reason)
