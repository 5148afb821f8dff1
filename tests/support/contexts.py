"""A context for stages that a test makes one by one."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from prometheus_client import CollectorRegistry

from slipstream.cluster.membership import Membership
from slipstream.cluster.registration import Registration
from slipstream.memory.parsing import ParseMemory
from slipstream.metrics import Metrics
from slipstream.settings.sidecar import Settings
from slipstream.stages.context import Context, Stage, Stages
from slipstream.store.database import Database


class WokenStages(Stages):
    """Notes which stages are woken, in their order."""

    def __init__(self) -> None:
        super().__init__()
        self.woken: list[Stage] = []

    def wake(self, *stages: Stage) -> None:
        self.woken += stages


async def _registered(sidecar: int) -> None:
    """Nobody waits for it."""


def context(
    database: Database, metrics: Metrics, clock: Callable[[], float] = time.time, **sections: Any
) -> tuple[Context, WokenStages]:
    """A context with the settings of these sections, and its stages."""
    membership = Membership(
        database, name="test", lease=60, clock=clock, monotonic=time.monotonic, before=Registration(),
        registered=_registered, took_over=lambda taken: None,
    )  # fmt: skip
    stages = WokenStages()
    return Context(Settings.model_validate(sections), database, metrics, membership, stages, clock=clock), stages


def parse_memory(size: int = 256 * 1024**2) -> ParseMemory:
    """Memory for JSON of its own, with metrics that nobody looks at."""
    return ParseMemory(size, Metrics(CollectorRegistry()))
