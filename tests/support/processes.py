"""Agents, a production model and a sidecar in processes of its own, for tests of what ends, dies and is replaced."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from scripted import completion
from serving import serving
from sidecar_process import SidecarProcess
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

AWAY = "http://127.0.0.1:9"
STREAMS = 32
"""So many that the kernel does not give all of them to one of two workers."""


class Production:
    """Streams say their first event and wait for `go`."""

    def __init__(self) -> None:
        self.go = asyncio.Event()
        self.asked = 0

    def app(self) -> Starlette:
        return Starlette(routes=[Route("/v1/chat/completions", self._chat, methods=["POST"])])

    async def _chat(self, request: Request) -> Response:
        body = await request.json()
        self.asked += 1
        answer_id = f"prod-{self.asked}"
        if body.get("stream"):
            return StreamingResponse(self._events(answer_id), media_type="text/event-stream")
        return JSONResponse(completion(answer_id, "yes"))

    async def _events(self, answer_id: str) -> AsyncIterator[bytes]:
        yield event(answer_id, {"role": "assistant", "content": "one "}, None)
        await self.go.wait()
        yield event(answer_id, {"content": "two"}, "stop") + b"data: [DONE]\n\n"


def event(answer_id: str, delta: dict[str, Any], reason: str | None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": reason}
    chunk = {"id": answer_id, "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}
    return b"data: " + json.dumps(chunk).encode() + b"\n\n"


@pytest.fixture
async def production() -> AsyncIterator[tuple[Production, str]]:
    served = Production()
    async with serving(served.app()) as url:
        yield served, url
        served.go.set()


@contextlib.asynccontextmanager
async def running(
    folder: Path, url: str, program: tuple[str, ...] | None = None, /, **sections: Any
) -> AsyncIterator[SidecarProcess]:
    sidecar = SidecarProcess(folder, url, AWAY, **sections)
    sidecar.program = program or sidecar.program
    sidecar.log = folder / "sidecar.log"
    await sidecar.start()
    try:
        yield sidecar
    finally:
        pids = [sidecar.pid, *sidecar.children().values()] if alive(sidecar.pid) else []
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        await sidecar.ended()


def alive(pid: int) -> bool:
    """Whether this process runs; one that has ended and that nobody has asked about does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


async def chat(url: str, content: str, **fields: Any) -> int:
    """A call over a connection of its own; returns the answer's status."""
    body = {"model": "m", "messages": [{"role": "user", "content": content}], **fields}
    async with httpx.AsyncClient(timeout=20) as client:
        return (await client.post(f"{url}/v1/chat/completions", json=body)).status_code


class Stream:
    """A streamed call that is under way, on a connection that the agent keeps open after it."""

    def __init__(self, url: str, content: str) -> None:
        self._url = url
        self._body = {"model": "m", "stream": True, "messages": [{"role": "user", "content": content}]}
        self._client = httpx.AsyncClient(timeout=60)
        self._reading = asyncio.create_task(self._read())
        self.began = asyncio.Event()
        self.text = ""

    async def _read(self) -> None:
        try:
            with contextlib.suppress(httpx.TransportError):
                async with self._client.stream("POST", f"{self._url}/v1/chat/completions", json=self._body) as answer:
                    async for piece in answer.aiter_text():
                        self.text += piece
                        self.began.set()
        finally:
            self.began.set()

    async def whole(self) -> bool:
        """Whether the answer came to its end."""
        await self._reading
        return self.text.endswith("data: [DONE]\n\n")

    async def close(self) -> None:
        await self._client.aclose()


class Agents:
    """Agents with a call under way each."""

    def __init__(self) -> None:
        self._streams: list[Stream] = []

    async def call(self, url: str, content: str) -> Stream:
        """A streamed call whose first event is there."""
        self._streams.append(Stream(url, content))
        await self._streams[-1].began.wait()
        return self._streams[-1]

    async def leave(self) -> None:
        for one in self._streams:
            await one.close()


@pytest.fixture
async def agents() -> AsyncIterator[Agents]:
    made = Agents()
    yield made
    await made.leave()


def stored(store: Path) -> list[str]:
    """The stored calls' production ids."""
    with contextlib.closing(sqlite3.connect(store)) as connection:
        return sorted(row[0] for row in connection.execute("SELECT msg_id FROM calls"))


async def metric(url: str, name: str) -> float:
    """The value of a series, written as it is scraped; 0 where it is not there."""
    async with httpx.AsyncClient(timeout=20) as client:
        text = (await client.get(f"{url}/metrics")).text
    return sum(float(line.rpartition(" ")[2]) for line in text.splitlines() if line.startswith(f"{name} "))


def refused(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0
