"""One look at the sidecar for all who watch it: computed once for each scope, sent where it has changed.

    looks, once a second ──▶ the state of each topic, by scope ──▶ all streams of that scope

A stream holds no queue. It remembers which state it sent last, and takes the newest one when its reader is ready for
it, so that a slow reader misses states in between and costs no memory.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import structlog
from sqlalchemy.exc import SQLAlchemyError

from slipstream.access.scope import Scope
from slipstream.errors import error_body
from slipstream.jsontext import to_json

_log = structlog.get_logger(__name__)

_REST = 1
"""Times what a look took, until the next one: where the store is slow, looking takes no more than half of the time."""

_TOLD_EACH = 5.0
"""Seconds between two events of which only the words differ, such as the age of a problem."""

SILENCE = 15.0
"""Seconds after which a comment is sent on a silent stream, so that a dead one is found, and no proxy on the way takes
it for one."""

_AT_ONCE, _BREATH = 50, 0.02
"""Streams that are woken together, and seconds before the next ones: a thousand at once would hold requests up."""

_RETRY = 2_000, 5_000
"""Milliseconds, drawn for each stream, after which a browser opens it again: after a restart, not all in one moment."""

_AGAIN = 250
"""The same for a stream that has only reached its age."""

AWAY = "unavailable"
"""The topic that says that nothing can be read at the moment."""


@dataclass(frozen=True, slots=True)
class State:
    """The state of one topic.

    Attributes:
        shown: what is sent, as JSON.
        compared: without what passes with time alone; another one is sent.
        at_once: the part of that whose change is sent at once; others wait for their turn.
    """

    shown: Any
    compared: Any
    at_once: Any


Look = Callable[[Scope], Awaitable[Mapping[str, State]]]
"""Computes the state of each topic for a scope. Raises SQLAlchemyError or OSError while the store is away."""


@dataclass(slots=True)
class _Topic:
    """A topic as it was looked at last.

    Attributes:
        number: rises where it is to be sent again.
        event: as it is sent.
        sent_at: when the number rose, by the monotonic clock.
    """

    number: int = 0
    event: bytes = b""
    state: State | None = None
    sent_at: float = 0.0


@dataclass(slots=True)
class _Channel:
    """The topics of one scope, and the streams that show them.

    Attributes:
        looked: the first look is over.
    """

    scope: Scope
    topics: dict[str, _Topic] = field(default_factory=dict)
    streams: dict[Stream, None] = field(default_factory=dict)
    looked: bool = False

    def put(self, states: Mapping[str, State], now: float) -> bool:
        """Take the states of a look. Returns whether there is something to send."""
        again = self.topics.pop(AWAY, None) is not None
        sent = False
        for name, state in states.items():
            topic = self.topics.setdefault(name, _Topic())
            topic.event = _event(name, state.shown)  # always: a stream that begins gets the times of now
            before = topic.state
            urgent = again or before is None or before.at_once != state.at_once
            waited = now - topic.sent_at >= _TOLD_EACH
            if urgent or (waited and before is not None and before.compared != state.compared):
                topic.number, topic.state, topic.sent_at = topic.number + 1, state, now
                sent = True
        return sent

    def lose(self, message: str, code: str) -> bool:
        """Nothing can be read. Returns whether that is new."""
        if AWAY in self.topics:
            return False
        self.topics[AWAY] = _Topic(1, _event(AWAY, error_body(message, kind="server_error", code=code)))
        return True


class Stream:
    """One reader.

    Attributes:
        channel: what it shows.
    """

    def __init__(self, channel: _Channel) -> None:
        self.channel = channel
        self._wake = asyncio.Event()
        self._sent: dict[str, int] = {}

    def wake(self) -> None:
        """There may be something to send, or to end for."""
        self._wake.set()

    async def pieces(self, hub: EventHub, seconds: float) -> AsyncIterator[bytes]:
        """Yield the whole state and then what changes, as text of an event stream, until it is so old or the hub ends.

        Args:
            seconds: its age. The first state is sent in any case.
        """
        yield b"retry: %d\n\n" % random.randint(*_RETRY)  # noqa: S311 - no secret
        ends_at = time.monotonic() + seconds
        while not hub.ended:
            self._wake.clear()
            if events := self._newer():
                yield events
                continue
            left = ends_at - time.monotonic()
            if left <= 0 and self.channel.looked:
                yield b"retry: %d\n\n" % _AGAIN
                return
            try:
                async with asyncio.timeout(min(hub.silence, left) if left > 0 else hub.silence):
                    await self._wake.wait()
            except TimeoutError:
                if left > hub.silence or not self.channel.looked:
                    yield b":\n\n"

    def _newer(self) -> bytes:
        """The events that this stream has not sent."""
        topics = self.channel.topics
        newer = {name: topic for name, topic in topics.items() if self._sent.get(name) != topic.number}
        self._sent = {name: topic.number for name, topic in topics.items()}
        return b"".join(topic.event for topic in newer.values())


class EventHub:
    """All event streams of a sidecar. Looks only while there are any.

    Args:
        pause: seconds between two looks, at least.
        silence: seconds, as of `SILENCE`.

    Attributes:
        ended: there is nothing to wait for any more.
        open: streams.
    """

    def __init__(self, look: Look, *, pause: float, silence: float = SILENCE) -> None:
        self._look = look
        self._pause = pause
        self.silence = silence
        self._channels: dict[Scope, _Channel] = {}
        self._came = asyncio.Event()
        self._looking: asyncio.Task[None] | None = None
        self.ended = False
        self.open = 0

    @contextmanager
    def joined(self, scope: Scope) -> Iterator[Stream]:
        """A stream of what a scope may see, which is counted until the end of the block."""
        channel = self._channels.setdefault(scope, _Channel(scope))
        stream = Stream(channel)
        channel.streams[stream] = None
        self.open += 1
        self._came.set()
        if (self._looking is None or self._looking.done()) and not self.ended:
            self._looking = asyncio.create_task(self._looks(), name="event_hub")
        try:
            yield stream
        finally:
            self.open -= 1
            del channel.streams[stream]
            if not channel.streams:
                del self._channels[scope]
                self._came.set()  # the last one ends the looking

    def end(self) -> None:
        """End all streams, those that are opened from now on as well: browsers open them again at the next process."""
        self.ended = True
        if self._looking is not None:
            self._looking.cancel()
            self._looking = None
        for channel in self._channels.values():
            for stream in channel.streams:
                stream.wake()

    async def _looks(self) -> None:
        due = 0.0
        while self._channels:
            self._came.clear()
            began = time.monotonic()
            everything, spent = began >= due, 0.0
            for channel in list(self._channels.values()):
                if channel.streams and (everything or not channel.looked):
                    spent += await self._look_at(channel)
            if everything:
                due = began + max(self._pause, (1 + _REST) * spent)
            with suppress(TimeoutError):
                async with asyncio.timeout(max(0.0, due - time.monotonic())):
                    await self._came.wait()
        self._looking = None

    async def _look_at(self, channel: _Channel) -> float:
        """Look once. Returns the seconds that it took."""
        began = time.monotonic()
        try:
            news = channel.put(await self._look(channel.scope), time.monotonic())
        except (SQLAlchemyError, OSError) as error:
            news = channel.lose("the store does not answer; the log says why", "store_unavailable")
            if news:
                _log.error("events_not_read", error=repr(error))
        except (Exception, asyncio.CancelledError):  # a fault of one view must not end the streams of all others
            if (task := asyncio.current_task()) is not None and task.cancelling():
                raise
            news = channel.lose("a fault of the sidecar; its log says more", "fault")
            if news:
                _log.exception("events_not_read")
        spent = time.monotonic() - began
        channel.looked = True
        if news:
            await self._wake(channel)
        return spent

    async def _wake(self, channel: _Channel) -> None:
        streams = iter(list(channel.streams))
        while some := list(islice(streams, _AT_ONCE)):
            for stream in some:
                stream.wake()
            await asyncio.sleep(_BREATH if len(some) == _AT_ONCE else 0)


def _event(name: str, shown: Any) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (name.encode(), to_json(shown))
