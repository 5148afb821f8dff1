"""One budget of memory for all JSON that is read at the same time: who waits, who is refused, who goes first."""

from __future__ import annotations

import asyncio
import threading
import tracemalloc
from concurrent.futures import ThreadPoolExecutor

import pytest
from contexts import parse_memory

from slipstream.errors import RequestError
from slipstream.jsontext import from_json
from slipstream.memory.parsing import ParseMemory, Share, memory_of, portions

SIZE = 800
"""Bytes, of which 300, 300, 100 and 100 are the shares."""
MOST = 100_000
"""Values of a text that is read here."""


@pytest.fixture
def parsing() -> ParseMemory:
    return parse_memory(SIZE)


def _repeated(piece: bytes) -> bytes:
    return b"[" + piece * MOST + b"0]"


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "text",
    [
        pytest.param(_repeated(b"[],"), id="lists"),
        pytest.param(_repeated(b"[[[[]]]],"), id="lists within lists"),
        pytest.param(_repeated(b"{},"), id="objects"),
        pytest.param(_repeated(b'{"a":1},'), id="objects with a field"),
        pytest.param(_repeated(b'{"a":{"b":{"c":[]}}},'), id="objects within objects"),
        pytest.param(_repeated(b'"ab",'), id="texts"),
        pytest.param(_repeated('"🙂",'.encode()), id="texts of one emoji"),
        pytest.param(_repeated(b"12345678901234567890,"), id="large numbers"),
        pytest.param(b'["' + b"a" * 10**6 + "🙂".encode() + b'"]', id="a text with an emoji"),
        pytest.param(b'["' + b"a" * 10**6 + b'\\ud83d\\ude42"]', id="a text with an escaped emoji"),
        pytest.param(b'["' + b"a" * 10**6 + "—".encode() + b'"]', id="a text with a dash"),
        pytest.param(b"{" + b",".join(b'"%d":[]' % at for at in range(MOST)) + b"}", id="keys"),
    ],
)
def test_no_text_takes_more_than_is_reserved_for_it(text: bytes) -> None:
    tracemalloc.start()
    try:
        value = from_json(text)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert value
    assert peak + len(text) <= memory_of(text, most=10 * MOST)


def test_commas_in_a_long_text_are_no_values() -> None:
    code = b'["' + b"f(a, [b], {c}), " * 100_000 + b'\\", [\\""]'
    assert memory_of(code) < 6 * len(code)


async def test_what_does_not_fit_waits_until_something_is_given_back(parsing: ParseMemory) -> None:
    order = []

    async def read(name: str, size: int) -> None:
        async with parsing.held(size):
            order.append(name)

    async with parsing.held(200):
        large = asyncio.create_task(read("large", 250))
        await asyncio.sleep(0)
        small = asyncio.create_task(read("small", 60))
        await asyncio.sleep(0)
        assert order == [], "the large one is not kept from its turn by small ones"
    await asyncio.gather(large, small)
    assert order == ["large", "small"]


async def test_a_thread_waits_for_a_coroutine_and_a_coroutine_for_a_thread(parsing: ParseMemory) -> None:
    has_it, over = threading.Event(), threading.Event()

    def read() -> None:
        with parsing.held_by_thread(250):
            has_it.set()
            over.wait(10)

    with ThreadPoolExecutor(1) as executor:
        async with parsing.held(200):
            reading = executor.submit(read)
            assert not await asyncio.to_thread(has_it.wait, 0.1)
        assert await asyncio.to_thread(has_it.wait, 10)
        waiting = asyncio.create_task(_read(parsing, 200))
        await asyncio.sleep(0.05)
        assert not waiting.done()
        over.set()
        await asyncio.wait_for(waiting, 10)
        reading.result(10)


async def _read(parsing: ParseMemory, size: int, share: Share = Share.PASSING, patience: float | None = None) -> None:
    async with parsing.held(size, share, patience=patience):
        pass


async def test_no_share_takes_from_another(parsing: ParseMemory) -> None:
    async with parsing.held(10_000), parsing.held(10_000, Share.JUDGED):  # more than there is: alone in the share
        async with parsing.held(60, Share.CHAT):
            with pytest.raises(RequestError, match=r"limits\.parse_memory") as refused:
                await _read(parsing, 60, Share.CHAT, patience=0.01)
        await asyncio.wait_for(_read(parsing, 100, Share.CONTROL), 1)
    assert refused.value.status == 503


async def test_a_small_control_body_does_not_wait_for_a_large_one(parsing: ParseMemory) -> None:
    async with parsing.held(50, Share.CONTROL):
        large = asyncio.create_task(_read(parsing, 90, Share.CONTROL, patience=10))
        await asyncio.sleep(0)
        await asyncio.wait_for(_read(parsing, 10, Share.CONTROL), 1)
        assert not large.done()
    await large


async def test_what_gave_up_waiting_holds_nothing(parsing: ParseMemory) -> None:
    async with parsing.held(300):
        waiting = [asyncio.create_task(_read(parsing, 300)) for _ in range(3)]
        await asyncio.sleep(0)
        for one in waiting:
            one.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
    for share in Share:
        await asyncio.wait_for(_read(parsing, parsing.room(share), share), 1)


async def test_nothing_is_held_once_all_is_over_whoever_was_cancelled_when(parsing: ParseMemory) -> None:
    for at in range(50):
        sizes = [(parsing.room(share) // 2, share) for share in Share] * 4
        tasks = [asyncio.create_task(_read(parsing, size, share)) for size, share in sizes]
        for _ in range(at % 7):
            await asyncio.sleep(0)
        for one in tasks[at % 3 :: 2]:
            one.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    for share in Share:
        await asyncio.wait_for(_read(parsing, parsing.room(share), share), 1)


def test_a_text_that_is_refused_takes_nothing_but_its_bytes() -> None:
    assert memory_of(_repeated(b"[],"), most=MOST) < 10 * 3 * MOST


def test_portions_keep_the_order_and_the_room() -> None:
    sizes = {"a": 40, "b": 50, "c": 20, "d": 200, "e": 1}
    assert list(portions(sizes, 100)) == [(["a", "b"], 90), (["c"], 20), (["d"], 200), (["e"], 1)]
    assert list(portions({}, 100)) == []
