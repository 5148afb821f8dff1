"""Workers that take jobs from a queue: one that a replay has started is let go when production gives it a job.

A thread, or an asyncio task, that a replay has started stays a part of it, also after its end: it may be about to
repeat a write. A worker with a queue of its own, started by the first call that needs it, serves everybody, and this is
how it is told apart: after the end of the replay, the thread's own function (or the task's own coroutine) takes
something that was put into its queue outside of any replay. What is taken further down is not a job: it may be a
connection from a pool, on the way to a write.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from contextvars import ContextVar
from types import FrameType
from typing import Any

from slipstream_client.context import Replay, current, let_go
from slipstream_client.patching import Patch

logger = logging.getLogger("slipstream_client")

_lock = threading.Lock()

_REPLAYED = "_slipstream_replayed"
"""Attribute of a queue: how many times it holds an object that a replay has put there, by the object's id."""

_STACKS = (queue.LifoQueue, asyncio.LifoQueue)
"""Types of queues that connection pools are made of, such as urllib3's and asyncpg's. Jobs do not wait in them: they
would be done in the reverse order."""

_TAKEN = (
    "run %s of task %s is going on, and a thread or a task that it has started took something from a queue that was "
    "put there outside of any replay. If that is a user's job, its writes are blocked. Start workers that serve "
    "several calls outside of replays: 'Threads and tasks' in docs/client.md (said once a worker)"
)

_said: ContextVar[tuple[int, str] | None] = ContextVar("slipstream_said", default=None)
"""The run for which this thread, or this task, has said so."""

_BELOW = frozenset(
    {"queue", "asyncio.queues", "asyncio.tasks", "slipstream_client.queues", "slipstream_client.patching"}
)
"""Modules whose functions stand between a worker and `get`: `get_nowait`, `wait_for`, and ours."""


def patched() -> Iterator[Patch]:
    # `put_nowait` and `get_nowait` of the one call `put` and `get`; with the other it is the other way around
    yield Patch(queue.Queue, "put", _put)
    yield Patch(queue.Queue, "get", _get)
    yield Patch(asyncio.Queue, "put_nowait", _put)
    yield Patch(asyncio.Queue, "get_nowait", _get)


def _put(put: Callable[..., None]) -> Callable[..., None]:
    def put_of_replay(self: Any, item: Any, *args: Any, **kwargs: Any) -> None:
        if current().replay is None:
            return put(self, item, *args, **kwargs)
        _count(self, item, 1)
        try:
            return put(self, item, *args, **kwargs)
        except BaseException:
            _count(self, item, -1)
            raise

    return put_of_replay


def _get(get: Callable[..., Any]) -> Callable[..., Any]:
    def get_job(self: Any, *args: Any, **kwargs: Any) -> Any:
        item = get(self, *args, **kwargs)
        if not _count(self, item, -1):
            context = current()
            if context.replay is not None and not isinstance(self, _STACKS) and _is_by_worker():
                if context.ended:
                    let_go()
                else:  # it may be a token on the way to a write of the replay itself, so it is not let go
                    _say_that_it_is_blocked(context.replay)
        return item

    return get_job


def _say_that_it_is_blocked(replay: Replay) -> None:
    run = replay.run_id, replay.task_id
    if _said.get() != run:
        _said.set(run)
        logger.error(_TAKEN, *run)


def _is_by_worker() -> bool:
    """Return True if `get` is called by the function of this thread, or by the coroutine of this task, itself."""
    caller: FrameType | None = sys._getframe(1)
    while caller is not None and caller.f_globals.get("__name__") in _BELOW:
        caller = caller.f_back
    if caller is None:
        return False
    with suppress(RuntimeError):  # no event loop runs in this thread
        if (task := asyncio.current_task()) is not None:
            return getattr(task.get_coro(), "cr_frame", None) is caller
    if isinstance(threading.current_thread(), threading.Timer):  # it calls its function once: it is no worker
        return False
    outer = caller.f_back
    while outer is not None and outer.f_globals.get("__name__") == "slipstream_client.threads":
        outer = outer.f_back
    return (
        outer is not None
        and outer.f_globals.get("__name__") == "threading"
        and outer.f_code.co_name in ("run", "_bootstrap_inner")
    )


def _count(owner: Any, item: Any, change: int) -> bool:
    """Count an object that a replay puts or that is taken out. Returns whether it was a replay's."""
    counts: dict[int, int] = owner.__dict__.get(_REPLAYED) or {}
    if not counts and change < 0:
        return False
    with _lock:
        counts = owner.__dict__.setdefault(_REPLAYED, {})
        before = counts.pop(id(item), 0)
        if before + change > 0:
            counts[id(item)] = before + change
        return before > 0
