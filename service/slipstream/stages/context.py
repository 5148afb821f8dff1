"""The context of every stage: the store, the metrics, the settings, and the other stages by name."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property

from slipstream.cluster.membership import Membership
from slipstream.memory.parsing import ParseMemory
from slipstream.metrics import Metrics
from slipstream.settings.sidecar import Settings
from slipstream.stages.timers import Timers
from slipstream.stages.worker import Worker
from slipstream.store.database import Database
from slipstream.tracing.tracer import NO_TRACER, Tracer


class Stage(StrEnum):
    """A stage that others wake, by the name that it has in the log."""

    CAPTURE_WRITER = "capture_writer"
    """Writes captured exchanges to the store: `capture.writer.CaptureWriter`."""
    RECORDER = "recorder"
    """Makes calls of them: `capture.recorder.Recorder`."""
    PLANNER = "planner"
    """Decides tasks and plans their runs: `runs.planning.Planner`."""
    SHADOW = "shadow"
    """Sends planned runs to the Explorer: `runs.shadow.ShadowCaller`."""
    WEBHOOK = "webhook"
    """Tells an endpoint about planned runs: `runs.webhook.WebhookCaller`, if there is one."""
    REPLAYS = "replays"
    """Gives up agents' runs of which nothing is heard: `runs.replay.Replays`."""
    SCORER = "scorer"
    """Scores answered runs: `runs.scoring.Scorer`."""
    SERVING = "serving"
    """Writes the page that says which users the lane answers: `explorer.serving_writer.ServingWriter`."""
    COMMITTER = "committer"
    """Delivers ready groups: `delivery.triggers.CommitTriggers`."""
    NOTIFIER = "notifier"
    """Tells receivers of webhooks what was decided: `notifications.stage.Notifier`, if there are any."""
    EVALUATION = "evaluation"
    """Asks versions the cases of suites: `evaluation.stage.Evaluations`."""
    ROLLOUTS = "rollouts"
    """Decides about the current rollout: `rollouts.stage.Rollouts`."""
    EXPERIMENTS = "experiments"
    """Decides about the current experiment: `experiments.stage.Experiments`."""


RUNNERS = (Stage.SHADOW, Stage.WEBHOOK)
"""The stages that begin planned runs."""


class Stages:
    """The stages of this process, by name."""

    def __init__(self) -> None:
        self._workers: dict[Stage, Worker] = {}

    def add(self, stage: Stage, step: Callable[[], Awaitable[bool]], interval: float | None = None) -> Worker:
        """Register a stage. Its step is run when it is woken, by another stage or by the agenda.

        Args:
            interval: seconds after which it is run unasked, for a stage that has something in memory to try again.
        """
        worker = self._workers[stage] = Worker(stage, step, interval)
        return worker

    def wake(self, *stages: Stage) -> None:
        """Have the steps of these stages run. One that this process does not have is left out."""
        for stage in stages:
            if stage in self._workers:
                self._workers[stage].wake()


@dataclass(frozen=True)
class Context:
    """Shared by the stages of one sidecar.

    Attributes:
        clock: Unix seconds.
    """

    settings: Settings
    database: Database
    metrics: Metrics
    membership: Membership
    stages: Stages = field(default_factory=Stages)
    timers: Timers = field(default_factory=Timers)
    clock: Callable[[], float] = time.time
    tracer: Tracer = NO_TRACER

    @cached_property
    def parsing(self) -> ParseMemory:
        """The memory for all JSON that is read at the same time."""
        return ParseMemory(self.settings.limits.parse_memory, self.metrics)
