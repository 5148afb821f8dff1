"""A user's call whose guarded tools are recorded, and its replays, without a sidecar."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from slipstream_client.context import Context, entered
from slipstream_client.side_effects.recording import GuardedReplay, Recording
from slipstream_client.training.calls import Call


class Production:
    """A user's call whose replays will ask for what its tools returned, and those replays."""

    def __init__(self, task_id: str = "a") -> None:
        self.task_id = task_id
        self.recording = Recording()
        self.group: dict[object, Any] = {}

    @contextmanager
    def call(self) -> Iterator[None]:
        class Recorded(Call):
            recording = self.recording  # type: ignore[assignment]

        call = Recorded(Context(), self.task_id, None)
        with entered(Context(task_id=self.task_id, call=call)):
            yield

    @contextmanager
    def replay(self, run_id: int = 0) -> Iterator[GuardedReplay]:
        run = GuardedReplay(self.task_id, run_id, self.recording, group=self.group)
        with entered(Context(task_id=self.task_id, replay=run)):
            yield run
