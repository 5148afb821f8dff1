"""The hub of event streams, with a scripted look in the place of the sidecar's."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import ExitStack
from typing import Any

from event_stream import parsed
from serving import until
from sqlalchemy.exc import OperationalError

from slipstream.access.scope import EVERYTHING, LEAST, Scope
from slipstream.api.event_hub import EventHub, State, Stream

LIFE = 60.0


class Looked:
    """What is looked at.

    Attributes:
        state: of the one topic.
        looks: by tenant.
        fails: raised by each look.
    """

    def __init__(self) -> None:
        self.state = State(1, 1, 1)
        self.looks: Counter[str | None] = Counter()
        self.fails: Exception | None = None

    async def look(self, scope: Scope) -> Mapping[str, State]:
        self.looks[scope.tenant] += 1
        if self.fails is not None:
            raise self.fails
        return {"topic": self.state}

    def show(self, shown: Any, *, at_once: Any = None) -> None:
        self.state = State(shown, shown, shown if at_once is None else at_once)

    async def again(self, scope: Scope = EVERYTHING) -> None:
        """Wait for a look that begins after this moment, and for its end."""
        looks = self.looks[scope.tenant] + 2
        await until(lambda: self.looks[scope.tenant] >= looks)


def events(hub: EventHub, stream: Stream, seconds: float = LIFE) -> AsyncIterator[tuple[str, Any]]:
    async def lines() -> AsyncIterator[str]:
        async for piece in stream.pieces(hub, seconds):
            for line in piece.decode().splitlines():
                yield line

    return parsed(lines())


def hub_of(looked: Looked, silence: float = 30.0) -> EventHub:
    return EventHub(looked.look, pause=0.001, silence=silence)


async def test_where_nothing_changes_only_comments_come() -> None:
    looked = Looked()
    hub = hub_of(looked, silence=0.01)
    with hub.joined(EVERYTHING) as stream:
        found = events(hub, stream)
        assert await anext(found) == ("topic", 1)
        for _ in range(3):
            assert await anext(found) == ("", None)
        looked.show(2)
        while (event := await anext(found)) == ("", None):
            pass
        assert event == ("topic", 2)


async def test_times_that_pass_are_sent_with_something_else_and_words_alone_now_and_then() -> None:
    looked = Looked()
    hub = hub_of(looked)
    with hub.joined(EVERYTHING) as stream:
        found = events(hub, stream)
        assert await anext(found) == ("topic", 1)
        looked.state = State("a second later", 1, 1)
        await looked.again()
        looked.state = State("other words", "other words", 1)
        await looked.again()
        with hub.joined(EVERYTHING) as late:
            assert await anext(events(hub, late)) == ("topic", "other words"), "a stream begins with what is there now"
        looked.state = State("another state", "other words", 2)
        assert await anext(found) == ("topic", "another state")


async def test_a_slow_reader_gets_the_newest_state_alone() -> None:
    looked = Looked()
    hub = hub_of(looked)
    with hub.joined(EVERYTHING) as slow, hub.joined(EVERYTHING) as quick:
        slowly, quickly = events(hub, slow), events(hub, quick)
        assert await anext(slowly) == await anext(quickly) == ("topic", 1)
        for shown in range(2, 30):
            looked.show(shown)
            assert await anext(quickly) == ("topic", shown)
        assert await anext(slowly) == ("topic", 29)


async def test_a_scope_is_looked_at_once_for_all_its_streams_and_not_when_nobody_reads() -> None:
    looked = Looked()
    hub = hub_of(looked)
    with ExitStack() as held:
        streams = [held.enter_context(hub.joined(scope)) for scope in (EVERYTHING, LEAST) for _ in range(20)]
        for stream in streams:
            assert await anext(events(hub, stream)) == ("topic", 1)
        assert set(looked.looks) == {EVERYTHING.tenant, LEAST.tenant}
        assert abs(looked.looks[EVERYTHING.tenant] - looked.looks[LEAST.tenant]) <= 1
    await asyncio.sleep(0.01)
    looks = looked.looks.total()
    await asyncio.sleep(0.02)
    assert looked.looks.total() == looks
    with hub.joined(LEAST) as stream:
        assert await anext(events(hub, stream)) == ("topic", 1)


async def test_a_store_that_is_away_is_told_and_the_whole_state_after_it() -> None:
    looked = Looked()
    hub = hub_of(looked)
    with hub.joined(EVERYTHING) as stream:
        found = events(hub, stream)
        assert await anext(found) == ("topic", 1)
        for error, code in ((OperationalError(None, None, Exception()), "store_unavailable"), (KeyError(), "fault")):
            looked.fails = error
            name, data = await anext(found)
            assert (name, data["error"]["code"]) == ("unavailable", code)
            await looked.again()
            looked.fails = None
            assert await anext(found) == ("topic", 1)


async def test_streams_end_by_age_and_all_of_them_with_the_hub() -> None:
    looked = Looked()
    hub = hub_of(looked)
    with hub.joined(EVERYTHING) as stream, hub.joined(EVERYTHING) as short:
        assert [event async for event in events(hub, short, seconds=0.0)] == [("topic", 1)]
        found = events(hub, stream)
        assert await anext(found) == ("topic", 1)
        hub.end()
        assert [event async for event in found] == []
    with hub.joined(EVERYTHING) as stream:
        assert [event async for event in events(hub, stream)] == [], "a browser is to come back to the next process"
