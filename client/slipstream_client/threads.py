"""Threads carry the context of whoever starts them, and jobs of pools that of whoever submits them.

Python does both for asyncio tasks and `asyncio.to_thread`, and for threads not before 3.14. Frameworks start threads
on their own (parallel tools, synchronous SDKs under an async agent), so `Thread.start`, the `submit` of thread and
process pools, and the `add_done_callback` of their futures are wrapped, once, when a context is entered for the first
time. Without a context they do what they always did.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from typing import Any, TypeVar

from slipstream_client.context import NOTHING, Context, Replay, current, entered

T = TypeVar("T")

_carrying = False


def carry_contexts() -> None:
    """Have threads and pools carry the context from now on."""
    global _carrying
    if not _carrying:
        _carrying = True
        _wrap_start()
        _wrap_callbacks()
        _wrap_submit(ThreadPoolExecutor, lambda context: context)
        with suppress(ImportError):  # where Python has no processes
            from concurrent.futures import ProcessPoolExecutor

            _wrap_submit(ProcessPoolExecutor, _sendable)


def _wrap_start() -> None:
    start = threading.Thread.start

    @functools.wraps(start)
    def start_with_context(self: threading.Thread) -> None:
        context = _to_carry()
        if context is not None:
            run = self.run

            def run_with_context() -> None:
                try:
                    _run(context, run)
                finally:
                    self.__dict__.pop("run", None)  # it refers to the thread, which would not be freed

            self.run = run_with_context  # type: ignore[method-assign]
        start(self)

    threading.Thread.start = start_with_context  # type: ignore[method-assign]


def _wrap_submit(kind: type[Executor], carried: Callable[[Context], Context]) -> None:
    submit: Callable[..., Any] = kind.submit

    @functools.wraps(submit)
    def submit_with_context(self: Executor, function: Callable[..., T], /, *args: Any, **kwargs: Any) -> Any:
        context = _to_carry()
        if context is None:
            return submit(self, function, *args, **kwargs)
        # the worker that this may start outlives the job, and serves others: it gets no context of its own
        with entered(NOTHING):
            return submit(self, _run, carried(context), function, *args, **kwargs)

    kind.submit = submit_with_context  # type: ignore[method-assign, assignment]


def _wrap_callbacks() -> None:
    """A worker calls them when the job is over, and is outside of its context by then."""
    add = Future.add_done_callback

    @functools.wraps(add)
    def add_with_context(self: Future[T], fn: Callable[[Future[T]], object]) -> None:
        context = _to_carry()
        add(self, fn if context is None else functools.partial(_run, context, fn))

    Future.add_done_callback = add_with_context  # type: ignore[method-assign, assignment]


def _sendable(context: Context) -> Context:
    """What another process can make use of: it cannot tell this one of its calls, nor ask for what was recorded."""
    replay = context.replay
    return replace(context, block=None, call=None, replay=replay and Replay(replay.task_id, replay.run_id))


def _to_carry() -> Context | None:
    context = current()
    return None if context is NOTHING else context


def _run(context: Context, function: Callable[..., T], /, *args: Any, **kwargs: Any) -> T:
    with entered(context):
        return function(*args, **kwargs)
