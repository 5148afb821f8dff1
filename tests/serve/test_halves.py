"""`slipstream proxy` and `slipstream training`: each starts, dies and is replaced without the other."""

from __future__ import annotations

import contextlib
import copy
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest
from processes import AWAY, Agents, Production, alive, chat, metric, stored
from serving import until
from sidecar_process import SidecarProcess


@asynccontextmanager
async def halves(folder: Path, url: str) -> AsyncIterator[tuple[SidecarProcess, SidecarProcess]]:
    """The proxy, and the training side, neither of them started."""
    proxy = SidecarProcess(folder, url, AWAY, proxy={"sockets": str(folder / "run")})
    proxy.half = "proxy"
    training = copy.copy(proxy)
    training.half = "training"
    try:
        yield proxy, training
    finally:
        for half in (proxy, training):
            if half.lives and alive(half.pid):
                for pid in (half.pid, *half.children().values()):
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
            if half.lives:
                await half.ended()


def _closed(pid: int) -> bool:
    """Return whether a killed process has closed its sockets: its first thread is a zombie before the others have
    ended, and these keep them open."""
    try:
        return len(list(Path(f"/proc/{pid}/task").iterdir())) <= 1 and not alive(pid)
    except FileNotFoundError:
        return True


async def answers(url: str) -> bool:
    with contextlib.suppress(httpx.TransportError):
        async with httpx.AsyncClient(timeout=20) as client:
            return (await client.get(f"{url}/healthz")).status_code == 200
    return False


async def listens_no_more(url: str) -> bool:
    return not await answers(url)


@pytest.mark.slow
async def test_the_halves_start_and_end_in_any_order(
    tmp_path: Path, production: tuple[Production, str], agents: Agents
) -> None:
    served, url = production
    async with halves(tmp_path, url) as (proxy, training):
        await proxy.start(ready=False)
        await until(lambda: answers(proxy.url), 60)
        assert await chat(proxy.url, "before there is a training side") == 200
        await training.start()
        await until(lambda: len(stored(proxy.store)) == 1, 60)
        under_way = await agents.call(proxy.url, "under way")
        processes = training.children().values()
        os.killpg(training.pid, signal.SIGKILL)
        await training.ended()
        await until(lambda: all(map(_closed, processes)))  # until then they take calls that nobody stores
        assert await chat(proxy.url, "meanwhile") == 200
        await training.start()
        await until(lambda: len(stored(proxy.store)) == 2, 60)
        served.go.set()
        assert await under_way.whole()
        await until(lambda: len(stored(proxy.store)) == 3, 60)
        assert await proxy.end(signal.SIGTERM) == 0
        await proxy.start(ready=False)
        await until(lambda: answers(proxy.url), 60)
        assert await chat(proxy.url, "the next proxy") == 200
        await until(lambda: len(stored(proxy.store)) == 4, 60)
        assert await metric(proxy.url, 'slipstream_proxy_requests_total{status="2xx"}') == 4, "over both proxies"
        assert await training.end(signal.SIGTERM) == 0
        assert await chat(proxy.url, "without a training side") == 200


@pytest.mark.slow
async def test_a_training_half_that_is_stopped_costs_no_answer(
    tmp_path: Path, production: tuple[Production, str]
) -> None:
    _, url = production
    async with halves(tmp_path, url) as (proxy, training):
        await training.start(ready=False)
        await proxy.start()
        os.killpg(training.pid, signal.SIGSTOP)
        for number in range(20):
            assert await chat(proxy.url, f"call {number}") == 200
        os.killpg(training.pid, signal.SIGCONT)
        await until(lambda: len(stored(proxy.store)) == 20, 60)


@pytest.mark.slow
async def test_production_starts_whatever_a_module_of_the_user_does(
    tmp_path: Path, production: tuple[Production, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, url = production
    (tmp_path / "broken.py").write_text("raise RuntimeError('no licence')\n")
    (tmp_path / "hangs.py").write_text("import threading\nthreading.Event().wait()\n")
    monkeypatch.setenv("SLIPSTREAM_REWARDS", "{calculators: [{python: 'broken:score'}]}")
    monkeypatch.setenv("SLIPSTREAM_SELECTION", "{python: 'hangs:select'}")
    async with halves(tmp_path, url) as (proxy, training):
        await proxy.start(ready=False)
        await until(lambda: answers(proxy.url), 60)
        assert await chat(proxy.url, "hello") == 200
        monkeypatch.delenv("SLIPSTREAM_SELECTION")
        training.log = tmp_path / "training.log"
        await training.start(ready=False)
        assert await training.ended() == 2
        assert "importing broken raises RuntimeError: no licence" in training.log.read_text()
        assert await chat(proxy.url, "hello again") == 200


@pytest.mark.slow
async def test_a_second_half_of_one_kind_is_refused(tmp_path: Path, production: tuple[Production, str]) -> None:
    _, url = production
    async with halves(tmp_path, url) as (proxy, training):
        await proxy.start(ready=False)
        await training.start()
        for half in ("proxy", "training", "serve"):
            second = copy.copy(training)
            second.half, second.log = half, tmp_path / f"{half}.log"
            await second.start(ready=False)
            assert await second.ended() == 2
            assert "expected" in second.log.read_text()
        assert await chat(proxy.url, "hello") == 200


@pytest.mark.slow
async def test_the_next_proxy_starts_while_a_worker_of_a_killed_one_ends_an_answer(
    tmp_path: Path, production: tuple[Production, str], agents: Agents
) -> None:
    served, url = production
    async with halves(tmp_path, url) as (proxy, _):
        await proxy.start(ready=False)
        await until(lambda: answers(proxy.url))
        under_way = await agents.call(proxy.url, "under way")
        worker = proxy.children()["proxy-0"]
        await proxy.end(signal.SIGKILL)
        await until(lambda: listens_no_more(proxy.url))
        await proxy.start(ready=False)
        await until(lambda: answers(proxy.url))
        assert await chat(proxy.url, "the next one's") == 200
        assert alive(worker)
        served.go.set()
        assert await under_way.whole()
