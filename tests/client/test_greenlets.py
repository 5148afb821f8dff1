"""Greenlets and pools of gevent, which begins a greenlet with no context variables."""

from __future__ import annotations

import contextvars
import queue
import sys
import threading
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any, ClassVar

import pytest

import slipstream_client as slipstream
from slipstream_client import threads
from slipstream_client.patching import Patches


class Greenlet:
    """As gevent's, which runs when its hub is switched to: here when it is joined."""

    callbacks: ClassVar[set[Callable[[Greenlet], object]]] = set()

    def __init__(self, function: Callable[..., Any], *args: Any) -> None:
        self.gr_context: contextvars.Context | None = None
        self._work = function, *args

    def start(self) -> None:
        for callback in self.callbacks:
            callback(self)

    def join(self) -> None:
        (self.gr_context or contextvars.Context()).run(*self._work)

    @classmethod
    def add_spawn_callback(cls, callback: Callable[[Greenlet], object]) -> None:
        cls.callbacks.add(callback)

    @classmethod
    def remove_spawn_callback(cls, callback: Callable[[Greenlet], object]) -> None:
        cls.callbacks.discard(callback)


class ThreadPool:
    """As gevent's, whose native threads take jobs from a queue of its own."""

    def __init__(self) -> None:
        self._jobs: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def spawn(self, func: Callable[..., Any], *args: Any, **kwargs: Any) -> threading.Event:
        done = threading.Event()
        self._jobs.put((func, args, kwargs, done))
        return done

    def close(self) -> None:
        self._jobs.put(None)
        self._thread.join(10)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            func, args, kwargs, done = job
            func(*args, **kwargs)
            done.set()


sent: list[str] = []


@slipstream.tool(side_effects=True)
def send(to: str) -> None:
    sent.append(to)


@pytest.fixture(autouse=True)
def process(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(threads, "_patches", Patches(threads._patched))
    sent.clear()
    yield
    assert not Greenlet.callbacks


@pytest.fixture
def gevent_imported(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    def imported() -> None:
        gevent, threadpool = ModuleType("gevent"), ModuleType("gevent.threadpool")
        gevent.Greenlet, threadpool.ThreadPool = Greenlet, ThreadPool  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "gevent", gevent)
        monkeypatch.setitem(sys.modules, "gevent.threadpool", threadpool)

    return imported


def spawned(function: Callable[..., Any], *args: Any) -> Greenlet:
    greenlet = Greenlet(function, *args)
    greenlet.start()
    return greenlet


def test_a_greenlet_and_a_job_of_a_pool_carry_a_mark_and_nothing_else(gevent_imported: Callable[[], None]) -> None:
    gevent_imported()
    user = contextvars.ContextVar("user", default="nobody")
    seen: list[tuple[tuple[str, ...], str]] = []

    def see() -> None:
        seen.append((slipstream.current().labels, user.get()))

    def run_all() -> None:
        spawned(see).join()
        own = Greenlet(see)
        own.gr_context = contextvars.copy_context()
        own.start()
        own.join()
        assert pool.spawn(see).wait(10)

    pool = ThreadPool()
    user.set("Ada")
    slipstream.instrument_threads()
    with slipstream.mark("a"):
        run_all()
    run_all()
    slipstream.uninstrument_threads()
    with slipstream.mark("a"):
        spawned(see).join()
        assert pool.spawn(see).wait(10)
    pool.close()
    a, none = ("a",), ()
    assert seen[:3] == [(a, "nobody"), (a, "Ada"), (a, "nobody")]
    assert seen[3:6] == [(none, "nobody"), (none, "Ada"), (none, "nobody")]
    assert seen[6:] == [(none, "nobody"), (none, "nobody")]


@pytest.mark.parametrize("imported_late", [False, True])
def test_greenlets_of_a_replay_write_nothing(imported_late: bool, gevent_imported: Callable[[], None]) -> None:
    if not imported_late:
        gevent_imported()
    slipstream.instrument_threads()
    if imported_late:
        gevent_imported()
    pool = ThreadPool()
    with slipstream.replay("order-17", 0) as run:
        spawned(send, "a@b").join()
        assert pool.spawn(send, "c@d").wait(10)
        left = spawned(send, "e@f")
    with pytest.raises(slipstream.SideEffectBlocked):
        left.join()
    spawned(send, "g@h").join()
    slipstream.uninstrument_threads()
    pool.close()
    assert sent == ["g@h"]
    assert [effect.outcome for effect in run.side_effects] == ["blocked", "blocked"]
