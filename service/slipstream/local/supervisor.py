"""Runs several programs as one: in order, prefixed, restarted, and ended together.

    starting ──ready──▶ running ──ends──▶ waiting ──delay──▶ starting
        └──not ready in time / ends──────────▲ └──too often──▶ everything is stopped

What is started last is stopped first. Each child leads a process group of its own, so that Ctrl-C reaches the
supervisor alone and the order holds, and so that nothing of a child is left when it has ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import sys
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import IO, TextIO

import httpx

from slipstream.errors import SlipstreamError
from slipstream.terminal.waiting import AGAIN, FIRST

_POLL = 0.1  # seconds between two looks at a ready URL
_LONGEST_LINE = 65536  # bytes kept while a child writes without a line's end


class ChildFailed(SlipstreamError):
    """A child could not be kept running; the message ends with the last lines that it wrote."""


@dataclass(frozen=True, slots=True)
class Child:
    """One program.

    Attributes:
        name: what its lines are prefixed with.
        command: the program and its arguments.
        ready_url: answers 2xx to GET once the child is ready; without one it is ready when it has started. Its
            certificate is not looked at: it has one for those who come from elsewhere, and it is told nothing.
        ready_within: seconds until it counts as failed.
        finished: asked after an exit with code 0: whether that was the end of its work, or it is to be started again.
        grace: seconds between SIGTERM and SIGKILL when it is stopped.
        vital: whether everything is stopped when it cannot be kept running. What is not vital and was ready once is
            tried on and on, and the others do their work meanwhile.
        environment: what is added to the supervisor's own.
    """

    name: str
    command: Sequence[str]
    ready_url: str | None = None
    ready_within: float = 600.0
    finished: Callable[[], bool] = lambda: False
    grace: float = 30.0
    vital: bool = True
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Restarts:
    """Rules for starting a child again.

    Attributes:
        delay: seconds before the first restart; each failure in a row doubles it.
        longest: seconds that it grows to.
        attempts: failures in a row after which a child counts as one that cannot be kept running.
        settled: a child that ran this many seconds after it was ready has not failed, however it ended.
    """

    delay: float = 1.0
    longest: float = 30.0
    attempts: int = 5
    settled: float = 60.0

    def wait(self, failures: int) -> float:
        return min(self.delay * 2.0 ** min(max(failures - 1, 0), 32), self.longest)


async def supervise(children: Sequence[Child], *, restarts: Restarts = Restarts(), out: TextIO = sys.stdout) -> None:
    """Run the children until SIGINT, SIGTERM or SIGHUP, or until each has finished its work.

    Each child is started when the one before it is ready.

    Raises:
        ChildFailed: a vital one, or one that was never ready, failed `restarts.attempts` times in a row. All have been
            stopped.
    """
    loop = asyncio.get_running_loop()
    over: asyncio.Future[None] = loop.create_future()
    hangup = () if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN else (signal.SIGHUP,)  # ignored: under nohup
    for number in (signal.SIGINT, signal.SIGTERM, *hangup):
        loop.add_signal_handler(number, _end_in_peace, over)
    width = max(len(child.name) for child in children)
    asking = httpx.AsyncClient(timeout=2.0, trust_env=False, verify=False)  # noqa: S501 - see Child.ready_url
    async with _guard() as guard, asking as client:
        keepers = [_Keeper(child, restarts, guard, client, out, width) for child in children]
        started: list[asyncio.Task[None]] = []
        try:
            for keeper in keepers:
                started.append(asyncio.create_task(keeper.keep()))
                started[-1].add_done_callback(lambda _: _settle(over, keepers, started))
                ready = asyncio.create_task(keeper.ready.wait())
                await asyncio.wait((ready, over), return_when=asyncio.FIRST_COMPLETED)
                ready.cancel()
                if over.done():
                    break
            await over
        finally:
            for task in reversed(started):
                task.cancel()
                await asyncio.wait([task])


def _end_in_peace(over: asyncio.Future[None]) -> None:
    if not over.done():
        over.set_result(None)


def _settle(over: asyncio.Future[None], keepers: Sequence[_Keeper], tasks: Sequence[asyncio.Task[None]]) -> None:
    """One failure ends everything; so does the last child's finishing its work."""
    ended = [task for task in tasks if task.done() and not task.cancelled()]
    failures = [error for task in ended if (error := task.exception())]
    if failures and not over.done():
        over.set_exception(failures[0])
    elif len(ended) == len(keepers):
        _end_in_peace(over)


class _Keeper:
    """Keeps one child running until its task is cancelled."""

    def __init__(
        self, child: Child, restarts: Restarts, guard: IO[bytes], client: httpx.AsyncClient, out: TextIO, width: int
    ) -> None:
        self.ready = asyncio.Event()
        self._child = child
        self._restarts = restarts
        self._guard = guard
        self._client = client
        self._out = out
        self._prefix = f"{child.name:<{width}} | "
        self._tail: deque[str] = deque(maxlen=20)

    async def keep(self) -> None:
        failures = 0
        while True:
            how, code, ran = await self._live()
            if code == 0 and self._child.finished():
                self._say("has finished its work")
                return
            failures = 0 if code == 0 or ran >= self._restarts.settled else failures + 1
            if failures >= self._restarts.attempts and (self._child.vital or not self.ready.is_set()):
                raise ChildFailed(
                    "\n  ".join([f"{self._child.name} {how}, {failures} times in a row; its last lines:", *self._tail])
                )
            delay = self._restarts.wait(failures)
            self._say(f"{how}; started again in {delay:g} s")
            await asyncio.sleep(delay)

    async def _live(self) -> tuple[str, int | None, float]:
        """One life: how it ended in words, its exit code (None: not ready in time), seconds that it ran when ready."""
        source, sink = os.pipe()  # of our own: asyncio's wait() also waits for its pipes, which a grandchild may hold
        try:
            process = await asyncio.create_subprocess_exec(
                *self._child.command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=sink,
                stderr=sink,
                env={**os.environ, **self._child.environment},
                process_group=0,
            )
        except BaseException as error:
            os.close(source)
            if isinstance(error, OSError):
                raise ChildFailed(f"{self._child.name} cannot be started: {error}") from error
            raise
        finally:
            os.close(sink)
        self._tell_guard("+", process.pid)
        relaying = asyncio.create_task(self._relay(source))
        exiting = asyncio.create_task(process.wait())
        try:
            if not await self._becomes_ready(exiting):
                return f"was not ready within {self._child.ready_within:g} s", None, 0.0
            since = time.monotonic()
            code = await asyncio.shield(exiting)
            how = f"ended with exit code {code}" if code >= 0 else f"was killed by signal {-code}"
            return how, code, time.monotonic() - since
        finally:
            await self._end(process.pid, exiting)
            await asyncio.wait([relaying], timeout=1.0)  # longer only where something left the group with the pipe
            relaying.cancel()
            self._tell_guard("-", process.pid)

    async def _becomes_ready(self, exiting: asyncio.Task[int]) -> bool:
        """False when time is up. True when ready, and when the child ended, which the caller sees."""
        began = time.monotonic()
        deadline, told = began + self._child.ready_within, began + FIRST
        since = time.strftime("%H:%M:%S")
        while self._child.ready_url and not exiting.done():
            with contextlib.suppress(httpx.HTTPError):
                if (await self._client.get(self._child.ready_url)).is_success:
                    break
            if (now := time.monotonic()) > deadline:
                return False
            if now > told:
                told = now + AGAIN
                self._say(f"is waited for until {self._child.ready_url} answers, since {since} ({now - began:.0f} s)")
            await asyncio.wait([exiting], timeout=_POLL)
        if not exiting.done():
            self._say("ready" if self._child.ready_url else "started")
            self.ready.set()
        return True

    async def _end(self, pid: int, exiting: asyncio.Task[int]) -> None:
        killed = False
        if not exiting.done():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
            self._say("stopping")
            await asyncio.wait([exiting], timeout=self._child.grace)
            killed = not exiting.done()
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, signal.SIGKILL)  # the child where it would not end, and whatever it left in its group
        if killed:
            self._say(f"still there after {self._child.grace:g} s: killed")
        await exiting

    async def _relay(self, source: int) -> None:
        """Copies a child's output line by line until it is closed. A progress bar's returns count as line ends."""
        reader = asyncio.StreamReader()
        with os.fdopen(source, "rb", buffering=0) as pipe:
            await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), pipe)
            rest = b""
            while chunk := await reader.read(_LONGEST_LINE):
                *lines, rest = re.split(rb"[\r\n]+", rest + chunk)
                if len(rest) > _LONGEST_LINE:
                    lines, rest = [*lines, rest], b""
                for line in lines:
                    self._write(line.decode(errors="replace"))
            if rest:
                self._write(rest.decode(errors="replace"))

    def _write(self, line: str) -> None:
        self._tail.append(line)
        self._print(f"{self._prefix}{line}")

    def _say(self, what: str) -> None:
        self._print(f"slipstream: {self._child.name} {what}")

    def _print(self, line: str) -> None:
        try:
            print(line, file=self._out, flush=True)
        except UnicodeEncodeError:  # a terminal that lacks a character must not stop the child that writes it
            print(line.encode("ascii", "backslashreplace").decode(), file=self._out, flush=True)
        except OSError:  # nobody reads any more: `slipstream up | head`
            signal.raise_signal(signal.SIGTERM)

    def _tell_guard(self, sign: str, pid: int) -> None:
        with contextlib.suppress(BrokenPipeError):  # somebody ended the guard: the children go on without one
            self._guard.write(f"{sign}{pid}\n".encode())


@contextlib.asynccontextmanager
async def _guard() -> AsyncIterator[IO[bytes]]:
    """The pipe whose closing tells the guard that this process is gone. The guard has a session of its own, so that
    what ends this process's group or terminal does not end it."""
    source, sink = os.pipe()
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-P",
        "-m",
        "slipstream.local.guard",
        stdin=source,
        stdout=asyncio.subprocess.DEVNULL,
        start_new_session=True,
    )
    os.close(source)
    try:
        with os.fdopen(sink, "wb", buffering=0) as pipe:
            yield pipe
    finally:
        await process.wait()
