"""A sidecar that may open few files takes as many as the system lets it, and keeps to limits that fit into those."""

from __future__ import annotations

import asyncio
import contextlib
import json
import resource
import shutil
import signal
from pathlib import Path

import httpx
import pytest
from scripted import production_app
from serving import serving
from sidecar_process import SidecarProcess

from slipstream.proxy import open_files
from slipstream.settings.sidecar import Limits


@pytest.mark.slow
async def test_each_process_may_open_as_many_files_as_the_system_lets_it(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    sidecar = SidecarProcess(tmp_path, "http://127.0.0.1:9", "http://127.0.0.1:9")
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(512, soft), hard))
    try:
        await sidecar.start()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    children = sidecar.children()
    assert set(children) == {"proxy-0", "training", "log"}
    for pid in children.values():
        assert resource.prlimit(pid, resource.RLIMIT_NOFILE) == (hard, hard)
    await sidecar.end(signal.SIGTERM)


@pytest.mark.slow
async def test_production_is_answered_with_more_agents_than_descriptors(tmp_path: Path) -> None:
    assert shutil.which("prlimit"), "needs util-linux"
    async with serving(production_app()) as production, contextlib.AsyncExitStack() as stack:
        sidecar = SidecarProcess(tmp_path, production, "http://127.0.0.1:9", log={"level": "warning"})
        sidecar.command = ("prlimit", "--nofile=300:300")
        sidecar.log = tmp_path / "log"
        await sidecar.start()
        host, port = sidecar.url.removeprefix("http://").split(":")
        for _ in range(400):
            _, writer = await asyncio.open_connection(host, int(port))
            stack.callback(writer.close)
        client = await stack.enter_async_context(httpx.AsyncClient(base_url=sidecar.url, timeout=30))
        body = {"model": "m", "messages": [{"role": "user", "content": "hello"}]}
        for _ in range(10):
            response = await client.post("/v1/chat/completions", json=body, headers={"connection": "close"})
            assert response.status_code == 200, response.text
        await sidecar.end(signal.SIGTERM)
    lines = map(json.loads, sidecar.log.read_text().splitlines())
    [told] = [line for line in lines if line["event"] == "few_open_files"]
    assert "a process may open 300 files, and a worker needs 40881 for limits.connections 20000" in told["found"]
    assert told["fix"].startswith("Raise the limit of open files (`ulimit -Hn`")


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("most", [64, 256, 300, 1024, 4096, 20000])
def test_smaller_limits_fit_into_what_may_be_opened(most: int, workers: int) -> None:
    fits = open_files.fitted(Limits(), workers, most)
    assert fits.connections >= fits.streams >= 1
    assert open_files.needed(fits, workers) - 256 + min(256, most // 4) <= most, "with what else a worker opens"
    assert open_files.fitted(fits, workers, open_files.needed(fits, workers)) is fits


def test_limits_that_fit_stay_as_they_are() -> None:
    for limits, most in ((Limits(), None), (Limits(), 41_000), (Limits(connections=100, streams=100), 1024)):
        assert open_files.fitted(limits, 1, most) is limits
        assert open_files.shortage(limits, 1, most) is None


def test_defaults_that_do_not_fit_are_told_only_where_little_is_left() -> None:
    assert open_files.shortage(Limits(), 1, 20_000) is None
    assert open_files.shortage(Limits(), 1, 1024) == (
        "a process may open 1024 files, and a worker needs 40881 for limits.connections 20000 and limits.streams 10000"
        ": it keeps to 368 and 192"
    )
    assert "limits.connections 19999" in str(open_files.shortage(Limits(connections=19_999), 1, 20_000))
