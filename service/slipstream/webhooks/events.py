"""Types of the events that webhooks tell of."""

from __future__ import annotations

from enum import StrEnum


class EventType(StrEnum):
    """Kind of an event."""

    VERSION_CANDIDATE = "version.candidate"
    """A rollout of a version was opened."""
    ROLLOUT_STARTED = "rollout.started"
    """The first users were assigned to it."""
    ROLLOUT_ADVANCED = "rollout.advanced"
    ROLLOUT_HOLDING = "rollout.holding"
    """Its step is over, and something is missing."""
    ROLLOUT_PAUSED = "rollout.paused"
    ROLLOUT_RESUMED = "rollout.resumed"
    ROLLOUT_PROMOTED = "rollout.promoted"
    ROLLOUT_ROLLED_BACK = "rollout.rolled_back"
    ROLLOUT_ABORTED = "rollout.aborted"
    ROLLOUT_REPLACED = "rollout.replaced"
    """Another version takes the place of the live one."""
    EXPERIMENT_STARTED = "experiment.started"
    """The first users were assigned to its arms."""
    EXPERIMENT_ENDED = "experiment.ended"
    EXPERIMENT_SWITCHED = "experiment.switched"
    """Its version answers the users, by a rollout."""
    EVALUATION_ENDED = "evaluation.ended"
    SERVING_KILLED = "serving.killed"
    SERVING_REVIVED = "serving.revived"
