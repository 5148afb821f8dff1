"""A background loop over the store: the shape that every stage after capture has.

The store holds what is to be done, so a stage is a step that does some of it and says whether more is waiting. A
stage can be killed at any moment and goes on from the store.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

import structlog
from sqlalchemy.exc import OperationalError

_log = structlog.get_logger(__name__)

_LONGEST_PAUSE = 30.0
"""Seconds between tries of a step that keeps failing (a full disk, a locked store): soon enough to notice its end."""


class Worker:
    """Runs a step again and again: at once while it reports more work, when woken, and every `interval` seconds.

    Its first step is at the start. A failed step is tried again after a pause that grows.

    Args:
        name: for logs.
        step: does some of the work; returns True when more may be waiting.
        interval: seconds between steps when nothing wakes it; None to wait until something does, such as a timer.
    """

    def __init__(self, name: str, step: Callable[[], Awaitable[bool]], interval: float | None = None) -> None:
        self._name = name
        self._step = step
        self._interval = interval
        self._wake = asyncio.Event()
        self._stopping = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def wake(self) -> None:
        """There is something to do."""
        self._wake.set()

    def start(self) -> None:
        self._task = asyncio.create_task(self._loop(), name=self._name)

    async def stop(self, patience: float = 0.0) -> None:
        """End it. A step that is under way has `patience` seconds to come to its end."""
        if self._task is None:
            return
        self._stopping.set()
        self._wake.set()
        await asyncio.wait([self._task], timeout=patience)
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        self._task = None

    async def _loop(self) -> None:
        pause = 0.0
        while not self._stopping.is_set():
            self._wake.clear()
            try:
                more = await self._step()
                pause = 0.0
            except (Exception, asyncio.CancelledError) as error:  # its work waits in the store: it outlives any error
                if _cancelled():
                    raise
                _tell(self._name, error)
                more, pause = False, min(_LONGEST_PAUSE, max(1.0, pause * 2))
            if pause or not more:
                waited_for = self._stopping if pause else self._wake
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(waited_for.wait(), pause or self._interval)


def _tell(stage: str, error: BaseException) -> None:
    """Log a failed step. While the store is away every stage fails again and again, and the traceback says nothing."""
    if isinstance(error, OperationalError):
        _log.error("stage_failed", stage=stage, error=repr(error))
    else:
        _log.exception("stage_failed", stage=stage)


def _cancelled() -> bool:
    """Return whether this task itself is to end; a CancelledError can also come from what a step waited for."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
