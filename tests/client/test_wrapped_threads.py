"""Threads that other programs wrap too, as OpenTelemetry and Sentry do: both work, whichever came first."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial, wraps
from typing import Any

import pytest

import slipstream_client as slipstream
from slipstream_client import threads
from slipstream_client.patching import Patches

TELEMETRY = ((threading.Thread, "start"), (threading.Timer, "start"), (ThreadPoolExecutor, "submit"))
"""The methods that OpenTelemetry's `ThreadingInstrumentor` wraps, in its order."""


class FunctionWrapper:
    """Binds as wrapt's: a call of what stands in the class's `__dict__` has no instance."""

    def __init__(self, wrapped: Any, bound: tuple[FunctionWrapper, Any] | None = None) -> None:
        self.__wrapped__ = wrapped
        self._bound = bound

    def __get__(self, instance: Any, owner: type) -> FunctionWrapper:
        parent = self._bound[0] if self._bound else self
        return FunctionWrapper(parent.__wrapped__.__get__(instance, owner), (parent, instance))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        instance = self._bound[1] if self._bound else None
        wrapped = self.__wrapped__
        if self._bound and instance is None:  # called on the class
            instance, *args = args  # type: ignore[assignment]
            wrapped = partial(wrapped, instance)
        instance.traced = True
        return wrapped(*args, **kwargs)


def wrap_by_telemetry() -> None:
    for owner, name in TELEMETRY:
        raw = next(vars(base)[name] for base in owner.__mro__ if name in vars(base))
        setattr(owner, name, FunctionWrapper(raw))


def unwrap_by_telemetry() -> None:
    for owner, name in TELEMETRY:
        if isinstance(found := getattr(owner, name), FunctionWrapper):
            setattr(owner, name, found.__wrapped__)


def wrap_by_sentry() -> None:
    start: Any = threading.Thread.start

    def wrapped(run: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(run)
        def run_in_scope(*args: Any) -> Any:
            return run(threading.current_thread(), *args[1:])

        return run_in_scope

    def start_in_scope(self: threading.Thread) -> None:
        self.run = wrapped(getattr(self.run, "__func__", self.run))  # type: ignore[method-assign]
        start(self)

    threading.Thread.start = start_in_scope  # type: ignore[method-assign]


@pytest.fixture(autouse=True)
def restored(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(threads, "_patches", Patches(threads._patched))
    before = [(owner, name, vars(owner).get(name)) for owner, name in TELEMETRY]
    yield
    for owner, name, method in before:
        if method is not None:
            setattr(owner, name, method)
        elif name in vars(owner):
            delattr(owner, name)


def labels_seen() -> list[tuple[str, ...]]:
    """The labels that a thread, a thread with a `run` of its own, a timer and a pool's job see inside of a mark."""
    seen: list[tuple[str, ...]] = []

    def see() -> None:
        seen.append(slipstream.current().labels)

    class Own(threading.Thread):
        def run(self) -> None:
            see()

    with slipstream.mark("a"):
        for thread in (threading.Thread(target=see), Own(), threading.Timer(0, see)):
            thread.start()
            thread.join(10)
        with ThreadPoolExecutor(1) as pool:
            pool.submit(see).result(10)
    return seen


CARRIED, NOT = [("a",)] * 4, [()] * 4

ORDERS = (
    "theirs on, ours on, ours off, theirs off",
    "theirs on, ours on, theirs off, ours off",
    "ours on, theirs on, ours off, theirs off",
    "ours on, theirs on, theirs off, ours off",
)


@pytest.mark.parametrize("order", ORDERS)
def test_methods_that_opentelemetry_wraps_work_in_any_order(order: str) -> None:
    steps = {
        "theirs on": wrap_by_telemetry,
        "theirs off": unwrap_by_telemetry,
        "ours on": slipstream.instrument_threads,
        "ours off": slipstream.uninstrument_threads,
    }
    ours = theirs = False
    for step in (order + ", ours on, ours off").split(", "):
        steps[step]()
        ours = ours if "theirs" in step else step == "ours on"
        theirs = theirs if "ours" in step else step == "theirs on"
        assert labels_seen() == (CARRIED if ours else NOT), step
        thread = threading.Thread(target=int)  # outside of any block
        thread.start()
        assert hasattr(thread, "traced") or not theirs


def test_a_timer_that_another_program_wraps_runs_in_its_replay() -> None:
    sent: list[str] = []

    @slipstream.tool(side_effects=True)
    def send(to: str) -> None:
        sent.append(to)

    wrap_by_telemetry()
    with slipstream.replay("order-17", 0) as run:
        timer = threading.Timer(0, send, args=("a@b",))
        timer.start()
        timer.join(10)
    assert sent == []
    assert [effect.tool for effect in run.side_effects] == ["send"]


@pytest.mark.parametrize("first", ["theirs", "ours"])
def test_threads_run_where_sentry_hands_the_thread_to_run(first: str) -> None:
    if first == "theirs":
        wrap_by_sentry()
        slipstream.instrument_threads()
    else:
        slipstream.instrument_threads()
        wrap_by_sentry()
    assert labels_seen() == CARRIED
    slipstream.uninstrument_threads()
    assert labels_seen() == NOT


def test_threads_are_instrumented_where_gevent_has_put_classes_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    class Thread(threading.Thread):
        pass

    class Timer(Thread, threading.Timer):
        pass

    monkeypatch.setattr(threading, "Thread", Thread)
    monkeypatch.setattr(threading, "Timer", Timer)
    slipstream.instrument_threads()
    assert labels_seen() == CARRIED
    slipstream.uninstrument_threads()
    assert labels_seen() == NOT
