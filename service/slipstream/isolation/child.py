"""One child process, from its parent's side: started, asked, killed."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import pickle
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

from slipstream.isolation.deadline import deadline
from slipstream.isolation.failures import NotFinished

FRAME = struct.Struct("!QdI")
"""Head of what goes to and fro: the number of the work, its seconds (to the child), and the bytes that follow."""

GRACE = 0.5
"""Seconds beyond its own in which work may still end itself: a coroutine that is cancelled leaves its process alive."""


class Ended(Exception):
    """The process has ended; the message says how."""


class Overdue(Exception):
    """The work has not ended in its time, nor given way."""


class Child:
    """A child process. It ends when its parent does, and before that by `kill` alone."""

    def __init__(self, process: subprocess.Popen[bytes], writer: asyncio.StreamWriter) -> None:
        self._process = process
        self._writer = writer
        self._numbers = itertools.count()
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._reading: asyncio.Task[None] | None = None
        self._how: str | None = None
        """The way in which its process ended, perhaps while it had nothing to do; None while it runs."""
        self.stuck = False
        """A thread of it goes on with work that is overdue."""
        self._full = False
        """It ran out of memory, and may hold much of it."""
        self._waited_for = False

    @property
    def spent(self) -> bool:
        """Return whether it is to do nothing more: it has ended, it is full, or it is stuck."""
        return self.stuck or self._full or self._how is not None

    @classmethod
    async def start(cls, preparations: Sequence[bytes], memory: int, timeout: float, *, quiet: bool) -> Child:
        """Start a process, and have it do what is to be done before anything else.

        A new interpreter, not a fork: this process has threads and an event loop. Called in a thread that outlives the
        child, because the child is killed at that thread's end.

        Args:
            preparations: pickled (function, arguments). What fails of them fails again where it is needed.
            memory: bytes.
            timeout: seconds for the start and each preparation: code of the user's own may load a model.
            quiet: its output is thrown away.

        Raises:
            NotFinished: it did not start.
        """
        ours, theirs = socket.socketpair()
        with theirs:
            command = [sys.executable, "-P", "-m", "slipstream.isolation.main", str(theirs.fileno()), str(memory)]
            output = subprocess.DEVNULL if quiet else None
            try:
                process = subprocess.Popen(  # noqa: ASYNC220, S603 - our own module, no shell; it takes a millisecond
                    [*command, str(os.getpid())],
                    pass_fds=(theirs.fileno(),),
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    process_group=0,  # what the user's code starts ends with it
                )
            except OSError as error:
                ours.close()
                raise NotFinished(f"no process could be started for it ({error})") from error
        reader, writer = await asyncio.open_connection(sock=ours)
        child = cls(process, writer)
        child._reading = asyncio.create_task(child._read(reader))
        try:
            for work in (pickle.dumps((_search_in, (sys.path,))), *preparations):
                await child.ask(work, timeout)
        except (Ended, Overdue) as error:
            await child.kill()
            raise NotFinished(f"its process did not start: {error}") from error
        return child

    async def ask(self, work: bytes, timeout: float) -> tuple[str, Any]:
        """Have it do a pickled (function, arguments).

        Returns:
            ("value", the result), ("error", the exception to raise), ("memory", None), ("overdue", None), or
            ("stuck", None): it is overdue, and goes on.

        Raises:
            Overdue: it must be killed.
            Ended: its process has.
        """
        if self._how is not None:
            raise Ended(self._how)
        number = next(self._numbers)
        answer = self._waiting[number] = asyncio.get_running_loop().create_future()
        self._writer.write(FRAME.pack(number, timeout, len(work)) + work)
        try:
            async with deadline(timeout + GRACE, self._process.pid):
                kind, value = await answer
        except TimeoutError:
            raise Overdue(f"{timeout:g} s have passed") from None
        finally:
            self._waiting.pop(number, None)
        self.stuck |= kind == "stuck"
        self._full |= kind == "memory"
        return kind, value

    async def kill(self) -> None:
        """Kill the process and what it has started. Work that waits for an answer fails with `Ended`."""
        self._kill_group()
        if self._reading is not None:
            await asyncio.wait([self._reading])
        self._writer.close()

    async def _read(self, reader: asyncio.StreamReader) -> None:
        try:
            while True:
                number, _, length = FRAME.unpack(await reader.readexactly(FRAME.size))
                answer, found = await reader.readexactly(length), self._waiting.get(number)
                if found is None or found.done():
                    continue
                try:
                    found.set_result(pickle.loads(answer))  # noqa: S301 - of our own child
                except Exception as error:  # noqa: BLE001 - it holds an object that is not known here
                    found.set_exception(error)
        except (asyncio.IncompleteReadError, OSError):
            pass
        self._kill_group()  # what it has left behind
        self._waited_for = True
        code = await asyncio.get_running_loop().run_in_executor(None, self._process.wait)
        self._how = _how(code)
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(Ended(self._how))

    def _kill_group(self) -> None:
        """Kill it, and what it has started. Until it is waited for, no other process has its number."""
        if not self._waited_for:
            with contextlib.suppress(ProcessLookupError, PermissionError):  # macOS refuses the groups of zombies
                os.killpg(self._process.pid, signal.SIGKILL)


def _how(code: int) -> str:
    if code == -signal.SIGKILL:
        return "its process was killed, as the system does when memory runs out"
    if code < 0:
        return f"its process was ended by {signal.Signals(-code).name}"
    return f"its process ended with exit code {code}"


def _search_in(path: list[str]) -> None:
    """Find modules where the parent finds them."""
    sys.path[:] = path
