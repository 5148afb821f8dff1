"""`slipstream serve` whose stderr is a full pipe that is not read, as where a log driver stalls."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
from full_pipe import full_pipe
from peer import Peer
from scripted import completion
from serving import until
from sidecar_process import SidecarProcess

BROKEN = 60
"""Calls that production does not answer; a worker logs a line about each."""

ANSWER = json.dumps(completion("prod-1", "yes"), indent=3).encode()

LITTLE_ROOM = (
    "-c",
    "from slipstream import cli, output\n"
    "from slipstream.serve import beating, prefork\n"
    "output._IN_SOCKET = output._IN_RELAY = 2**13\n"
    "beating.BEAT, prefork.LOOK = 0.1, 1.0\n"
    "cli.main()\n",
)
"""The command, with room for some dozens of lines, and with less patience for what hangs."""


async def _production(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    peer = Peer(reader, writer)
    with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
        while b"break off" not in (await peer.request()).body:
            head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(ANSWER)
            await peer.send(head + ANSWER)
    writer.close()
    with contextlib.suppress(ConnectionError):
        await writer.wait_closed()


@contextlib.asynccontextmanager
async def running(folder: Path, stderr: int) -> AsyncIterator[tuple[SidecarProcess, httpx.AsyncClient]]:
    connections: set[asyncio.Task[None] | None] = set()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.add(asyncio.current_task())
        await _production(reader, writer)
        connections.discard(asyncio.current_task())

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    sidecar = SidecarProcess(folder, url, "http://127.0.0.1:9", log={"level": "debug"})
    sidecar.program, sidecar.stderr = LITTLE_ROOM, stderr
    try:
        await sidecar.start()
        async with httpx.AsyncClient(base_url=sidecar.url, timeout=60) as client:
            yield sidecar, client
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(sidecar.pid, signal.SIGKILL)
        await sidecar.ended()
        server.close()
        await until(lambda: not connections)


async def chat(client: httpx.AsyncClient, content: str) -> httpx.Response:
    body = {"model": "m", "messages": [{"role": "user", "content": content}]}
    return await client.post("/v1/chat/completions", json=body)


async def dropped(client: httpx.AsyncClient) -> float:
    text = (await client.get("/metrics")).text
    [line] = [line for line in text.splitlines() if line.startswith("slipstream_log_lines_dropped_total ")]
    return float(line.rpartition(" ")[2])


def stored(store: Path) -> int:
    with contextlib.closing(sqlite3.connect(store)) as connection:
        count: int = connection.execute("SELECT count(*) FROM calls").fetchone()[0]
        return count


async def fill(client: httpx.AsyncClient) -> None:
    for _ in range(BROKEN):
        assert (await chat(client, "break off")).status_code == 502


@pytest.mark.slow
async def test_nothing_waits_for_a_log_that_is_not_read_and_what_was_dropped_is_said(tmp_path: Path) -> None:
    with full_pipe() as (reader, writer):
        async with running(tmp_path, writer) as (sidecar, client):
            await fill(client)
            assert (await chat(client, "hello")).content == ANSWER
            await until(lambda: stored(sidecar.store) == 1, 60)
            for name in ("training", "proxy-0"):  # the parent, too, has something to say
                killed = sidecar.children()[name]
                os.kill(killed, signal.SIGKILL)
                await until(lambda name=name, killed=killed: sidecar.children().get(name, killed) != killed, 60)
            assert (await client.get("/readyz")).status_code == 200
            assert (await chat(client, "hello again")).content == ANSWER
            await until(lambda: stored(sidecar.store) == 2, 60)
            lost = await dropped(client)
            assert lost > 0
            os.close(writer)

            os.set_blocking(reader, False)
            read = b""

            def said() -> float:
                nonlocal read
                with contextlib.suppress(BlockingIOError):
                    read += os.read(reader, 2**20)
                whole = read[: read.rfind(b"\n") + 1]
                found = [json.loads(line) for line in whole.splitlines() if line]
                return sum(line["lines"] for line in found if line["event"] == "log_lines_dropped")

            await until(lambda: said() >= lost, 60)
            assert (await chat(client, "break off")).status_code == 502
            await until(lambda: said() and read.rstrip().splitlines()[-1].find(b'"upstream_failed"') >= 0)
            assert await dropped(client) == said()


@pytest.mark.slow
async def test_an_end_in_order_does_not_wait_for_the_reader(tmp_path: Path) -> None:
    with full_pipe() as (_, writer):
        async with running(tmp_path, writer) as (sidecar, client):
            await fill(client)
            assert (await chat(client, "hello")).content == ANSWER
            assert await sidecar.end(signal.SIGTERM) == 0
            assert stored(sidecar.store) == 1


@pytest.mark.slow
async def test_what_hangs_is_replaced_although_nothing_can_be_said_of_it(tmp_path: Path) -> None:
    with full_pipe() as (_, writer):
        async with running(tmp_path, writer) as (sidecar, client):
            await fill(client)
            for name in ("proxy-0", "training"):
                hung = sidecar.children()[name]
                os.kill(hung, signal.SIGSTOP)
                await until(lambda name=name, hung=hung: sidecar.children().get(name, hung) != hung, 120)
            assert (await chat(client, "hello")).content == ANSWER
            assert (await client.get("/readyz")).status_code == 200


@pytest.mark.slow
async def test_the_relay_of_the_log_is_started_again(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with log.open("wb") as file:
        async with running(tmp_path, file.fileno()) as (sidecar, client):
            killed = sidecar.children()["log"]
            os.kill(killed, signal.SIGKILL)
            await until(lambda: sidecar.children().get("log", killed) != killed)
            assert (await chat(client, "break off")).status_code == 502
            await until(lambda: "upstream_failed" in log.read_text())
            ended = [json.loads(line) for line in log.read_text().splitlines() if "process_ended" in line]
            assert [line["process"] for line in ended] == ["log"]
