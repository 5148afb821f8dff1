"""Threads carry the context of whoever starts them, and jobs of thread pools that of whoever submits them.

Python does both for asyncio tasks and `asyncio.to_thread`, and for threads not before 3.14. Frameworks start threads
on their own (parallel tools, synchronous SDKs under an async agent), so `Thread.start` and `ThreadPoolExecutor.submit`
are wrapped, once, when a context is entered for the first time. Without a context they do what they always did.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from slipstream_client.context import NOTHING, Context, current, entered

T = TypeVar("T")

_carrying = False


def carry_contexts() -> None:
    """Have threads and thread pools carry the context from now on."""
    global _carrying
    if not _carrying:
        _carrying = True
        _wrap_start()
        _wrap_submit()


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


def _wrap_submit() -> None:
    submit: Callable[..., Any] = ThreadPoolExecutor.submit

    @functools.wraps(submit)
    def submit_with_context(self: ThreadPoolExecutor, function: Callable[..., T], /, *args: Any, **kwargs: Any) -> Any:
        context = _to_carry()
        if context is None:
            return submit(self, function, *args, **kwargs)
        # the worker that this may start outlives the job, and serves others: it gets no context of its own
        with entered(NOTHING):
            return submit(self, _run, context, function, *args, **kwargs)

    ThreadPoolExecutor.submit = submit_with_context  # type: ignore[method-assign, assignment]


def _to_carry() -> Context | None:
    context = current()
    return None if context is NOTHING else context


def _run(context: Context, function: Callable[..., T], /, *args: Any, **kwargs: Any) -> T:
    with entered(context):
        return function(*args, **kwargs)
