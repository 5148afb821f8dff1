"""A running sidecar is replaced by the installed version and the configuration of now: no agent notices."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import asyncpg
import httpx
import pytest
import yaml
from processes import Agents, Production, alive, chat, metric, refused, running, stored
from serving import until
from sidecar_process import SidecarProcess

from slipstream.serve.handover import Half
from slipstream.serve.running import Running, file_of, read

STREAMS = 12


@asynccontextmanager
async def replaceable(folder: Path, url: str, **sections: Any) -> AsyncIterator[SidecarProcess]:
    """A sidecar that `slipstream upgrade` finds."""
    proxy = {"sockets": str(folder / "run"), **sections.pop("proxy", {})}
    async with running(folder, url, proxy=proxy, log={"level": "info"}, **sections) as sidecar:
        yield sidecar


def state(sidecar: SidecarProcess) -> Running:
    found = read(file_of(sidecar.config.parent / "run", Half(sidecar.half)))
    assert found is not None
    return found


async def replace(sidecar: SidecarProcess, how: signal.Signals = signal.SIGUSR2) -> Running:
    """Ask for a successor; returns what runs when that has ended, well or not."""
    attempts = state(sidecar).attempts
    sidecar.send(how)
    await until(lambda: state(sidecar).attempts > attempts, 240)
    return state(sidecar)


def change(sidecar: SidecarProcess, **sections: Any) -> None:
    config = yaml.safe_load(sidecar.config.read_text())
    sidecar.config.write_text(yaml.safe_dump({**config, **sections}))


def upgrade(sidecar: SidecarProcess) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "slipstream", "upgrade", "--config", str(sidecar.config)]
    return subprocess.run(command, capture_output=True, text=True, timeout=500, check=False)


class Load:
    """Agents that call again and again: one on a connection that it keeps, one on a new connection for each call, and
    one that gives feedback.

    Attributes:
        answers: to calls of production.
        failures: whatever was no answer, or another one.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self._over = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self.answers = 0
        self.failures: list[str] = []

    async def __aenter__(self) -> Load:
        self._tasks = [asyncio.create_task(one) for one in (self._calls(True), self._calls(False), self._feedback())]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._over.set()
        await asyncio.gather(*self._tasks)

    async def _calls(self, keeps: bool) -> None:
        body = {"model": "m", "messages": [{"role": "user", "content": "hello"}]}
        limits = httpx.Limits(max_keepalive_connections=1 if keeps else 0)
        async with httpx.AsyncClient(base_url=self._url, timeout=60, limits=limits) as client:
            while not self._over.is_set():
                await self._post(client, "/v1/chat/completions", body, 200)
                self.answers += 1

    async def _feedback(self) -> None:
        async with httpx.AsyncClient(base_url=self._url, timeout=60) as client:
            while not self._over.is_set():
                await self._post(client, "/feedback", {"session_id": "s", "reward": 1.0}, 202)

    async def _post(self, client: httpx.AsyncClient, path: str, body: dict[str, Any], status: int) -> None:
        try:
            response = await client.post(path, json=body)
        except httpx.TransportError as error:
            self.failures.append(f"{path}: {error!r}")
        else:
            if response.status_code != status:
                self.failures.append(f"{path}: {response.status_code} {response.text}")


def ask(writer: asyncio.StreamWriter, **fields: Any) -> None:
    """A call on a connection that the agent keeps."""
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": "hello"}], **fields}).encode()
    head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    writer.write(b"%bcontent-length: %d\r\n\r\n%b" % (head, len(body), body))


@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.slow)])
@pytest.mark.slow
async def test_no_agent_notices_that_the_sidecar_is_replaced(
    tmp_path: Path, production: tuple[Production, str], agents: Agents, workers: int
) -> None:
    answers, url = production
    async with replaceable(tmp_path, url, proxy={"workers": workers}) as sidecar:
        streams = [await agents.call(sidecar.url, f"stream {number}") for number in range(STREAMS - 1)]
        reader, writer = await asyncio.open_connection("127.0.0.1", int(sidecar.url.rpartition(":")[2]))
        ask(writer, stream=True)
        await reader.readuntil(b"data: ")
        before = sidecar.children()
        async with Load(sidecar.url) as load:
            for _ in range(workers):
                assert (await replace(sidecar)).problem is None
        after = sidecar.children()
        assert not set(before.values()) & set(after.values())
        assert alive(before["proxy-0"]), "it has streams"
        assert not load.failures
        answers.go.set()
        assert all([await one.whole() for one in streams])
        await reader.readuntil(b"\r\n0\r\n\r\n")
        ask(writer)
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200 "), "the connection of a stream is not closed unannounced"
        assert b"connection: close" in head
        writer.close()
        await agents.leave()
        await until(lambda: not any(map(alive, before.values())), 60)
        await until(lambda: len(sidecar.programs()) == 1, 60, "those between the first and the last have ended")
        calls = load.answers + STREAMS + 1
        await until(lambda: len(stored(sidecar.store)) == calls, 60, "what was captured meanwhile is stored")
        assert await metric(sidecar.url, 'slipstream_proxy_requests_total{status="2xx"}') == calls
        assert await metric(sidecar.url, "slipstream_proxy_in_flight") == 0
        assert await sidecar.end(signal.SIGTERM) == 0
        assert not any(map(alive, after.values()))


@pytest.mark.slow
async def test_a_successor_that_cannot_start_changes_nothing(
    tmp_path: Path, production: tuple[Production, str], agents: Agents
) -> None:
    answers, url = production
    async with replaceable(tmp_path, url) as sidecar:
        under_way = await agents.call(sidecar.url, "under way")
        before, good = sidecar.children(), sidecar.config.read_text()
        async with Load(sidecar.url) as load:
            change(sidecar, commit={"intervall": "5s"})
            done = await asyncio.to_thread(upgrade, sidecar)
            assert done.returncode == 2
            assert "slipstream: commit.intervall: unknown key" in done.stderr
            assert "commit.intervall: unknown key" in (await replace(sidecar, signal.SIGHUP)).problem
            assert sidecar.children() == before
            sidecar.config.write_text(good)
            (tmp_path / "file").touch()
            change(sidecar, store={"url": f"sqlite+aiosqlite:///{tmp_path}/file/s.db"})
            problem = (await replace(sidecar)).problem
            assert problem == "training ended with exit code 2 before it served"
            await until(lambda: "training" in sidecar.children())
            await sidecar.ready()
        assert not load.failures
        assert sidecar.children()["proxy-0"] == before["proxy-0"]
        answers.go.set()
        assert await under_way.whole()
        await until(lambda: len(stored(sidecar.store)) == load.answers + 1, 60)
        assert await sidecar.end(signal.SIGTERM) == 0


@pytest.mark.slow
async def test_a_new_configuration_is_in_force_and_what_needs_a_restart_is_named(
    tmp_path: Path, production: tuple[Production, str]
) -> None:
    _, url = production
    async with replaceable(tmp_path, url) as sidecar:
        change(sidecar, limits={"request_body": 40}, proxy={"sockets": str(tmp_path / "run"), "workers": 3})
        done = await asyncio.to_thread(upgrade, sidecar)
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.startswith("slipstream serve: version ")
        assert await chat(sidecar.url, "longer than forty bytes") == 413
        await until(lambda: {"proxy-0", "proxy-1", "proxy-2", "training"} <= set(sidecar.children()))
        change(sidecar, limits={}, proxy={"sockets": str(tmp_path / "run")})
        assert (await replace(sidecar, signal.SIGHUP)).problem is None
        assert [await chat(sidecar.url, "hello") for _ in range(20)] == [200] * 20, "one worker has three sockets"
        change(sidecar, listen="127.0.0.1:1")
        problem = (await replace(sidecar)).problem
        assert problem is not None
        assert "listen: expected 127.0.0.1:" in problem
        assert "this needs a restart" in problem


@pytest.mark.slow
async def test_a_successor_that_is_killed_at_its_start_changes_nothing(
    tmp_path: Path, production: tuple[Production, str]
) -> None:
    _, url = production
    async with replaceable(tmp_path, url) as sidecar:
        sidecar.send(signal.SIGUSR2)
        successor = (await until(sidecar.programs))[0]
        os.kill(successor, signal.SIGKILL)
        await until(lambda: state(sidecar).attempts)
        assert state(sidecar).problem == "it ended with exit code -9; the log has more"
        assert await chat(sidecar.url, "hello") == 200
        await sidecar.ready()
        assert (await replace(sidecar)).problem is None


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
async def test_the_end_of_the_first_program_is_the_end_of_its_successor(
    tmp_path: Path, production: tuple[Production, str], number: signal.Signals
) -> None:
    _, url = production
    async with replaceable(tmp_path, url) as sidecar:
        assert (await replace(sidecar)).problem is None
        processes = [*sidecar.children().values(), *sidecar.programs()]
        await sidecar.end(number)
        await until(lambda: not any(map(alive, processes)), 60)
        assert refused(int(sidecar.url.rpartition(":")[2]))


@pytest.mark.slow
async def test_one_of_two_sidecars_on_a_postgresql_is_replaced(
    tmp_path: Path, production: tuple[Production, str], new_postgres: Callable[[], str]
) -> None:
    _, url = production
    store = {"url": new_postgres()}
    (tmp_path / "other").mkdir()
    async with (
        replaceable(tmp_path, url, store=store) as sidecar,
        replaceable(tmp_path / "other", url, store=store) as other,
    ):
        async with Load(sidecar.url) as load, Load(other.url) as beside:
            for _ in range(2):
                assert (await replace(sidecar)).problem is None
        assert not load.failures
        assert not beside.failures

        async def all_are_stored() -> bool:
            return await calls_in(store["url"]) == load.answers + beside.answers

        await until(all_are_stored, 60)


async def calls_in(postgres: str) -> int:
    connection = await asyncpg.connect(postgres.replace("+asyncpg", ""))
    try:
        return int(await connection.fetchval("SELECT count(*) FROM calls"))
    finally:
        await connection.close()


UNIT = """
import os, socket, subprocess, sys
listener = socket.create_server(("127.0.0.1", int(sys.argv[1])))
def passed():
    os.dup2(os.dup(listener.fileno()), 3)
    os.environ["LISTEN_FDS"], os.environ["LISTEN_PID"] = "1", str(os.getpid())
    os.execv(sys.executable, [sys.executable, "-m", "slipstream", "serve", "--config", sys.argv[2]])
while True:
    pid = os.fork() or passed()
    print(pid, flush=True)
    os.waitpid(pid, 0)
"""
"""As systemd with a socket unit: it listens, and starts the service again when that has ended."""


@pytest.mark.slow
async def test_connections_wait_in_the_socket_of_a_unit_while_the_sidecar_restarts(
    tmp_path: Path, production: tuple[Production, str]
) -> None:
    _, url = production
    sidecar = SidecarProcess(tmp_path, url, "http://127.0.0.1:9", proxy={"workers": 2})
    port = sidecar.url.rpartition(":")[2]
    unit = await asyncio.create_subprocess_exec(
        sys.executable, "-c", UNIT, port, str(sidecar.config), stdout=asyncio.subprocess.PIPE
    )
    assert unit.stdout is not None
    pid = 0
    try:
        for _ in range(2):
            pid = int(await unit.stdout.readline())
            await sidecar.ready()
            async with Load(sidecar.url) as load:
                os.kill(pid, signal.SIGTERM)
                await until(lambda pid=pid: not alive(pid), 60)
                count = load.answers
                await until(lambda load=load, count=count: load.answers > count + 1, 60)
            assert not [failure for failure in load.failures if "ConnectError" in failure], "none is refused"
    finally:
        unit.kill()
        os.kill(int(await unit.stdout.readline() or pid), signal.SIGTERM)
        await unit.wait()
