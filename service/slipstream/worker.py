"""A background loop over the store: the shape that every stage after capture has.

The store holds what is to be done, so a stage is a step that does some of it and says whether more is waiting. A
stage can be killed at any moment and goes on from the store.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

import structlog

_log = structlog.get_logger(__name__)

_LONGEST_PAUSE = 30.0
"""Seconds between tries of a step that keeps failing (a full disk, a locked store): soon enough to notice its end."""


class Worker:
    """Runs a step again and again: at once while it reports more work, when woken, and every `interval` seconds.

    Args:
        name: for logs.
        step: does some of the work; returns True when more may be waiting.
        interval: seconds between steps when nothing wakes it.
    """

    def __init__(self, name: str, step: Callable[[], Awaitable[bool]], interval: float) -> None:
        self._name = name
        self._step = step
        self._interval = interval
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def wake(self) -> None:
        """There is something to do."""
        self._wake.set()

    def start(self) -> None:
        self._task = asyncio.create_task(self._loop(), name=self._name)

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    async def _loop(self) -> None:
        pause = 0.0
        while True:
            self._wake.clear()
            try:
                more = await self._step()
                pause = 0.0
            except Exception:  # noqa: BLE001 - a stage outlives any error, for its work waits in the store
                _log.exception("stage_failed", stage=self._name)
                more, pause = False, min(_LONGEST_PAUSE, max(1.0, pause * 2))
            if pause:
                await asyncio.sleep(pause)
            elif not more:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._wake.wait(), self._interval)
