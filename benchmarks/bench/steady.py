"""Load at a fixed rate, whatever the answers do: what a user waits when the proxy is not at its limit.

Requests leave at their appointed time over any idle connection, or a new one, so a slow answer delays no later request
(an open loop). One thread waits in select(2), whose timeout has microseconds, where event loops round to a
millisecond. Times run from the moment a request is sent.
"""

from __future__ import annotations

import gc
import itertools
import select
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import httptools

from bench.load import LoadFailed
from bench.request import SLOT, chat

_MOST_CONNECTIONS = 900
"""select(2) watches file descriptors below 1024."""
_LAST_ANSWERS = 5.0
"""Seconds that the answers of the last requests may take."""
_LATE = 0.002
"""Seconds: a request that left so late was held up by this program, not by the proxy."""

_numbers = itertools.count(time.time_ns() & 0xFFFFFFFFFFFF)


Asked = tuple[bytes, bytes | None]
"""A request, and the body that its answer must have; None: any."""


@dataclass
class Steady:
    """Seconds that each good answer took, and what else became of the requests.

    Attributes:
        late: left late, because this program was held up.
        refused: got a status of 400 or more, or no connection.
        broken: got no whole answer.
        changed: got an answer with other bytes than those that were expected.
    """

    taken: list[float] = field(default_factory=list)
    asked: int = 0
    late: int = 0
    refused: int = 0
    broken: int = 0
    changed: int = 0

    @property
    def failed(self) -> int:
        """Requests without a good answer."""
        return self.refused + self.broken + self.changed


class _Connection:
    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=5)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.parser = httptools.HttpResponseParser(self)
        self.complete = self.keep = False
        self.began = 0.0
        self.body = bytearray()
        self.expected: bytes | None = None

    def ask(self, request: bytes, expected: bytes | None) -> None:
        self.complete = False
        self.body.clear()
        self.expected = expected
        self.parser = httptools.HttpResponseParser(self)
        self.began = time.perf_counter()
        self.socket.sendall(request)

    def read(self) -> bool:
        """Take what has come; whether the answer is whole.

        Raises:
            OSError, httptools.HttpParserError: the connection or the answer is broken.
        """
        data = self.socket.recv(65536)
        if not data:
            raise ConnectionError("closed in mid-answer")
        self.parser.feed_data(data)
        return self.complete

    def on_body(self, body: bytes) -> None:
        self.body += body

    def on_message_complete(self) -> None:
        self.complete = True
        self.keep = self.parser.should_keep_alive()


def _chats() -> Callable[[int], Asked]:
    head, tail = chat().split(SLOT.encode())
    return lambda number: (head + b"%016x" % number + tail, None)


def open_loop(port: int, rate: float, seconds: float, ask: Callable[[int], Asked] | None = None) -> Steady:
    """Ask `rate` times a second for `seconds`.

    Args:
        ask: makes the request of a number that no other has; by default a chat of 2 KB.

    Raises:
        LoadFailed: too many answers are outstanding: the proxy does not keep up, or nothing was answered.
    """
    ask = ask or _chats()
    steady = Steady()
    idle: list[_Connection] = []
    busy: dict[int, _Connection] = {}
    gc.disable()
    try:
        begin = time.perf_counter() + 0.05
        total = int(rate * seconds)
        end = begin + seconds + _LAST_ANSWERS
        while (steady.asked < total or busy) and (now := time.perf_counter()) < end:
            due = begin + steady.asked / rate if steady.asked < total else end
            # also when it is late: what has been answered meanwhile is free for what is due
            for ready in select.select(list(busy), [], [], max(0.0, due - now))[0]:
                _take(busy, ready, idle, steady)
            if (now := time.perf_counter()) < due or steady.asked == total:
                continue
            if len(busy) >= _MOST_CONNECTIONS:
                raise LoadFailed(f"{len(busy)} answers outstanding at {rate:.0f} requests a second")
            steady.asked += 1
            steady.late += now - due > _LATE
            try:
                connection = idle.pop() if idle else _Connection(port)
                connection.ask(*ask(next(_numbers)))
            except OSError:
                steady.refused += 1
                continue
            busy[connection.socket.fileno()] = connection
        steady.broken += len(busy)
    finally:
        gc.enable()
        for connection in (*idle, *busy.values()):
            connection.socket.close()
    if not steady.taken:
        raise LoadFailed("no good answer")
    return steady


def _take(busy: dict[int, _Connection], ready: int, idle: list[_Connection], steady: Steady) -> None:
    connection = busy[ready]
    try:
        if not connection.read():
            return
    except (OSError, httptools.HttpParserError):
        connection.complete, connection.keep = False, False
    del busy[ready]
    if not connection.complete:
        steady.broken += 1
    elif connection.parser.get_status_code() >= 400:
        steady.refused += 1
    elif connection.expected not in (None, connection.body):
        steady.changed += 1
    else:
        steady.taken.append(time.perf_counter() - connection.began)
    if connection.keep:
        idle.append(connection)
    else:
        connection.socket.close()
