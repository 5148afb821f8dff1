"""The chart's two containers, run from their manifests: agents notice nothing of what happens to the training side."""

from __future__ import annotations

import asyncio
import os
import re
import resource
import signal
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
from charts import EXPLORER_ELSEWHERE, merged, template
from pod import Agents, Pod
from scripted import ScriptedExplorer, production_app
from serving import serving, until

from slipstream.access.keys import new_key

KEY = new_key()
MEMORY = (Path("/sys/fs/cgroup/memory"), "memory.limit_in_bytes"), (Path("/sys/fs/cgroup"), "memory.max")


@pytest.fixture
async def pod() -> AsyncIterator[Pod]:
    """The pod of the chart with SQLite; nothing of it runs yet."""
    async with serving(production_app()) as production, serving(ScriptedExplorer().app()) as explorer:
        config = {
            "production": {"base_url": f"{production}/v1"},
            "explorer": {"base_url": explorer},
            "selection": {"sampling": {"rate": 0.1}},
            "rewards": {"calculators": ["agreement"]},
        }
        manifests = template(merged(EXPLORER_ELSEWHERE, {"sidecar": {"config": config}}))
        keys = f"[{{name: agents, roles: [proxy, admin], key: {KEY}}}]\n"
        with tempfile.TemporaryDirectory(prefix="pod-") as folder:
            found = Pod(manifests, Path(folder), {"access_keys": keys, "metrics_key": new_key()})
            try:
                yield found
            finally:
                await found.end()


async def answers(pod: Pod, path: str) -> bool:
    async with httpx.AsyncClient(base_url=pod.url, headers={"x-slipstream-key": KEY}, timeout=5) as client:
        try:
            return (await client.get(path)).status_code == 200
        except httpx.TransportError:
            return False


async def captured(pod: Pod) -> float:
    """How many calls are in the store since the training side started."""
    async with httpx.AsyncClient(base_url=pod.url, headers={"x-slipstream-key": KEY}, timeout=30) as client:
        text = (await client.get("/metrics")).text
    counts = re.findall(r"^slipstream_calls_captured_total(?:{.*})? ([0-9.e+]+)$", text, re.MULTILINE)
    return sum(map(float, counts))


@pytest.mark.slow
async def test_agents_notice_nothing_of_the_training_container(pod: Pod) -> None:
    proxy, training = pod.containers["proxy"], pod.containers["training"]
    agents = Agents(pod.url, KEY)
    await pod.start("proxy")
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        await until(lambda probe=probe: answers(pod, proxy.manifest[probe]["httpGet"]["path"]), seconds=60)
    async with agents.at_work():
        await agents.more()  # production's traffic needs no training side
        await pod.start("training")
        await until(lambda: answers(pod, "/readyz"), seconds=60)

        training.kill()
        await agents.more()
        await until(lambda: answers(pod, "/readyz"), seconds=60)

        training.signal(signal.SIGSTOP)
        await agents.more()
        training.signal(signal.SIGCONT)
        await until(lambda: answers(pod, "/readyz"), seconds=60)

        _limit_files(training.processes(), 4096)
        await agents.more()
        _limit_files(training.processes(), resource.RLIM_INFINITY)
        before = await captured(pod)

        async def captures_again() -> bool:
            return await captured(pod) > before

        await until(captures_again, seconds=60)
    assert agents.outcomes.keys() == {"good"}, agents.outcomes
    assert (proxy.starts, training.starts) == (1, 2)
    assert await pod.end() == {"proxy": 0, "training": 0}, proxy.log.read_text() + training.log.read_text()
    for text in (proxy.log.read_text(), training.log.read_text()):
        assert "Traceback" not in text


def _limit_files(pids: list[int], most: int) -> None:
    """Let no file of these processes grow further, as on a full disk."""
    for pid in pids:
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (most, resource.RLIM_INFINITY))


@pytest.mark.slow
async def test_the_proxy_container_is_restarted_and_the_training_side_goes_on(pod: Pod) -> None:
    await pod.start("training")
    await pod.start("proxy")
    await until(lambda: answers(pod, "/readyz"), seconds=60)
    pod.containers["proxy"].kill()
    await until(lambda: pod.containers["proxy"].starts == 2, seconds=30)
    await until(lambda: answers(pod, "/readyz"), seconds=60)
    assert pod.containers["training"].starts == 1


@pytest.mark.slow
async def test_agents_notice_nothing_of_a_training_container_that_is_out_of_memory(pod: Pod) -> None:
    root, limit = next((each for each in MEMORY if (each[0] / "cgroup.procs").exists()), (None, ""))
    if root is None or not os.access(root, os.W_OK):
        pytest.skip("no control groups with a limit of memory can be made here")
    group = root / f"slipstream-test-{os.getpid()}"
    group.mkdir()
    try:
        (group / limit).write_text(str(24 * 2**20))
        training, agents = pod.containers["training"], Agents(pod.url, KEY)
        training.behind = ("sh", "-c", f'echo $$ > {group}/cgroup.procs; exec "$@"', "sh")
        await pod.start("proxy")
        await until(lambda: answers(pod, "/healthz"), seconds=60)
        await pod.start("training")
        async with agents.at_work():
            await until(lambda: training.starts > 3, seconds=120)
            await agents.more()
        assert agents.outcomes.keys() == {"good"}, agents.outcomes
        assert pod.containers["proxy"].starts == 1
    finally:
        await pod.end()
        for _ in range(100):
            try:
                group.rmdir()
                break
            except OSError:
                await asyncio.sleep(0.05)
