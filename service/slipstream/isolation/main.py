"""The program of a child process: takes pickled functions with their arguments, and answers with what they return.

Plain functions run in threads, and what they return that can be awaited on the event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import inspect
import os
import pickle
import resource
import signal
import socket
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from slipstream.errors import SlipstreamError
from slipstream.isolation.child import FRAME
from slipstream.isolation.deadline import deadline
from slipstream.isolation.failures import Raised

_PR_SET_PDEATHSIG = 1
_THREADS = 64


async def serve(connection: socket.socket) -> None:
    """Do what comes, each work beside the others, until the parent is gone."""
    reader, writer = await asyncio.open_connection(sock=connection)
    threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="work")
    at_work: set[asyncio.Task[None]] = set()
    while True:
        try:
            number, timeout, length = FRAME.unpack(await reader.readexactly(FRAME.size))
            work = await reader.readexactly(length)
        except (asyncio.IncompleteReadError, OSError):
            os._exit(0)  # threads that are at work would be waited for
        task = asyncio.create_task(_answer(writer, threads, number, timeout, work))
        at_work.add(task)
        task.add_done_callback(at_work.discard)


async def _answer(
    writer: asyncio.StreamWriter, threads: ThreadPoolExecutor, number: int, timeout: float, work: bytes
) -> None:
    try:
        in_thread = threads.submit(_done, work)
    except RuntimeError:  # there is no memory for one more thread
        _send(writer, number, _packed("memory", None))
        return
    try:
        async with deadline(timeout) as limit:
            outcome = await asyncio.wrap_future(in_thread)
            if inspect.isawaitable(outcome):
                try:
                    outcome = _packed("value", await outcome)
                except TimeoutError as error:
                    if limit.expired():
                        raise
                    outcome = _failed(error)
                except BaseException as error:
                    if limit.expired():
                        raise
                    outcome = _failed(error)
    except TimeoutError:
        outcome = _packed("overdue" if in_thread.done() else "stuck", None)
    _send(writer, number, outcome)


def _send(writer: asyncio.StreamWriter, number: int, outcome: bytes) -> None:
    writer.write(FRAME.pack(number, 0.0, len(outcome)) + outcome)


def _done(work: bytes) -> Any:
    """The packed outcome of the work, or something to await."""
    try:
        function, arguments = pickle.loads(work)  # noqa: S301 - of our own parent
        outcome = function(*arguments)
        return outcome if inspect.isawaitable(outcome) else _packed("value", outcome)
    except BaseException as error:  # noqa: BLE001 - a future cannot carry StopIteration, and sys.exit() is no answer
        return _failed(error)


def _failed(error: BaseException) -> bytes:
    if isinstance(error, MemoryError):
        return _packed("memory", None)
    if isinstance(error, SlipstreamError):
        with contextlib.suppress(Exception):  # not every exception can be made again of its arguments
            pickle.loads(told := _packed("error", error))  # noqa: S301 - our own
            return told
    return _packed("error", Raised.of(error))


def _packed(kind: str, value: Any) -> bytes:
    return pickle.dumps((kind, value))


def _end_with(parent: int) -> None:
    """Have the system kill this process when its parent dies, which a thread that holds Python's lock would not see."""
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(0)


def _end_what_it_starts(connection: int) -> None:
    """Start a process that kills the process group of this one when this one ends. It does so for a parent that was
    killed too, which cannot end what the user's code has started."""
    prctl, leader = getattr(ctypes.CDLL(None), "prctl", None), os.getpid()
    if prctl is None or os.getpgrp() != leader or os.fork():
        return
    try:
        os.close(connection)  # the parent takes its end for the end of the child
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        with contextlib.suppress(OSError):
            Path("/proc/self/comm").write_text("slip-isol-end")
        while os.getppid() == leader:
            signal.sigwait({signal.SIGTERM})
        os.killpg(leader, signal.SIGKILL)
    finally:
        os._exit(1)


def main() -> None:
    """Serve the connection that the arguments name."""
    connection, memory, parent = map(int, sys.argv[1:])
    _end_with(parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all of the group: the parent ends this process
    _end_what_it_starts(connection)
    os.nice(10)  # production traffic goes first
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")  # of all processes, the first to go when memory is out
    with contextlib.suppress(OSError):
        Path("/proc/self/comm").write_text("slip-isolated")
    # Data, not address space: libraries such as torch reserve many gigabytes that they never use.
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_DATA, (memory, memory))
    asyncio.run(serve(socket.socket(fileno=connection)))


if __name__ == "__main__":
    main()
