"""Work for a child process, from any thread: queued, bounded, and tried again where another's work ended the process.

submit ─▶ waiting ─▶ in flight ─▶ its result
             ▲            └─the process ended─▶ it failed, if it was overdue or alone
             └────────────────── otherwise again ───┘

A process in which something goes on that is overdue gets no more work: it is put aside until what runs beside that has
come to its end, and another takes its place at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import pickle
import threading
from collections import deque
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, InvalidStateError
from dataclasses import dataclass, field
from typing import Any

from slipstream.isolation.child import Child, Ended, Overdue
from slipstream.isolation.failures import NotFinished

_AT_ONCE = 64
"""Works of the user's own code that are under way at once, at most: most wait for a network."""

_OF_WORK = 16 * 1024**2
"""Bytes of a process's memory for each work that is under way: the stack of its thread, 8 MiB, counts whole."""


@dataclass(slots=True)
class _Work:
    """Work that waits or is in flight. `alone`: it was in flight when the process ended, and so were others: which of
    them ended it is found out one by one. `interrupted`: its process was ended for others' sake, which is done once."""

    pickled: bytes
    timeout: float
    future: Future[Any] = field(default_factory=Future)
    alone: bool = False
    interrupted: bool = False


class _Process:
    """A child process that has started or is about to, and what it was given to do."""

    def __init__(self, starting: Coroutine[Any, Any, Child]) -> None:
        self.starting = asyncio.create_task(starting)
        self.flying: dict[asyncio.Task[tuple[str, Any]], _Work] = {}

    @property
    def child(self) -> Child | None:
        """Return None until it has started, and where it could not be."""
        return self.starting.result() if self.starting.done() and not self.starting.exception() else None

    def give(self, work: _Work) -> None:
        self.flying[asyncio.create_task(self._ask(work))] = work

    def done(self) -> dict[asyncio.Task[tuple[str, Any]], _Work]:
        """Take what has been done."""
        return {task: self.flying.pop(task) for task in list(self.flying) if task.done()}

    async def end(self) -> None:
        """Kill it; all that it had to do is done then, or has failed."""
        await asyncio.wait([self.starting])
        if self.child is not None:
            await self.child.kill()
        if self.flying:
            await asyncio.wait(self.flying)

    async def _ask(self, work: _Work) -> tuple[str, Any]:
        child = await self.starting
        return await child.ask(work.pickled, work.timeout)


class Pool:
    """One child process, started at the first work and again after one that ended; two while one is put aside.

    Args:
        at_once: works that it is given at once.
        memory: bytes of its data.
        timeout: seconds for work that has no limit of its own.
        start_timeout: seconds for its start, and for each preparation.
        quiet: its output is thrown away, because it quotes content.
    """

    def __init__(
        self, *, at_once: int, memory: int, timeout: float = 5.0, start_timeout: float = 120.0, quiet: bool
    ) -> None:
        self._at_once = at_once
        self._memory = memory
        self._timeout = timeout
        self.start_timeout = start_timeout
        self._quiet = quiet
        self._preparations: list[bytes] = []
        self._waiting: deque[_Work] = deque()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._changed = asyncio.Event()
        self._closed = False

    def prepare(self, function: Callable[..., Any], *arguments: Any) -> None:
        """Have each process that starts from here on do this before anything else, out of the time of any work."""
        self._preparations.append(pickle.dumps((function, arguments)))

    def submit(self, function: Callable[..., Any], *arguments: Any, timeout: float | None = None) -> Future[Any]:
        """Have the child call a function that can be imported there.

        Args:
            timeout: seconds, from when it begins; None for the pool's.

        Returns:
            Its result, or what it returned awaited. Raises `NotFinished`, a `SlipstreamError` of the function's own, or
            `Raised` for any other exception.
        """
        work = _Work(pickle.dumps((function, arguments)), self._timeout if timeout is None else timeout)
        with self._lock:
            if self._closed:
                raise NotFinished("the sidecar ends")
            self._waiting.append(work)
            if self._thread is None:
                self._thread = threading.Thread(target=asyncio.run, args=(self._main(),), name="isolation", daemon=True)
                self._thread.start()
        self._wake()
        return work.future

    def call(self, function: Callable[..., Any], *arguments: Any, timeout: float) -> Any:
        """The same for a thread that waits."""
        return self.submit(function, *arguments, timeout=timeout).result()

    async def ask(self, function: Callable[..., Any], *arguments: Any, timeout: float | None = None) -> Any:
        """The same for a coroutine."""
        return await asyncio.wrap_future(self.submit(function, *arguments, timeout=timeout))

    def close(self) -> None:
        """Kill the process; what waits fails."""
        with self._lock:
            self._closed = True
        self._wake()
        if self._thread is not None:
            self._thread.join()

    def _wake(self) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended
            if self._loop is not None:  # else it begins, and looks
                self._loop.call_soon_threadsafe(self._changed.set)

    async def _main(self) -> None:
        self._loop = asyncio.get_running_loop()
        process: _Process | None = None
        aside: _Process | None = None
        while not self._closed:
            self._changed.clear()
            aside = await self._settled(aside)
            process = await self._settled(process)  # last: while anything is awaited, one without work may die unseen
            if process is not None and process.child is not None and process.child.stuck and await self._freed(aside):
                process, aside = None, process
            if (work := self._next(process)) is not None:
                if process is None:
                    process = _Process(
                        Child.start(self._preparations, self._memory, self.start_timeout, quiet=self._quiet)
                    )
                process.give(work)
                continue
            looking = asyncio.create_task(self._changed.wait())
            awaited: list[asyncio.Task[Any]] = [looking]
            for one in filter(None, (process, aside)):
                awaited += one.flying
                awaited += () if one.starting.done() else (one.starting,)
            await asyncio.wait(awaited, return_when=asyncio.FIRST_COMPLETED)
            looking.cancel()
        for one in filter(None, (process, aside)):
            await one.end()
            for work in one.flying.values():
                _fail(work, "the sidecar ends")
            await asyncio.gather(*one.flying, return_exceptions=True)
        for work in self._waiting:
            _fail(work, "the sidecar ends")

    async def _settled(self, process: _Process | None) -> _Process | None:
        """Give out what a process has done. Ends one that has failed, or has nothing to do and is spent: then None."""
        if process is None:
            return None
        failed = any(task.done() and task.exception() for task in process.flying)
        if failed:
            await process.end()
        self._end(process.done())
        if not failed and (process.flying or process.child is None or not process.child.spent):
            return process
        if not failed:
            await process.end()
        return None

    async def _freed(self, aside: _Process | None) -> bool:
        """Make room for another process to be put aside: what the one there does is done again, each work once."""
        if aside is None:
            return True
        if any(work.interrupted for work in aside.flying.values()):
            return False
        for work in aside.flying.values():
            work.interrupted = True
        await aside.end()
        self._end(aside.done(), killed=True)
        return True

    def _next(self, process: _Process | None) -> _Work | None:
        """Take the next work, if there is room for it; for a process that starts there is one."""
        flying = {} if process is None else process.flying
        child = None if process is None else process.child
        if not self._waiting or len(flying) >= self._at_once or (child is not None and child.spent):
            return None
        if flying and (child is None or self._waiting[0].alone or any(work.alone for work in flying.values())):
            return None
        return self._waiting.popleft()

    def _end(self, done: dict[asyncio.Task[tuple[str, Any]], _Work], *, killed: bool = False) -> None:
        """Give out what has been done, and have done again what ended through others; `killed`: all of that did."""
        broken = {task: work for task, work in done.items() if task.exception() is not None}
        others = killed or any(isinstance(task.exception(), Overdue) for task in broken)
        for task, work in reversed(done.items()):
            if task not in broken:
                self._answer(work, *task.result())
            elif isinstance(error := task.exception(), Overdue):
                _fail(work, f"took longer than {work.timeout:g} s")
            elif isinstance(error, Ended) and len(broken) == 1 and not killed:
                _fail(work, str(error))
            elif isinstance(error, Ended):
                work.alone |= not others
                self._waiting.appendleft(work)
            elif isinstance(error, NotFinished):  # it did not start
                _fail(work, str(error))
            else:  # what the child said could not be read
                _fail(work, f"its result could not be read ({type(error).__name__})")

    def _answer(self, work: _Work, kind: str, value: Any) -> None:
        if kind == "memory":
            _fail(work, f"needed more than {self._memory // 1024**2} MiB of memory")
        elif kind in ("overdue", "stuck"):
            _fail(work, f"took longer than {work.timeout:g} s")
        else:
            with contextlib.suppress(InvalidStateError):  # cancelled
                (work.future.set_exception if kind == "error" else work.future.set_result)(value)


def _fail(work: _Work, why: str) -> None:
    with contextlib.suppress(InvalidStateError):  # cancelled
        work.future.set_exception(NotFinished(why))


class Isolation:
    """The child processes of one sidecar; none runs before it has work.

    Args:
        content_memory, user_memory: bytes of data of each process.
        content_timeout: seconds in which content is interpreted.
        start_timeout: seconds for the start of a process, and to load what it needs.

    Attributes:
        content: interprets what comes with requests and answers: schemas, patterns, mathematics.
        user: runs code of the user's own. It has another process, so that content does not end what that code keeps.
    """

    def __init__(
        self,
        *,
        content_memory: int = 1024**3,
        content_timeout: float = 5.0,
        user_memory: int = 4 * 1024**3,
        start_timeout: float = 120.0,
    ) -> None:
        self.content = Pool(
            at_once=1, memory=content_memory, timeout=content_timeout, start_timeout=start_timeout, quiet=True
        )
        at_once = min(_AT_ONCE, user_memory // _OF_WORK)
        self.user = Pool(at_once=at_once, memory=user_memory, start_timeout=start_timeout, quiet=False)

    def close(self) -> None:
        """End them."""
        self.content.close()
        self.user.close()
