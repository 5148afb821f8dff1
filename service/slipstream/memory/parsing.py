"""One budget of memory for all JSON that the training side has read at the same time.

A text of 8 MiB can become 100 MB of objects, and captured calls, requests, answers of the Explorer and control bodies
are read beside each other. So each reader first reserves the memory that a text can take, which is estimated from its
bytes, and gives it back when the objects are gone. A text for which there is no room waits.
The budget has four parts, so that feedback never waits for training, nor what is read and let go of for what is kept:

| share     | part          | of                                                    | what does not fit              |
|-----------|---------------|-------------------------------------------------------|--------------------------------|
| `PASSING` | three eighths | bodies that a stage reads and lets go of              | waits in its order             |
| `JUDGED`  | three eighths | tasks and runs while strategies and calculators look  | waits in its order             |
| `CHAT`    | an eighth     | chats of `/explorer/` and `/runs/`                    | waits; a request for some time |
| `CONTROL` | an eighth     | bodies of the control API, such as feedback           | waits for some time            |

A reader reserves once in a share, never twice: two readers that each hold a part would wait for each other.
"""

from __future__ import annotations

import asyncio
import re
import threading
from collections import deque
from collections.abc import AsyncIterator, Iterator, Mapping
from concurrent.futures import Future
from contextlib import asynccontextmanager, contextmanager
from enum import StrEnum
from typing import NamedTuple, TypeVar

from slipstream.errors import RequestError
from slipstream.jsontext import values
from slipstream.metrics import Metrics

PATIENCE = 5.0
"""Seconds that a request waits before it is refused: clients give up after ten or more."""

MAX_VALUES = 500_000
"""Values of a body that is read. A list or an object takes up to 230 bytes of memory and as few as 3 of JSON:
`[[],[],...]` of 8 MiB would take more than 200 MB, and this takes up to 120 MB. A real body of 8 MiB has some 100,000;
only log probabilities of many thousand tokens, each with 20 alternatives, have more than this."""

_A_VALUE = 230
"""Bytes of memory that a value takes at most, with its place in a list or an object."""

_EXACTLY = 10_000
"""Values from which on they are counted without those that only look so, because they are in texts: that takes
several times as long, and code and prose have one in thirty characters."""

_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)
_FOUR_BYTES = (b"\xf0", b"\xf1", b"\xf2", b"\xf3", b"\xf4", b"\\ud", b"\\uD")
"""Signs of a character that Python keeps in four bytes, and with it all others of its text."""


class Share(StrEnum):
    """A part of the budget, by the use that is made of it; see the module."""

    PASSING = "passing"
    JUDGED = "judged"
    CHAT = "chat"
    CONTROL = "control"


_EIGHTHS = {Share.PASSING: 3, Share.JUDGED: 3, Share.CHAT: 1, Share.CONTROL: 1}

_Name = TypeVar("_Name")


class _Waiting(NamedTuple):
    future: Future[None]
    size: int


def memory_of(*texts: bytes, copies: int = 1, most: int = MAX_VALUES) -> int:
    """Return the bytes of memory that it takes at most to read these texts of JSON: of their values, of the texts, and
    of what reading them takes for a moment.

    Args:
        copies: copies of their values that the reader makes.
        most: values of a text that is read; one with more is refused, and takes none.
    """
    return kept_of(*texts, copies=copies, most=most) + 4 * sum(map(len, texts))


def kept_of(*texts: bytes, copies: int = 1, most: int = MAX_VALUES) -> int:
    """Return the bytes of memory that the values of these texts take at most; the arguments are those of
    `memory_of`."""
    return sum(_values_of(text, most) * _A_VALUE * copies + len(text) * _bytes_a_character(text) for text in texts)


def _values_of(text: bytes, most: int) -> int:
    count = values(text)
    if count > most:
        return 0
    return count if count <= _EXACTLY else values(_STRING.sub(b"", text))


def _bytes_a_character(text: bytes) -> int:
    if any(sign in text for sign in _FOUR_BYTES):
        return 4
    return 1 if text.isascii() and b"\\u" not in text else 2


def portions(sizes: Mapping[_Name, int], room: int) -> Iterator[tuple[list[_Name], int]]:
    """Yield the names of what is read together, in their order, with the memory that it takes: as many as there is room
    for, and at least one."""
    names: list[_Name] = []
    held = 0
    for name, size in sizes.items():
        if names and held + size > room:
            yield names, held
            names, held = [], 0
        names.append(name)
        held += size
    if names:
        yield names, held


class ParseMemory:
    """The budget, for threads and for coroutines.

    A text that needs more than a whole share is read alone in it.

    Args:
        size: bytes.
    """

    def __init__(self, size: int, metrics: Metrics) -> None:
        self._size = size
        self._metrics = metrics
        self._lock = threading.Lock()
        self._held = dict.fromkeys(Share, 0)
        self._waiting: dict[Share, deque[_Waiting]] = {share: deque() for share in Share}
        self._held_gauges = {share: metrics.parse_bytes.labels(share) for share in Share}
        self._waiting_gauges = {share: metrics.parse_waiting.labels(share) for share in Share}

    def room(self, share: Share) -> int:
        """Return the bytes that this share can hold at most."""
        return self._size * _EIGHTHS[share] // 8

    @contextmanager
    def held_by_thread(self, size: int, share: Share = Share.PASSING) -> Iterator[None]:
        """Hold so many bytes; the thread waits for them."""
        size = min(size, self.room(share))
        if (future := self._reserve(size, share)) is not None:
            future.result()
        try:
            yield
        finally:
            self._give_back(size, share)

    @asynccontextmanager
    async def held(
        self, size: int, share: Share = Share.PASSING, *, patience: float | None = None
    ) -> AsyncIterator[None]:
        """Hold so many bytes.

        Args:
            patience: seconds to wait for them; None for as long as it takes.

        Raises:
            RequestError: 503, they are not free within that time.
        """
        size = min(size, self.room(share))
        if (future := self._reserve(size, share)) is not None:
            try:
                async with asyncio.timeout(patience):
                    await asyncio.wrap_future(future)
            except BaseException as error:
                if not future.cancel():  # it was granted in this very moment
                    self._give_back(size, share)
                if isinstance(error, TimeoutError):
                    raise self._refusal() from None
                raise
        try:
            yield
        finally:
            self._give_back(size, share)

    def _refusal(self) -> RequestError:
        self._metrics.parse_refused.inc()
        text = "the body: the memory for what is read at the same time is in use (limits.parse_memory); try again"
        return RequestError(text, status=503, code="no_memory")

    def _reserve(self, size: int, share: Share) -> Future[None] | None:
        """Reserve at once, or return what tells when it is."""
        with self._lock:
            if not self._waiting[share] and self._fits(size, share):
                self._take(size, share)
                return None
            future: Future[None] = Future()
            self._waiting[share].append(_Waiting(future, size))
            self._grant(share)  # those that wait may have given up, or be larger
        return future

    def _give_back(self, size: int, share: Share) -> None:
        with self._lock:
            self._take(-size, share)
            self._grant(share)

    def _grant(self, share: Share) -> None:
        """Reserve for those who wait, as far as there is room."""
        waiting = self._waiting[share]
        passed_over = deque[_Waiting]()
        while waiting:
            one = waiting.popleft()
            if one.future.cancelled():
                continue
            if not self._fits(one.size, share):
                passed_over.append(one)
                if share is not Share.CONTROL:  # where a small one need not wait for a large one
                    break
            elif one.future.set_running_or_notify_cancel():
                self._take(one.size, share)
                one.future.set_result(None)
        waiting.extendleft(reversed(passed_over))
        self._waiting_gauges[share].set(len(waiting))

    def _fits(self, size: int, share: Share) -> bool:
        return self._held[share] + size <= self.room(share)

    def _take(self, size: int, share: Share) -> None:
        self._held[share] += size
        self._held_gauges[share].set(self._held[share])
