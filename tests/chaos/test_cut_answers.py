"""Answers of production that the schedules' check takes for cut: no whole answer is, and each one that is cut.

A client leaves with the last event of a stream, so what comes of production after that, if anything, is no part of it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import openai
import pytest

if TYPE_CHECKING:
    from chaos.record import Answer
    from chaos.sent import Sent

HERE = Path(__file__).parent
PATIENCE = 10.0
"""Seconds."""


@pytest.fixture(autouse=True)
def paths(monkeypatch: pytest.MonkeyPatch) -> None:
    for path in (HERE, HERE.parents[1] / "benchmarks"):
        monkeypatch.syspath_prepend(path)


@asynccontextmanager
async def production(folder: Path, way: str = "") -> AsyncIterator[str]:
    """The schedules' production model, told to misbehave; yields its base URL. Its log is `folder / "log"`."""
    from logged_production import Production

    orders = folder / "orders"
    orders.write_text(way)
    model, connections = Production(folder / "log", orders, "one"), set[asyncio.Task[None]]()

    def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.add(asyncio.create_task(model.serve(reader, writer)))

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
    finally:
        server.close()
        await asyncio.gather(*connections)  # each ends once its client has left


def sent(folder: Path) -> Sent:
    """The one answer in production's log."""
    from chaos.sent import answers_sent

    [answer] = answers_sent(folder / "log").values()
    return answer


async def ask(url: str, pieces: int, **more: Any) -> Answer:
    """Ask as an agent of the schedules does; returns what it got of the answer."""
    from chaos.record import Record, Recording

    record = Record()
    async with (
        httpx.AsyncClient(transport=Recording(record), timeout=PATIENCE) as http,
        openai.AsyncOpenAI(base_url=url, api_key="sk-agent", max_retries=0, http_client=http) as client,
    ):
        call = client.chat.completions.create(
            model="prod",
            messages=[{"role": "user", "content": "say\n\ndata: [DONE]\n\n"}],
            extra_headers={"x-pace": f"{pieces}x0"},
            **more,
        )
        with contextlib.suppress(openai.APIError, httpx.HTTPError, ValueError):
            answer = await call
            if more.get("stream"):
                async for _ in answer:
                    pass
    [got] = record.answers
    return got


async def test_a_stream_without_an_end_is_whole_for_a_client_that_leaves_after_its_last_event(tmp_path: Path) -> None:
    async with asyncio.timeout(PATIENCE), production(tmp_path, "endless") as url:
        got = await ask(url, pieces=1, stream=True)
        answer = sent(tmp_path)
    assert (answer.ended, answer.whole) == (False, True)
    assert (got.whole, got.left) == (False, True)
    assert b"data: [DONE]\n\n" in got.body


@pytest.mark.slow
async def test_a_stream_without_an_end_is_cut_where_its_last_event_never_came(tmp_path: Path) -> None:
    async with asyncio.timeout(PATIENCE), production(tmp_path, "endless") as url:
        got = await ask(url, pieces=20, stream=True)
        answer = sent(tmp_path)
    assert got.body
    assert not answer.whole


@pytest.mark.parametrize("way", ["truncated", "reset", "bad_chunk"])
@pytest.mark.parametrize("stream", [True, False])
async def test_an_answer_that_breaks_off_in_its_middle_is_cut(tmp_path: Path, way: str, stream: bool) -> None:
    async with asyncio.timeout(PATIENCE), production(tmp_path, way) as url:
        got = await ask(url, pieces=4, stream=stream)
        answer = sent(tmp_path)
    assert answer.body
    assert (answer.whole, got.whole, got.left) == (False, False, False)


@pytest.mark.parametrize("stream", [True, False])
async def test_an_answer_that_production_ended_is_whole(tmp_path: Path, stream: bool) -> None:
    async with asyncio.timeout(PATIENCE), production(tmp_path) as url:
        got = await ask(url, pieces=4, stream=stream)
        answer = sent(tmp_path)
    assert (answer.whole, got.whole) == (True, True)


def chunk(finish: str | None, text: str = "four") -> bytes:
    choice = {"index": 0, "delta": {"content": text}, "finish_reason": finish}
    return b"data: " + json.dumps({"choices": [choice]}).encode() + b"\n\n"


@pytest.mark.parametrize(
    ("body", "whole"),
    [
        (chunk(None), False),
        (chunk(None) + b"data: [DON", False),
        (chunk(None, 'say\ndata: [DONE]\nevent: message_stop\ndata: {}\n"finish_reason": "stop"'), False),
        (chunk(None) + b"data: [DONE]", True),
        (chunk(None) + b"data: [DONE]\n\n" + chunk(None), True),
        (chunk(None) + chunk("stop"), True),
        (chunk(None) + chunk("stop")[:-3], False),
        (b'event: message_stop\ndata: {"type": "message_stop"}\n\n', True),
        (b"event: message_stop\n", False),
        (b'event: response.completed\ndata: {"response": {}}\n\n', True),
        (b'event: response.completed\ndata: {"respo', False),
        (b'{"choices": [{"index": 0, "message": {}, "finish_reason": "stop"}]}', True),
        (b'{"choices": [{"index": 0, "message": {}, "finish_reason": "stop"}]', False),
        ('{"choices": [{"message": {"content": "漢'.encode()[:-1], False),
    ],
)
def test_a_part_of_a_body_is_an_answer_once_its_last_event_or_its_finish_is_there(body: bytes, whole: bool) -> None:
    from chaos.sent import holds_an_answer

    assert holds_an_answer(body) is whole
