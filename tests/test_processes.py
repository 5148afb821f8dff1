"""`slipstream serve` is several processes: what becomes of production's answers when one of them ends."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
import yaml
from ports import free_port
from processes import (
    AWAY,
    STREAMS,
    Agents,
    Production,
    alive,
    chat,
    metric,
    refused,
    running,
    stored,
)
from serving import until

from slipstream.errors import SlipstreamError
from slipstream.output import Output
from slipstream.proxy.server import Stop
from slipstream.serve.shared import shared_in_memory
from slipstream.serve.sockets import open_sockets
from slipstream.serve.training import run_training
from slipstream.settings.sidecar import Settings
from slipstream.sidecar import Sidecar

LOOKS_OFTEN = (
    "-c",
    "from slipstream import cli\n"
    "from slipstream.serve import beating, prefork\n"
    "beating.BEAT, prefork.LOOK = 0.1, 1.0\n"
    "cli.main()\n",
)
"""The command, with less patience."""

ADOPTS = (
    "-c",
    "import ctypes, subprocess\n"
    "ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)\n"
    "subprocess.run(['sh', '-c', 'sleep 300 &'])\n"
    "from slipstream import cli\n"
    "cli.main()\n",
)
"""The command, as subreaper of an orphan."""


async def test_the_training_sides_death_is_nothing_to_production(
    tmp_path: Path, production: tuple[Production, str], agents: Agents
) -> None:
    answers, url = production
    async with running(tmp_path, url) as sidecar:
        under_way = await agents.call(sidecar.url, "under way")
        os.kill(sidecar.children()["training"], signal.SIGKILL)
        assert await chat(sidecar.url, "meanwhile") == 200
        answers.go.set()
        assert await under_way.whole()
        await until(lambda: "training" in sidecar.children())
        async with httpx.AsyncClient(base_url=sidecar.url, timeout=30) as client:
            assert (await client.get("/readyz")).status_code == 200
        await until(lambda: len(stored(sidecar.store)) == 2, what="both calls are stored afterwards")


@pytest.mark.slow
async def test_a_training_side_that_dies_again_and_again_is_started_less_and_less_often(
    tmp_path: Path, production: tuple[Production, str]
) -> None:
    _, url = production
    async with running(tmp_path, url) as sidecar:
        assert sidecar.log is not None
        for _ in range(3):
            pid = await until(lambda: sidecar.children().get("training"))
            os.kill(pid, signal.SIGKILL)
            await until(lambda pid=pid: not alive(pid))
            assert await chat(sidecar.url, "hello") == 200
        await until(lambda: sidecar.children().get("training"))
        lines = [json.loads(line) for line in sidecar.log.read_text().splitlines()]
        deaths = [line for line in lines if line["event"] == "process_ended"]
        assert {line["process"] for line in deaths} == {"training"}
        assert [line["started_again_in"] for line in deaths] == [0.2, 0.4, 0.8]


@pytest.mark.slow
async def test_a_training_side_that_hangs_costs_captures_and_no_answer(
    tmp_path: Path, production: tuple[Production, str]
) -> None:
    _, url = production
    async with running(tmp_path, url, capture={"queue": 5}) as sidecar:
        training = sidecar.children()["training"]
        os.kill(training, signal.SIGSTOP)
        async with httpx.AsyncClient(base_url=sidecar.url, timeout=60) as client:
            assert (await client.get("/healthz")).json() == {"status": "ok"}, "nobody is to end what serves production"
        for number in range(150):
            assert await chat(sidecar.url, f"{number}" + "x" * 20_000) == 200
        os.kill(training, signal.SIGCONT)
        dropped = await metric(sidecar.url, 'slipstream_dropped_total{cause="capture_queue_full"}')
        assert dropped > 0
        await until(lambda: len(stored(sidecar.store)) + dropped == 150)


@pytest.mark.slow
async def test_a_worker_that_dies_is_started_again_and_the_others_go_on(
    tmp_path: Path, production: tuple[Production, str], agents: Agents
) -> None:
    answers, url = production
    async with running(tmp_path, url, proxy={"workers": 2}) as sidecar:
        streams = [await agents.call(sidecar.url, f"stream {number}") for number in range(STREAMS)]
        assert await metric(sidecar.url, "slipstream_proxy_in_flight") == STREAMS
        before = await metric(sidecar.url, 'slipstream_proxy_requests_total{status="2xx"}')
        killed = sidecar.children()["proxy-0"]
        os.kill(killed, signal.SIGKILL)
        await until(lambda: sidecar.children().get("proxy-0", killed) != killed)
        for number in range(8):
            assert await chat(sidecar.url, f"afterwards {number}") == 200
        assert await metric(sidecar.url, 'slipstream_proxy_requests_total{status="2xx"}') == before + 8
        answers.go.set()
        whole = sum([await one.whole() for one in streams])
        assert 0 < whole < STREAMS, "the kernel shares connections out by their addresses"
        await until(lambda: len(stored(sidecar.store)) == whole + 8)
        assert await metric(sidecar.url, "slipstream_proxy_in_flight") == 0


@pytest.mark.slow
async def test_a_worker_that_hangs_is_ended_and_started_again(
    tmp_path: Path, production: tuple[Production, str]
) -> None:
    _, url = production
    async with running(tmp_path, url, LOOKS_OFTEN, proxy={"workers": 2}) as sidecar:
        assert sidecar.log is not None
        before = sidecar.children()
        os.kill(before["proxy-0"], signal.SIGSTOP)
        await until(lambda: sidecar.children().get("proxy-0", before["proxy-0"]) != before["proxy-0"], 60)
        for number in range(8):  # the kernel gives each of them some
            assert await chat(sidecar.url, f"afterwards {number}") == 200
        assert sidecar.children()["proxy-1"] == before["proxy-1"], "one that works is left alone"
        [hung] = [json.loads(line) for line in sidecar.log.read_text().splitlines() if "process_hung" in line]
        assert hung["process"] == "proxy-0"


@pytest.mark.slow
async def test_the_tasks_that_live_are_counted_in_each_process(
    tmp_path: Path, production: tuple[Production, str]
) -> None:
    _, url = production
    async with running(tmp_path, url, proxy={"workers": 2}) as sidecar:
        await until(lambda: metric(sidecar.url, "slipstream_proxy_tasks"))
        tasks = await metric(sidecar.url, "slipstream_proxy_tasks")
        assert 2 <= tasks <= 20, "each worker has some, and none for a connection"
        assert 10 <= await metric(sidecar.url, "slipstream_training_tasks") <= 50, "its stages, at least"


@pytest.mark.slow
async def test_the_parents_death_lets_the_port_go_and_answers_end(
    tmp_path: Path, production: tuple[Production, str], agents: Agents, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers, url = production
    sockets = tmp_path / "tmp"
    sockets.mkdir()
    monkeypatch.setenv("TMPDIR", str(sockets))
    async with running(tmp_path, url) as sidecar:
        under_way = await agents.call(sidecar.url, "under way")
        children = sidecar.children()
        await sidecar.end(signal.SIGKILL)
        await until(lambda: not alive(children["training"]), 60)
        await sidecar.start()
        assert await chat(sidecar.url, "the next one's") == 200
        assert alive(children["proxy-0"])
        answers.go.set()
        assert await under_way.whole()
        await until(lambda: not alive(children["proxy-0"]), 60)
        await until(lambda: len(stored(sidecar.store)) == 1)
        assert len(list(sockets.iterdir())) == 1, "the first one's Unix sockets are gone"
        assert await sidecar.end(signal.SIGTERM) == 0
        assert not list(sockets.iterdir())


@pytest.mark.sampled(1)
@pytest.mark.parametrize("workers", [1, 2])
async def test_sigterm_ends_answers_then_stores_what_was_captured(
    tmp_path: Path, production: tuple[Production, str], agents: Agents, workers: int
) -> None:
    answers, url = production
    async with running(tmp_path, url, proxy={"workers": workers}) as sidecar:
        streams = [await agents.call(sidecar.url, f"stream {number}") for number in range(6)]
        children = sidecar.children()
        sidecar.send(signal.SIGTERM)
        port = int(sidecar.url.rpartition(":")[2])
        await until(lambda: refused(port), 60, "no worker takes new connections")
        assert alive(children["training"])
        answers.go.set()
        assert all([await one.whole() for one in streams])
        async with asyncio.timeout(60):  # agents that keep their connections open hold nothing up
            assert await sidecar.ended() == 0
        assert len(stored(sidecar.store)) == 6
        assert not any(map(alive, children.values()))


@pytest.mark.slow
@pytest.mark.parametrize(
    "number",
    [
        pytest.param(signal.SIGINT, id="ctrl-c"),
        pytest.param(signal.SIGTERM, id="timeout-and-systemd", marks=pytest.mark.slow),
    ],
)
async def test_a_signal_to_all_processes_at_once_ends_them_in_order(
    tmp_path: Path, production: tuple[Production, str], agents: Agents, number: signal.Signals
) -> None:
    answers, url = production
    async with running(tmp_path, url) as sidecar:
        under_way = await agents.call(sidecar.url, "under way")
        os.killpg(sidecar.pid, number)
        await until(lambda: refused(int(sidecar.url.rpartition(":")[2])), 60)
        answers.go.set()
        assert await under_way.whole()
        assert await sidecar.ended() == 0
        assert len(stored(sidecar.store)) == 1


@pytest.mark.slow
async def test_a_second_signal_ends_what_is_left_at_once(
    tmp_path: Path, production: tuple[Production, str], agents: Agents
) -> None:
    _, url = production
    async with running(tmp_path, url, proxy={"workers": 2}) as sidecar:
        endless = await agents.call(sidecar.url, "endless")
        children = sidecar.children()
        sidecar.send(signal.SIGTERM)
        sidecar.send(signal.SIGTERM)
        await until(lambda: refused(int(sidecar.url.rpartition(":")[2])), 60)
        await asyncio.sleep(1.1)  # until then a second one is taken for the first one's echo
        assert alive(children["training"])
        sidecar.send(signal.SIGINT)
        async with asyncio.timeout(20):  # the endless one would have some seconds more
            assert await sidecar.ended() == 0
        assert not any(map(alive, children.values()))
        assert not await endless.whole()


@pytest.mark.slow
async def test_two_workers_share_connections_store_and_counters(
    tmp_path: Path, production: tuple[Production, str]
) -> None:
    _, url = production
    async with running(tmp_path, url, proxy={"workers": 2}) as sidecar:
        listening = [pid for name, pid in sidecar.children().items() if name.startswith("proxy-")]
        before = [cpu(pid) for pid in listening]
        for number in range(60):
            assert await chat(sidecar.url, f"call {number}") == 200
        assert all(cpu(pid) > was for pid, was in zip(listening, before, strict=True)), "both carried traffic"
        assert await metric(sidecar.url, 'slipstream_proxy_requests_total{status="2xx"}') == 60
        assert await metric(sidecar.url, "slipstream_proxy_added_seconds_count") == 60
        await until(lambda: len(stored(sidecar.store)) == 60)

        async def counted() -> bool:
            return await metric(sidecar.url, "slipstream_calls_captured_total") == 60

        await until(counted)


def cpu(pid: int) -> int:
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0])


@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.slow)])
@pytest.mark.slow
async def test_a_second_sidecar_on_the_same_port_says_so_and_touches_no_store(
    tmp_path: Path, production: tuple[Production, str], workers: int
) -> None:
    _, url = production
    async with running(tmp_path, url, proxy={"workers": workers}) as sidecar:
        config = yaml.safe_load(sidecar.config.read_text())
        other = tmp_path / "other.db"
        code, said = failing_start(tmp_path, {**config, "store": {"url": f"sqlite+aiosqlite:///{other}"}})
        assert code == 2
        assert said.startswith("slipstream: listen: expected an address that is free"), said
        assert len(said.splitlines()) == 1
        assert not other.exists()


@pytest.mark.slow
def test_a_store_that_cannot_be_opened_is_said_once_and_nothing_runs_on(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    sections = {
        "listen": f"127.0.0.1:{free_port()}",
        "production": {"base_url": f"{AWAY}/v1"},
        "store": {"url": f"sqlite+aiosqlite:///{file}/slipstream.db"},
        "log": {"level": "error"},
    }
    code, said = failing_start(tmp_path, sections)
    assert code == 2
    assert said.startswith("slipstream: store.url: "), said
    assert len(said.splitlines()) == 1


async def test_a_stage_that_cannot_start_ends_the_training_side(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fails(_: Sidecar) -> None:
        raise RuntimeError("no stage")

    monkeypatch.setattr(Sidecar, "start", fails)
    settings = Settings.model_validate(
        {"listen": "127.0.0.1:0", "store": {"url": f"sqlite+aiosqlite:///{tmp_path}/s.db"}}
    )
    with open_sockets(settings) as sockets, pytest.raises(SlipstreamError, match="did not start"):
        await run_training(settings, sockets, shared_in_memory(1), Output(), Stop())


def test_an_ipv6_address_is_no_ipv4_address() -> None:
    settings = Settings.model_validate({"listen": "[::]:0", "proxy": {"workers": 2}, "access": {"insecure": True}})
    with open_sockets(settings) as sockets:
        port = sockets.agents[0].getsockname()[1]
        assert refused(port)
        socket.create_connection(("::1", port)).close()


@pytest.mark.slow
def test_a_temporary_folder_with_too_long_a_path_is_named(tmp_path: Path) -> None:
    folder = tmp_path / ("long" * 25)
    folder.mkdir()
    sections = {"listen": f"127.0.0.1:{free_port()}", "production": {"base_url": f"{AWAY}/v1"}}
    code, said = failing_start(tmp_path, sections, TMPDIR=str(folder))
    assert code == 2
    assert said.splitlines()[-1].startswith("slipstream: TMPDIR: expected a folder"), said  # a warning may come before
    assert not list(folder.iterdir())


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="orphans are the system's first process's elsewhere")
async def test_an_orphan_that_ends_leaves_nothing_where_slipstream_is_the_first_process(
    tmp_path: Path, production: tuple[Production, str]
) -> None:
    """As that of a container, which has what processes of the user's code leave behind."""
    _, url = production
    async with running(tmp_path, url, ADOPTS) as sidecar:
        [orphan] = [child for child in psutil.Process(sidecar.pid).children() if child.name() == "sleep"]
        orphan.kill()
        await until(lambda: not Path(f"/proc/{orphan.pid}").exists(), 60)
        killed = sidecar.children()["proxy-0"]
        os.kill(killed, signal.SIGKILL)
        await until(lambda: sidecar.children().get("proxy-0", killed) != killed)
        assert await chat(sidecar.url, "hello") == 200
        assert await sidecar.end(signal.SIGTERM) == 0


@pytest.mark.slow
async def test_whoever_ignores_the_end_of_children_may_start_it(
    tmp_path: Path, production: tuple[Production, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some programs hand SIGCHLD on as ignored, and a child's end then leaves nothing to ask for."""
    _, url = production
    ignoring = tmp_path / "ignoring"
    ignoring.write_text(
        f"#!{sys.executable}\n"
        "import os, signal, sys\n"
        "signal.signal(signal.SIGCHLD, signal.SIG_IGN)\n"
        "os.execv(sys.executable, [sys.executable, *sys.argv[1:]])\n"
    )
    ignoring.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(ignoring))
    async with running(tmp_path, url) as sidecar:
        os.kill(sidecar.children()["proxy-0"], signal.SIGKILL)
        assert await chat(sidecar.url, "hello") == 200
        assert await sidecar.end(signal.SIGTERM) == 0


def failing_start(folder: Path, sections: dict[str, Any], **environment: str) -> tuple[int, str]:
    """`slipstream serve` that should not start: its exit code and what it wrote, its children's words included."""
    config = folder / "failing.yaml"
    config.write_text(yaml.safe_dump(sections))
    done = subprocess.run(
        [sys.executable, "-m", "slipstream", "serve", "--config", str(config)],
        stderr=subprocess.PIPE,  # whose end comes when the last process has closed it
        env={**os.environ, **environment},
        text=True,
        timeout=60,
        check=False,
    )
    return done.returncode, done.stderr
