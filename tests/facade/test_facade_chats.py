"""Chats through the facade: as the Explorer answers them, waited for while it reloads, and remembered."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from facade_client import ask, commit, reward, seen
from loops import Loop, RunLoop
from ports import free_port
from scripted import ScriptedExplorer
from serving import serving, until
from starlette.responses import JSONResponse, Response

CHAT = "/explorer/v1/chat/completions"
BODY: dict[str, Any] = {"model": "/models/policy", "messages": [{"role": "user", "content": "hello"}]}
STREAM = {**BODY, "stream": True}


async def test_an_answer_comes_as_the_explorer_gave_it_and_nothing_of_the_callers_headers_goes_there(
    run_loop: RunLoop,
) -> None:
    async with run_loop() as loop:
        headers = {"authorization": "Bearer dummy", "cookie": "secret=1", "x-mine": "1"}
        response = await loop.client.post(CHAT, json={**BODY, "temperature": 0.3}, headers=headers)
        assert response.json()["choices"][0]["message"]["content"] == "policy says 1"
        assert loop.explorer.chats == [{**BODY, "temperature": 0.3}]
        assert not {"authorization", "cookie", "x-mine", "user-agent"} & set(loop.explorer.headers[0])
        assert (await seen(loop))["answers"] == {"whole": 1, "not_whole": 0}


@asynccontextmanager
async def streaming(loop: Loop) -> AsyncIterator[tuple[httpx.Response, AsyncIterator[str]]]:
    async with loop.client.stream("POST", CHAT, json=STREAM) as response:
        assert response.status_code == 200
        yield response, response.aiter_lines()


async def test_a_stream_passes_as_it_arrives(run_loop: RunLoop) -> None:
    async with run_loop() as loop:
        loop.explorer.pace.clear()
        async with streaming(loop) as (response, lines):
            assert response.headers["content-type"].startswith("text/event-stream")
            first = await anext(lines)
            loop.explorer.pace.set()
            rest = [line async for line in lines]
        assert '"role"' in first
        assert rest[-2:] == ["data: [DONE]", ""]
        assert "policy" in rest[1]


async def _locked(store: sqlite3.Connection) -> bool:
    """Whoever wants to write from now on waits."""
    try:
        store.execute("BEGIN IMMEDIATE")
    except sqlite3.OperationalError:  # the sidecar is writing
        return False
    return True


async def test_an_answer_is_remembered_before_its_last_byte_leaves(run_loop: RunLoop, tmp_path: Path) -> None:
    async with run_loop() as loop:
        await ask(loop)
        store = sqlite3.connect(tmp_path / "slipstream.db", timeout=0)
        await until(lambda: _locked(store))
        lines: list[str] = []

        async def read() -> None:
            async with streaming(loop) as (_, passing):
                async for line in passing:
                    lines.append(line)

        plain = asyncio.create_task(loop.client.post(CHAT, json=BODY))
        reading = asyncio.create_task(read())
        await until(lambda: any('"content": "says"' in line for line in lines) and loop.explorer.total == 3)
        assert not any("[DONE]" in line for line in lines)
        assert not plain.done()
        store.rollback()
        store.close()
        await asyncio.gather(plain, reading)
        assert "data: [DONE]" in lines
        assert (await seen(loop))["answers"] == {"whole": 3, "not_whole": 0}


@pytest.mark.sampled(1)
@pytest.mark.parametrize("faults", [[500], [503, 500], [429], [502, 504]])
@pytest.mark.parametrize("body", [BODY, STREAM])
async def test_a_chat_is_tried_again_while_the_explorer_reloads(
    run_loop: RunLoop, faults: list[int], body: dict[str, Any]
) -> None:
    async with run_loop() as loop:
        loop.explorer.faults["/v1/chat/completions"] = list(faults)
        response = await loop.client.post(CHAT, json=body)
        assert response.status_code == 200
        assert "policy" in response.text
        metrics = (await loop.client.get("/metrics")).text
        assert f"slipstream_facade_retries_total {len(faults)}.0" in metrics


@pytest.mark.slow
async def test_an_explorer_that_starts_late_is_waited_for(run_loop: RunLoop) -> None:
    explorer, port = ScriptedExplorer(), free_port()
    sections = {"facade": {"retry_for": "30s"}, "explorer": {"base_url": f"http://127.0.0.1:{port}"}}
    async with run_loop(**sections) as loop:
        chat = asyncio.create_task(loop.client.post(CHAT, json=BODY))

        async def tried() -> bool:
            return "slipstream_facade_retries_total 0.0" not in (await loop.client.get("/metrics")).text

        await until(tried)
        async with serving(explorer.app(), port):
            assert (await chat).status_code == 200


async def test_what_the_explorer_keeps_saying_is_passed_on(run_loop: RunLoop) -> None:
    async with run_loop(facade={"retry_for": 0}) as loop:
        loop.explorer.faults["/v1/chat/completions"] = [500, 400, 404]
        for status in (500, 400, 404):
            response = await loop.client.post(CHAT, json=BODY)
            assert (response.status_code, response.json()["error"]["message"]) == (status, "scripted fault")
        assert len(loop.explorer.chats) == 3


async def test_a_refusal_is_not_tried_again(run_loop: RunLoop) -> None:
    async with run_loop() as loop:
        loop.explorer.faults["/v1/chat/completions"] = [400]
        assert (await loop.client.post(CHAT, json=BODY)).status_code == 400
        assert len(loop.explorer.chats) == 1


async def test_an_explorer_that_is_away_is_an_error_in_words(run_loop: RunLoop) -> None:
    nobody = {"base_url": "http://127.0.0.1:9"}
    async with run_loop(facade={"retry_for": 0}, explorer=nobody) as loop:
        for path, status in ((CHAT, 502), ("/explorer/health", 503), ("/explorer/metrics", 503)):
            response = await (loop.client.post(path, json=BODY) if path == CHAT else loop.client.get(path))
            assert response.status_code == status
            assert response.json()["error"]["code"] == "explorer_unavailable"


@pytest.mark.slow
async def test_health_is_answered_within_the_patience_of_trinitys_client(run_loop: RunLoop) -> None:
    explorer = ScriptedExplorer()
    asked = asyncio.Event()

    async def hangs(request: Any) -> Response:
        asked.set()
        await asyncio.sleep(30)
        return JSONResponse({})

    explorer._health = hangs  # type: ignore[method-assign]
    async with run_loop(explorer) as loop:
        response = await loop.client.get("/explorer/health", timeout=20)
        assert response.status_code == 503
        assert "no answer within 1 s" in response.json()["error"]["message"], "Trinity's client waits 2 s"
        assert asked.is_set()


async def test_a_stream_that_was_cut_is_cut_for_the_client_and_never_rewarded(run_loop: RunLoop) -> None:
    async with run_loop() as loop:
        loop.explorer.cut_after = 2
        with pytest.raises(httpx.RemoteProtocolError):
            await loop.client.post(CHAT, json=STREAM)
        [msg_id] = loop.explorer.recorded  # the part, which Trinity would train on
        await until(lambda: _flawed(loop, 1))
        whole = await ask(loop)
        said = await reward(loop, msg_id, whole)
        assert (said["accepted"], said["rejected"], said["unknown"]) == (1, [msg_id], [])
        await commit(loop)
        assert [[e["msg_id"] for e in c] for c in loop.explorer.committed] == [[whole]]


@pytest.mark.slow
async def test_an_answer_whose_client_went_away_is_never_rewarded(run_loop: RunLoop) -> None:
    async with run_loop() as loop:
        loop.explorer.pace.clear()
        async with streaming(loop) as (_, lines):
            first = await anext(lines)
        await until(lambda: _flawed(loop, 1))
        loop.explorer.pace.set()
        msg_id = first.partition('"id": "')[2].partition('"')[0]
        assert (await reward(loop, msg_id))["rejected"] == [msg_id]


async def _flawed(loop: Loop, count: int) -> bool:
    return bool((await seen(loop))["answers"]["not_whole"] == count)


async def test_a_chat_that_is_too_long_is_refused(run_loop: RunLoop) -> None:
    async with run_loop(facade={"max_body": "1KiB"}) as loop:
        response = await loop.client.post(CHAT, json={**BODY, "user": "x" * 200_000})
        assert response.status_code == 413
        assert "facade.max_body" in response.json()["error"]["message"]
        assert loop.explorer.chats == []


async def test_no_more_chats_than_allowed_are_with_the_explorer(run_loop: RunLoop) -> None:
    async with run_loop(facade={"concurrency": 2}) as loop:
        loop.explorer.hold.clear()
        asking = [asyncio.create_task(ask(loop)) for _ in range(5)]
        await until(lambda: len(loop.explorer.chats) == 2)
        assert (await loop.client.get("/explorer/health")).status_code == 200
        assert len(loop.explorer.chats) == 2
        loop.explorer.hold.set()
        assert len(set(await asyncio.gather(*asking))) == 5


@pytest.mark.slow
async def test_a_client_that_stops_sending_its_chat_keeps_no_other_waiting(run_loop: RunLoop) -> None:
    async with run_loop(facade={"concurrency": 1, "timeout": "1s"}) as loop:
        reader, writer = await asyncio.open_connection(*loop.url.removeprefix("http://").split(":"))
        writer.write(f"POST {CHAT} HTTP/1.1\r\nhost: localhost\r\ncontent-length: 999\r\n\r\n{{".encode())
        assert (await asyncio.wait_for(reader.readline(), 10)).startswith(b"HTTP/1.1 408")
        await asyncio.wait_for(ask(loop), 10)
        writer.close()
        await writer.wait_closed()


@pytest.mark.parametrize("content", [b"", b"[]", b"null", b"\x1f\x8b gzip"])
async def test_what_is_no_object_is_refused_at_once(run_loop: RunLoop, content: bytes) -> None:
    async with run_loop() as loop:
        response = await loop.client.post(CHAT, content=content)
        assert (response.status_code, response.json()["error"]["code"]) == (400, "invalid_json")


@pytest.mark.slow
async def test_a_client_that_stops_reading_its_stream_keeps_no_other_waiting(run_loop: RunLoop) -> None:
    async with run_loop(facade={"concurrency": 1, "timeout": "1s", "max_body": "64MiB"}) as loop:
        loop.explorer.answer = " ".join(["policy" * 1000] * 3000)
        async with streaming(loop) as (_, lines):
            first = await anext(lines)
            loop.explorer.answer = "short"
            await asyncio.wait_for(ask(loop), 20)
            await until(lambda: _flawed(loop, 1))
        msg_id = first.partition('"id": "')[2].partition('"')[0]
        assert (await reward(loop, msg_id))["rejected"] == [msg_id]


async def test_models_and_metrics_are_the_explorers(run_loop: RunLoop) -> None:
    async with run_loop() as loop:
        models = await loop.client.get("/explorer/v1/models")
        assert models.json()["data"][0]["id"] == "slipstream-policy"
        await ask(loop)
        metrics = await loop.client.get("/explorer/metrics")
        assert metrics.json()["rollout/total_experience_count"] == 1
        loop.explorer.faults["/v1/models"] = [500]
        assert (await loop.client.get("/explorer/v1/models")).status_code == 500
