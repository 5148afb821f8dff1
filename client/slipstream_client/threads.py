"""Threads carry the context of the code that starts them, and jobs of pools that of the code that submits them.

Python does both for asyncio tasks and `asyncio.to_thread`, and for threads not before 3.14. Frameworks start threads
on their own (parallel tools, synchronous SDKs under an async agent). `instrument_threads` wraps the methods of Python's
own classes by which they do, until `uninstrument_threads`; outside of blocks they do what they always did.
"""

from __future__ import annotations

import logging
import multiprocessing.pool
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from types import MethodType
from typing import Any, TypeVar

from slipstream_client import queues
from slipstream_client.context import NOTHING, Context, Replay, Scope, carried, current, entered, handle
from slipstream_client.greenlets import Greenlets
from slipstream_client.patching import Installable, Patch, Patches

logger = logging.getLogger("slipstream_client")

T = TypeVar("T")

_POOLS = {
    "concurrent.futures.thread",
    "multiprocessing.pool",
    "anyio._backends._asyncio",
    "trio._core._thread_cache",
}
"""Modules whose threads serve everybody's jobs. anyio and trio run each in a copy of its caller's context."""


def instrument_threads() -> None:
    """Have threads and pools carry the context from now on: of marks, `never()` and replays.

    A `TrainingRunner` and `replay` do so while they last. Call it once, when the program starts, to have marks reach
    threads without them. Calls are counted: each has its `uninstrument_threads`.
    """
    _patches.hold()


def uninstrument_threads() -> None:
    """Take back one call of `instrument_threads`. With the last one Python's own methods are back in their places.

    A method that another program has wrapped meanwhile stays wrapped by both, and ours does nothing; the log says so.

    Raises:
        RuntimeError: there were not as many calls of `instrument_threads`.
    """
    _patches.release()


@contextmanager
def instrumented() -> Iterator[None]:
    """A block in which threads and pools carry the context."""
    _patches.hold()
    try:
        yield
    finally:
        _patches.release()


def _patched() -> Iterator[Installable]:
    # a Timer has a method of its own where OpenTelemetry has wrapped it, which passes ours by; gevent's classes inherit
    for owner in dict.fromkeys((*threading.Timer.__mro__, *threading.Thread.__mro__)):
        yield Patch(owner, "start", _start)
    yield Patch(Future, "add_done_callback", _add_done_callback)
    yield Patch(ThreadPoolExecutor, "submit", _submit)
    with suppress(ImportError):  # where Python has no processes
        from concurrent.futures import ProcessPoolExecutor

        yield Patch(ProcessPoolExecutor, "submit", _submit_to_process)
    for name in ("apply_async", "_map_async", "imap", "imap_unordered"):
        yield Patch(multiprocessing.pool.Pool, name, _submit_to_thread_pool)
    yield Patch(multiprocessing.pool.ApplyResult, "__init__", _expect_result)
    yield from queues.patched()
    yield Greenlets(_submit)


_patches = Patches(_patched)


def _start(start: Callable[..., None]) -> Callable[..., None]:
    def start_with_scope(self: threading.Thread) -> None:
        scope = handle()
        if scope is None:
            return start(self)
        if {type(self).__module__, getattr(getattr(self, "_target", None), "__module__", None)} & _POOLS:
            with carried(None):
                return start(self)
        run = self.run

        def run_with_scope(_: threading.Thread) -> None:
            try:
                if scope.context().replay is None:
                    _run(scope, run)
                else:
                    with instrumented():  # what this thread starts belongs to the replay too, also after its end
                        _run(scope, run)
            finally:
                self.__dict__.pop("run", None)  # it refers to the thread, which would not be freed

        # a method, as the one that it replaces: Sentry calls the function of it, with the thread
        self.run = MethodType(run_with_scope, self)  # type: ignore[method-assign]
        return start(self)

    return start_with_scope


def _add_done_callback(add: Callable[..., None]) -> Callable[..., None]:
    """A worker calls them when the job is over, and is outside of its scope by then."""

    def add_with_scope(self: Future[T], fn: Callable[[Future[T]], object]) -> None:
        scope = handle()
        add(self, fn if scope is None else lambda future: _run(scope, fn, future))

    return add_with_scope


def _submit(submit: Callable[..., Any]) -> Callable[..., Any]:
    def submit_with_scope(self: Executor, function: Callable[..., T], /, *args: Any, **kwargs: Any) -> Any:
        scope = handle()
        if scope is None:
            return submit(self, function, *args, **kwargs)
        # the worker that this may start outlives the job, and serves others: it gets no scope of its own
        with carried(None):
            return submit(self, _run, scope, function, *args, **kwargs)

    return submit_with_scope


def _submit_to_process(submit: Callable[..., Any]) -> Callable[..., Any]:
    def submit_with_context(self: Executor, function: Callable[..., T], /, *args: Any, **kwargs: Any) -> Any:
        context = current()
        if context is NOTHING:
            return submit(self, function, *args, **kwargs)
        with carried(None):
            return submit(self, _run_in_process, _sendable(context), function, *args, **kwargs)

    return submit_with_context


def _submit_to_thread_pool(submit: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap `multiprocessing.pool.Pool`'s submit: in a `ThreadPool` each job runs in the scope of its caller."""

    def submit_with_scope(self: Any, func: Callable[..., T], *args: Any, **kwargs: Any) -> Any:
        scope = handle()
        if scope is None or not isinstance(self, multiprocessing.pool.ThreadPool):
            return submit(self, func, *args, **kwargs)
        return submit(self, lambda *given, **named: _run(scope, func, *given, **named), *args, **kwargs)

    return submit_with_scope


def _expect_result(init: Callable[..., None]) -> Callable[..., None]:
    """Wrap the making of a result that callbacks wait for, of any pool of `multiprocessing`.

    The thread that calls them belongs to all who use the pool.
    """

    def init_with_scope(self: Any, pool: Any, callback: Any, error_callback: Any) -> None:
        scope = handle()
        if scope is not None:
            callback = callback and partial(_call_back, scope, callback)
            error_callback = error_callback and partial(_call_back, scope, error_callback)
        init(self, pool, callback, error_callback)

    return init_with_scope


def _call_back(scope: Scope, callback: Callable[[Any], object], result: Any) -> None:
    try:
        _run(scope, callback, result)
    except Exception:
        if scope.context().replay is None:
            raise
        # it would end the thread, and production's jobs would have no results: a callback that is blocked raises
        logger.exception("a callback of a pool's job raised in a replay")


def _sendable(context: Context) -> Context:
    """The part of a context that another process can use: it cannot tell this one of its calls."""
    replay = context.replay
    return replace(context, block=None, call=None, replay=replay and Replay(replay.task_id, replay.run_id))


def _run(scope: Scope, function: Callable[..., T], /, *args: Any, **kwargs: Any) -> T:
    with carried(scope):
        return function(*args, **kwargs)


def _run_in_process(context: Context, function: Callable[..., T], /, *args: Any, **kwargs: Any) -> T:
    with entered(context):
        return function(*args, **kwargs)
