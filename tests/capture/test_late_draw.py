"""Calls of which a worker cannot tell whether `capture.rate` takes them: the training side decides in the same way."""

from __future__ import annotations

import gzip
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import zstandard
from captured_chats import completion, exchange, user
from test_recorder import Recording

from slipstream.proxy.sample import Draw, Sample
from slipstream.proxy.tap import Exchange
from slipstream.store.database import Database

HALF = Sample(0.5)


@pytest.fixture
async def half(tmp_path: Path) -> AsyncIterator[Recording]:
    database = Database(f"sqlite+aiosqlite:///{tmp_path}/slipstream.db")
    await database.open()
    yield Recording(database, rate=0.5)
    await database.close()


def body(number: int) -> bytes:
    return json.dumps({"model": "m", "messages": [user(f"conversation {number}")]}).encode()


def is_taken(number: int) -> bool:
    return HALF.draw("POST", "/v1/chat/completions", [], (body(number),), True, "default", None) is Draw.TAKEN


def texts(calls: list[Any]) -> list[str]:
    return sorted(call.request["messages"][0]["content"] for call in calls)


@pytest.mark.parametrize("encoding", ["", "gzip", "zstd"])
async def test_a_body_that_could_not_be_read_on_its_way(half: Recording, encoding: str) -> None:
    """Compressed, or taken by a worker of an earlier release."""
    pack = {"": bytes, "gzip": gzip.compress, "zstd": zstandard.compress}[encoding]
    headers = [(b"Content-Encoding", encoding.encode())] if encoding else []
    await half.record(*(exchange(request_headers=headers, request_body=pack(body(number))) for number in range(40)))
    taken = [number for number in range(40) if is_taken(number)]
    assert 10 < len(taken) < 30
    assert texts(await half.calls()) == sorted(f"conversation {number}" for number in taken)
    assert half.not_captured("rate") == 40 - len(taken)


async def test_what_a_worker_has_taken_is_not_drawn_again(half: Recording) -> None:
    await half.record(*(exchange(request_body=body(number), drawn=True) for number in range(10)))
    assert len(await half.calls()) == 10


async def test_a_body_that_cannot_be_read_at_all_is_counted_as_that(half: Recording) -> None:
    headers = [(b"content-encoding", b"gzip")]
    await half.record(*(exchange(request_headers=headers, request_body=b"no gzip") for _ in range(10)))
    assert (half.not_captured("encoding"), half.not_captured("rate")) == (10, None)


def response(answer_id: str, before: str | None = None, **fields: Any) -> Exchange:
    """A call of an agent that leaves the conversation to the provider."""
    said = {"id": f"msg_{answer_id}", "type": "message", "role": "assistant", "status": "completed"}
    answer = {
        "id": answer_id, "object": "response", "status": "completed", "model": "m",
        "output": [{**said, "content": [{"type": "output_text", "text": "yes", "annotations": []}]}],
    }  # fmt: skip
    asked = {"model": "m", "input": answer_id} | ({} if before is None else {"previous_response_id": before})
    return exchange(request=asked, answer=answer, path="/v1/responses", **fields)


async def test_what_the_provider_holds_is_taken_if_the_answer_before_was(half: Recording) -> None:
    await half.record(response("a1", drawn=True))
    await half.record(response("a2", "a1"), response("a3", "a2"), response("b2", "b1"), response("b3", "b2"))
    assert sorted(call.msg_id for call in await half.calls()) == ["a1", "a2", "a3"]
    assert half.not_captured("rate") == 2
    assert len({task.session_id for task in await half.tasks()}) == 1


async def test_a_header_decides_for_what_the_provider_holds(half: Recording) -> None:
    await half.record(response("c2", "c1", drawn=True, request_headers=[(b"x-slipstream-session-id", b"s")]))
    assert [task.session_id for task in await half.tasks()] == ["s"]


async def test_with_a_rate_of_1_all_are_taken(tmp_path: Path) -> None:
    database = Database(f"sqlite+aiosqlite:///{tmp_path}/slipstream.db")
    await database.open()
    recording = Recording(database)
    packed = exchange(request_headers=[(b"content-encoding", b"gzip")], request_body=gzip.compress(body(1)))
    await recording.record(packed, response("d2", "d1"), exchange(answer=completion({"role": "assistant"})))
    assert len(await recording.calls()) == 3
    await database.close()
