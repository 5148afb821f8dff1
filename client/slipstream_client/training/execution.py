"""Code of the agent's developer, run in the background: plain functions in threads, async ones on an event loop."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, TypeVar

T = TypeVar("T")

_STARTS = 10.0
"""Seconds in which an event loop starts, on a machine under load."""


class TimedOut(Exception):
    """It took longer than it may. A thread cannot be ended: it goes on, and so does its hold on the slot."""


class GivenUp(Exception):
    """The runner stops before it has ended."""


class Raised(Exception):
    """The developer's code raised what `__cause__` says."""


class Slot:
    """One of so many places for runs. It is free again once nobody holds it."""

    def __init__(self, free: Callable[[], None]) -> None:
        self._free = free
        self._holders = 1

    def held(self) -> Callable[[], None]:
        """Hold it too; returns what lets go of it, which may be called again without effect."""
        self._holders += 1
        holds = [self.release]
        return lambda: holds.pop()() if holds else None

    def release(self) -> None:
        self._holders -= 1
        if self._holders == 0:
            self._free()


class Loop:
    """An event loop in a thread of its own, which begins with its first use."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._started = threading.Event()

    def get(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            thread = threading.Thread(target=lambda: asyncio.run(self._serve()), name="slipstream-agents", daemon=True)
            contextvars.Context().run(thread.start)
            self._started.wait(_STARTS)
        if self._loop is None:
            raise RuntimeError("no event loop for async agents could be started")
        return self._loop

    async def _serve(self) -> None:
        self._stop = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._started.set()
        await self._stop.wait()

    def stop(self) -> None:
        if self._loop is not None and self._stop is not None:
            with suppress(RuntimeError):  # closed already
                self._loop.call_soon_threadsafe(self._stop.set)


class Execution:
    """Runs what it is given and waits for it, from an event loop that nothing of it can block.

    Args:
        agents: the event loop for async code.
        given_up: done when nothing is to be waited for any more.
    """

    def __init__(self, agents: Callable[[], asyncio.AbstractEventLoop], given_up: asyncio.Future[None]) -> None:
        self._agents = agents
        self._given_up = given_up

    async def in_thread(self, work: Callable[[], T], variables: contextvars.Context, slot: Slot, timeout: float) -> T:
        """A plain function's result.

        Args:
            variables: the context variables that it sees.
            timeout: seconds.

        Raises:
            Raised, TimedOut, GivenUp: see there.
        """
        ending = _Ending(slot)

        def body() -> None:
            try:
                outcome = work(), None
            except BaseException as error:  # noqa: BLE001 - also SystemExit: the agent's program goes on
                ending.report(None, error)
            else:
                ending.report(*outcome)

        thread = threading.Thread(target=variables.run, args=(body,), name="slipstream-replay", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:  # no more threads, or the program ends
            ending.release()
            raise Raised from error
        result: T = await self._result(ending, timeout)
        return result

    async def on_loop(
        self, work: Callable[[], Awaitable[T]], variables: contextvars.Context, slot: Slot, timeout: float
    ) -> T:
        """An async function's result, likewise; one that takes too long is cancelled."""
        ending = _Ending(slot)
        tasks: list[asyncio.Task[T]] = []

        def begin() -> None:
            tasks.append(asyncio.ensure_future(_contained(work)))
            tasks[0].add_done_callback(ended)

        def ended(task: asyncio.Task[T]) -> None:
            error = asyncio.CancelledError() if task.cancelled() else task.exception()
            ending.report(None if error is not None else task.result(), error)

        def cancel() -> None:
            for task in tasks:
                task.cancel()

        try:
            agents = self._agents()
            if not agents.is_running():
                raise RuntimeError("the event loop of the agents has ended")
            agents.call_soon_threadsafe(begin, context=variables)
        except RuntimeError as error:
            ending.release()
            raise Raised from error
        try:
            result: T = await self._result(ending, timeout)
        except (TimedOut, GivenUp):
            with suppress(RuntimeError):  # closed
                agents.call_soon_threadsafe(cancel)
            if not agents.is_running():
                ending.release()
            raise
        return result

    async def _result(self, ending: _Ending, timeout: float) -> Any:
        waited: set[asyncio.Future[Any]] = {ending.done, self._given_up}
        await asyncio.wait(waited, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        if not ending.done.done():
            raise GivenUp if self._given_up.done() else TimedOut
        result, error = ending.done.result()
        if error is not None:
            raise Raised from error
        return result


class _Ending:
    """End of something that runs elsewhere, and its hold on a slot until then."""

    def __init__(self, slot: Slot) -> None:
        self._loop = asyncio.get_running_loop()
        self.done: asyncio.Future[tuple[Any, BaseException | None]] = self._loop.create_future()
        self.release = slot.held()

    def report(self, result: Any, error: BaseException | None) -> None:
        """From any thread."""
        with suppress(RuntimeError):  # the runner has ended, and nobody waits
            self._loop.call_soon_threadsafe(self._settle, result, error)

    def _settle(self, result: Any, error: BaseException | None) -> None:
        self.release()
        self.done.set_result((result, error))


async def _contained(work: Callable[[], Awaitable[T]]) -> T:
    try:
        return await work()
    except (SystemExit, KeyboardInterrupt) as error:  # which would end the event loop
        raise RuntimeError(repr(error)) from error
