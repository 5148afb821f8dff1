"""Standard error or output that no reader can hold up, for all processes of a program.

    each process ── a message a line ──▶ socket ──▶ relay ──▶ the descriptor as it was
                          └── full: the line is dropped, and counted

A write to a pipe that is full blocks: with a log driver that stalls, or a `| tee` that is stopped, the next line of a
log would hold up an event loop for good. O_NONBLOCK cannot be set on a pipe or a terminal that was inherited: it would
be set for each process that has it, the shell included. A thread and a queue, as `logging.handlers.QueueHandler` has
them, would end with their process, wait for its interpreter, and not be there for a parent that forks.

So the descriptor is replaced by a socket of our own that never blocks and keeps messages whole, for Python, for C and
for programs that are started. Lines in it outlive their sender. A process of its own, the relay, waits for the reader.

Linux alone has such sockets. Elsewhere the descriptor stays as it is.
"""

from __future__ import annotations

import contextlib
import io
import mmap
import os
import select
import signal
import socket
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from multiprocessing import get_context
from typing import Any

import structlog

_log = structlog.get_logger(__name__)

STDOUT, STDERR = 1, 2
_NAMES = {STDOUT: "stdout", STDERR: "stderr"}

_LONGEST = 2**18
"""Bytes of a line. A longer one is dropped: the kernel takes a message whole or not at all, at most `_IN_SOCKET`."""

_IN_SOCKET = 2**20
"""Bytes that may wait in the socket for the relay to get a turn on the CPU. The kernel lowers it to
`net.core.wmem_max`, and a short line counts for about 750 bytes there."""

_IN_RELAY = 2**22
"""Bytes that may wait in the relay for the reader: some 20,000 lines."""

_LAST_LINES = 1.0
"""Seconds in which the relay, at its end, writes what waits, and again the parent: `shutdown.LOG` has both."""


def ensure_open() -> None:
    """Open the null device in the place of a standard output or error that this process was started without.

    Otherwise the next file or socket that is opened gets its number, and with it all that is written there.
    """
    for descriptor, name in _NAMES.items():
        if getattr(sys, name) is None:
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, descriptor)
            setattr(sys, name, open(descriptor, "w", closefd=False))  # noqa: SIM115 - as long as the process


class Output:
    """A standard descriptor, replaced by a socket until the `with` block ends; processes forked meanwhile have it too.

    What nobody relayed is written at the end of the block.

    Args:
        descriptor: STDERR, whose lines are dropped when nobody reads any more; or STDOUT, where writing then raises
            BrokenPipeError, as always.
    """

    def __init__(self, descriptor: int = STDERR) -> None:
        self._descriptor = descriptor
        self._count = memoryview(mmap.mmap(-1, 8)).cast("Q")
        self.replaced = False

    @property
    def dropped(self) -> int:
        """Lines of all processes that were dropped because too many waited for the reader, or there was none."""
        return self._count[0]

    def __enter__(self) -> Output:
        if sys.platform != "linux":
            return self
        self._before = getattr(sys, _NAMES[self._descriptor])
        self._before.flush()
        self._target = os.dup(self._descriptor)
        self._source, self._sender = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._sender.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _IN_SOCKET)
        for end in (self._source, self._sender):
            end.setblocking(False)
        self._drops = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        os.dup2(self._sender.fileno(), self._descriptor)
        self._lines = _Lines(self._descriptor, self._send, terminal=os.isatty(self._target))
        buffer = io.BufferedWriter(self._lines, _LONGEST)
        before = self._before
        stream = io.TextIOWrapper(buffer, encoding=before.encoding, errors=before.errors, line_buffering=True)
        setattr(sys, _NAMES[self._descriptor], stream)
        self.replaced = True
        return self

    def __exit__(self, *_: object) -> None:
        if not self.replaced:
            return
        self._restore()
        stop = os.eventfd(1)
        with contextlib.suppress(BrokenPipeError):
            self._relay().run(stop)
        os.close(stop)
        self._close()

    def leave(self) -> None:
        """Write directly in this process; the relay goes on until the end of the others."""
        if self.replaced:
            self._restore()
            self._close()

    def original(self) -> list[tuple[int, int, int]]:
        """Return the actions of `os.posix_spawn` that give a program the descriptor as it was."""
        return [(os.POSIX_SPAWN_DUP2, self._target, self._descriptor)] if self.replaced else []

    def _restore(self) -> None:
        self.replaced = False
        with contextlib.suppress(OSError):
            getattr(sys, _NAMES[self._descriptor]).flush()
        os.dup2(self._target, self._descriptor)
        setattr(sys, _NAMES[self._descriptor], self._before)

    def _close(self) -> None:
        self._sender.close()
        self._source.close()
        for descriptor in (self._drops, self._target):
            os.close(descriptor)

    def relay(self) -> None:
        """Write what the processes send, until SIGTERM, or until none of them is left. Runs in a process of its own."""
        stop = os.eventfd(0)
        signal.signal(signal.SIGTERM, lambda *_: os.eventfd_write(stop, 1))
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # it reaches all of the group, and what they say of it is to come
        os.dup2(self._target, self._descriptor)
        self._sender.close()
        with contextlib.suppress(BrokenPipeError):
            self._relay().run(stop)

    def _relay(self) -> _Relay:
        relay = _Relay(self._source, self._target, self._drops, self._count, needed=self._descriptor == STDOUT)
        self._lines.put = relay.hold
        return relay

    def _send(self, line: bytes) -> None:
        try:
            self._sender.send(line)
        except BrokenPipeError:
            if self._descriptor == STDOUT:
                raise
            os.eventfd_write(self._drops, 1)
        except OSError:  # full, or too long
            os.eventfd_write(self._drops, 1)


@contextlib.contextmanager
def relayed(descriptor: int = STDERR) -> Iterator[Output]:
    """Replace a descriptor, as `Output`, in a program that has no parent of its own which starts the relay.

    It forks, so that it comes before the first thread.
    """
    with Output(descriptor) as output:
        if not output.replaced:
            yield output
            return
        process = get_context("fork").Process(target=output.relay, daemon=True)
        process.start()
        try:
            yield output
        finally:
            process.terminate()
            process.join(2 * _LAST_LINES)
            process.kill()
            process.join()


class _Lines(io.RawIOBase):
    """The raw stream below sys.stderr: each flush is one message. It never fails for want of room."""

    def __init__(self, descriptor: int, put: Callable[[bytes], None], *, terminal: bool) -> None:
        self._descriptor = descriptor
        self._terminal = terminal
        self.put = put

    def write(self, data: Any, /) -> int:
        self.put(bytes(data))
        return len(data)

    def writable(self) -> bool:
        return True

    def isatty(self) -> bool:
        return self._terminal

    def fileno(self) -> int:
        return self._descriptor


class _Relay:
    """Moves lines from the socket to the descriptor as it was, and waits for neither while the other has something.

    Args:
        source: where lines come from.
        target: the descriptor; not in non-blocking mode.
        drops: an eventfd to which senders add the lines that they dropped.
        count: the sum of them, for other processes.
        needed: whether to end when the target is read no more.
    """

    def __init__(self, source: socket.socket, target: int, drops: int, count: memoryview[int], *, needed: bool) -> None:
        self._source, self._target, self._drops = source, target, drops
        self._count = count
        self._needed = needed
        self._held: deque[bytes] = deque()
        self._size = 0
        self._written = 0
        self._unsaid = 0
        self._space = bytearray(_LONGEST)

    def hold(self, line: bytes) -> None:
        self._held.append(line)
        self._size += len(line)

    def run(self, stop: int) -> None:
        """Return once `stop` is readable or all senders are gone, and what came before that is written.

        Raises:
            BrokenPipeError: the target is `needed` and read no more; senders will get the same.
        """
        coming, stopped, until = True, False, None
        while coming or self._held:
            poll = select.poll()
            poll.register(self._drops, select.POLLIN)
            if coming and self._size < _IN_RELAY:
                poll.register(self._source, select.POLLIN)
            if not stopped:
                poll.register(stop, select.POLLIN)
            if self._held:
                poll.register(self._target, select.POLLOUT)
            if until is None and (stopped or not coming):
                until = time.monotonic() + _LAST_LINES
            left = None if until is None else 1000 * max(0.0, until - time.monotonic())
            ready = {descriptor for descriptor, _ in poll.poll(left)}
            if left == 0:
                return
            if stop in ready:
                stopped = True
            if self._drops in ready:
                self._add(os.eventfd_read(self._drops))
            if coming and (stopped or self._source.fileno() in ready):
                coming = self._take(last=stopped)
            if self._target in ready:
                self._write()
            if self._unsaid and not self._held:
                _log.warning("log_lines_dropped", lines=self._unsaid)  # held, as any line
                self._unsaid = 0

    def _take(self, *, last: bool) -> bool:
        """Take what has come; return whether more may come."""
        while self._size < _IN_RELAY:
            try:
                size = self._source.recv_into(self._space)
            except BlockingIOError:
                return not last
            if not size:
                return False
            self.hold(bytes(self._space[:size]))
        return True

    def _write(self) -> None:
        """Write a part of the first line: a descriptor that is ready has room for so much, and would block for more."""
        line = self._held[0]
        try:
            self._written += os.write(self._target, line[self._written : self._written + select.PIPE_BUF])
        except OSError as error:  # its reader is gone
            if self._needed:
                self._source.shutdown(socket.SHUT_RD)
                raise BrokenPipeError from error
            self._count[0] += 1  # and not said, as that would be lost too
            self._written = len(line)
        if self._written == len(line):
            self._held.popleft()
            self._size -= len(line)
            self._written = 0

    def _add(self, dropped: int) -> None:
        self._count[0] += dropped
        self._unsaid += dropped
