"""The agents of the soak: chats at a pace, streams that are always open, feedback and marks.

A process of its own; arguments: the sidecar's port, a seed. It takes orders as lines on stdin (`streams 1000`,
`closed 64`, `rate 3000`), and says in a line of JSON each second what it saw since the line before.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Coroutine

import uvloop

from soak.asked import Asked, answer, msg_id, post, request
from soak.clients import Connection, Stream

_KINDS = {"answer": 0.982, "late": 0.006, "status429": 0.004, "status500": 0.003, "reset": 0.003, "cut": 0.002}
"""What chats ask production to do, by share."""
_STREAMS = {"trickle": 0.93, "leaves": 0.03, "broken": 0.03, "slow": 0.01}
"""What streams are, by share."""
_TOLD = 0.003
"""Share of the chats that feedback follows; a mark follows one in four of them."""
_CLOSED = 0.02
"""Share of the chats whose connection ends with them."""
_MOST_OUTSTANDING = 3000
"""Chats without an answer, from which on none are asked: production would be slower than the pace."""
_TICK = 0.002
_OPENING = 250
"""Streams opened a second."""


class Seen:
    """What came of the requests since the last line."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.taken: list[float] = []

    def line(self, streams: int, outstanding: int) -> str:
        taken, self.taken = sorted(self.taken), []
        counts, self.counts = self.counts, Counter()
        cut = {f"p{share}": taken[len(taken) * share // 100] if taken else None for share in (50, 99)}
        return json.dumps({"at": time.time(), **cut, "streams": streams, "outstanding": outstanding, "counts": counts})


class Load:
    """Everything that agents do.

    Args:
        port: the sidecar's.
        rng: decides what is asked.
    """

    def __init__(self, port: int, rng: random.Random) -> None:
        self._port = port
        self._rng = rng
        self._seen = Seen()
        self._number = time.time_ns() // 1_000_000 * 1000
        self._idle: list[Connection] = []
        self._outstanding = 0
        self._streams: set[Stream] = set()
        self._wanted_streams = 0
        self._closed = 0
        self._rate = 0.0
        self._owed = 0.0
        self._tasks: set[asyncio.Task[None]] = set()

    def order(self, orders: str) -> None:
        """Do from now on what some lines say."""
        for line in orders.splitlines():
            what, value = line.split()
            if what == "streams":
                self._wanted_streams = int(value)
            else:
                self._rate = float(value) if what == "rate" else 0.0
                self._closed = int(value) if what == "closed" else 0
                self._owed = 0.0

    async def run(self) -> None:
        """Until the process ends."""
        loop = asyncio.get_running_loop()
        looked_at, said_at = loop.time(), loop.time()
        while True:
            await asyncio.sleep(_TICK)
            now = loop.time()
            self._keep_streams(now - looked_at)
            self._owed += self._rate * (now - looked_at)
            due = int(self._owed)
            self._owed -= due
            for _ in range(max(due, self._closed - self._outstanding)):
                if self._outstanding >= _MOST_OUTSTANDING:
                    self._seen.counts["held back"] += 1
                else:
                    self._chat()
            looked_at = now
            if now - said_at >= 1.0:
                said_at = now
                print(self._seen.line(sum(stream.began for stream in self._streams), self._outstanding), flush=True)

    def _next(self) -> int:
        self._number += 1
        return self._number

    def _start(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _chat(self) -> None:
        number = self._next()
        kind = self._rng.choices(tuple(_KINDS), tuple(_KINDS.values()))[0]
        asked = Asked(kind, number, every_ms=1000 if kind == "late" else 0)
        before = Asked("answer", number - 1) if number % 2 else None
        told = self._rng.random() < _TOLD
        task_id = f"soak-{number}" if told else None
        whole = request(asked, before=before, task_id=task_id, close=self._rng.random() < _CLOSED)
        self._outstanding += 1
        began = time.perf_counter()

        def done(status: int | None, body: bytes) -> None:
            self._outstanding -= 1
            self._chat_ended(asked, status, body, time.perf_counter() - began)
            if task_id and status == 200:
                self._start(self._tell(task_id, number))
            if self._outstanding < self._closed:
                self._chat()

        while self._idle:
            connection = self._idle.pop()
            if connection.open:
                connection.ask(whole, done)
                return
        self._start(self._connect_and_ask(whole, done))

    async def _connect_and_ask(self, whole: bytes, done: Callable[[int | None, bytes], None]) -> None:
        loop = asyncio.get_running_loop()
        try:
            _, connection = await loop.create_connection(lambda: Connection(self._idle), "127.0.0.1", self._port)
        except OSError:
            done(None, b"")
        else:
            connection.ask(whole, done)

    def _chat_ended(self, asked: Asked, status: int | None, body: bytes, seconds: float) -> None:
        counts, kind = self._seen.counts, asked.kind
        if kind in ("answer", "late"):
            expected = status == 200 and body == answer(asked.number)
        elif kind == "reset":
            expected = status == 502
        elif kind == "cut":
            expected = status is None
        else:
            expected = status == int(kind.removeprefix("status"))
        counts["chats"] += 1
        if not expected:
            counts[f"unexpected: {kind} {status if status != 200 else 'with other bytes'}"] += 1
        elif kind == "answer":
            self._seen.taken.append(seconds)
        else:
            counts[kind] += 1

    async def _tell(self, task_id: str, number: int) -> None:
        """Say what the user thought of an answer, until it is acknowledged."""
        await asyncio.sleep(self._rng.uniform(0, 3))
        await self._post("/feedback", {"task_id": task_id, "rating": self._rng.randint(1, 5)}, "feedback")
        if number % 4 == 0:
            await self._post("/marks", {"msg_id": msg_id(number), "labels": ["soak"]}, "marks")

    async def _post(self, path: str, body: dict[str, object], name: str) -> None:
        loop = asyncio.get_running_loop()
        headers = {"host": "127.0.0.1", "content-type": "application/json", "connection": "close"}
        whole = post(path, headers, json.dumps(body).encode())
        for _ in range(60):
            answered: asyncio.Future[int | None] = loop.create_future()

            def done(status: int | None, _: bytes, answered: asyncio.Future[int | None] = answered) -> None:
                answered.set_result(status)

            await self._connect_and_ask(whole, done)
            status = await answered
            if status == 202:
                self._seen.counts[name] += 1
                return
            if status not in (None, 502, 503, 504):
                self._seen.counts[f"unexpected: {name} {status}"] += 1
                return
            self._seen.counts[f"{name} tried again"] += 1
            await asyncio.sleep(1)
        self._seen.counts[f"unexpected: {name} never taken"] += 1

    def _keep_streams(self, passed: float) -> None:
        missing = self._wanted_streams - len(self._streams)
        for _ in range(min(missing, max(1, int(_OPENING * passed)))):
            kind = self._rng.choices(tuple(_STREAMS), tuple(_STREAMS.values()))[0]
            if kind == "slow":
                asked = Asked("stream", self._next(), 128, 10, 65536)
            else:
                events = self._rng.randint(20, 80)
                asked = Asked("broken" if kind == "broken" else "stream", self._next(), events, 1000, 40)
            stream = Stream(kind, asked, self._stream_ended)
            self._streams.add(stream)
            self._start(self._open(stream))

    async def _open(self, stream: Stream) -> None:
        try:
            await asyncio.get_running_loop().create_connection(lambda: stream, "127.0.0.1", self._port)
        except OSError:
            self._stream_ended(stream, "unexpected: no connection for a stream")

    def _stream_ended(self, stream: Stream, outcome: str) -> None:
        self._streams.discard(stream)
        self._seen.counts[outcome] += 1


async def main(port: int, seed: int) -> None:
    """Do what the lines on stdin say."""
    load = Load(port, random.Random(seed))
    asyncio.get_running_loop().add_reader(0, lambda: load.order(os.read(0, 4096).decode()))
    await load.run()


if __name__ == "__main__":
    uvloop.run(main(int(sys.argv[1]), int(sys.argv[2])))
