"""Exchanges that are made to end the process that reads them, in as little memory as a container has: production's
calls and people's feedback go on, and the training side lives.

The limit of memory is a control group's. Where none can be made, the memory of all processes is added up and looked at.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sqlite3
import sys
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
from memory_limit import memory_limit
from scripted import ScriptedExplorer
from serving import serving, until
from sidecar_process import SidecarProcess
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))

from bench import poison

MEMORY = 1024**3
REQUESTS = 24
CHATS = 12
"""Chats of the facade, which the policy answers, with the same poison."""
ANSWERS_AFTER = 3.0
"""Seconds that the policy takes, in which its requests wait."""
RATE = 20
"""Calls of production a second, with a feedback for each fourth."""
BEHIND = "behind-the-poison"
"""The task that comes last."""
TIMEOUT = 30
"""Seconds that agents and people wait for an answer."""


class Production:
    """Answers what a request says, and what its poison wants."""

    def __init__(self) -> None:
        self._answers = 0

    def app(self) -> Starlette:
        return Starlette(routes=[Route("/v1/chat/completions", self._chat, methods=["POST"])])

    async def _chat(self, request: Request) -> Response:
        self._answers += 1
        return JSONResponse(_answer(f"prod-{self._answers}", await request.body()))


class Explorer(ScriptedExplorer):
    """Gives the policy's answers as the poison wants them too."""

    async def _chat(self, request: Request) -> Response:
        await asyncio.sleep(ANSWERS_AFTER)
        return await super()._chat(request)

    def reply(self, msg_id: str, body: dict[str, Any]) -> dict[str, Any]:
        return _answer(msg_id, str(body["messages"][-1]["content"]).encode())


def _answer(msg_id: str, body: bytes) -> dict[str, Any]:
    return poison.completion(msg_id, *(poison.said_by(body) or ("well", {})))


class Most:
    """The most memory that a program's processes took together, looked at from a thread.

    Attributes:
        bytes: without what they share.
    """

    def __init__(self, pid: int) -> None:
        self.bytes = 0
        self._program = psutil.Process(pid)
        threading.Thread(target=self._look, daemon=True).start()

    def _look(self) -> None:
        while self._program.is_running():
            now = 0
            for process in (self._program, *self._program.children(recursive=True)):
                with contextlib.suppress(psutil.Error):
                    now += process.memory_full_info().uss
            self.bytes = max(self.bytes, now)
            time.sleep(0.2)


class Traffic:
    """Agents and people at a steady rate, whatever becomes of what they send.

    Attributes:
        production, feedback: how many of their requests had each outcome.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self.production: Counter[object] = Counter()
        self.feedback: Counter[object] = Counter()
        self.longest = 0.0

    async def flow(self) -> None:
        """Go on until cancelled; what is under way then is waited for."""
        async with httpx.AsyncClient(base_url=self._url, timeout=TIMEOUT) as client, asyncio.TaskGroup() as group:
            number, begun = 0, time.monotonic()
            with contextlib.suppress(asyncio.CancelledError):
                while True:
                    group.create_task(self._one(client, number))
                    number += 1
                    await asyncio.sleep(max(0.0, begun + number / RATE - time.monotonic()))

    async def _one(self, client: httpx.AsyncClient, number: int) -> None:
        began = time.monotonic()
        said = await self._post(client, "/v1/chat/completions", _asked(number), self.production)
        self.longest = max(self.longest, time.monotonic() - began)
        if said is not None and number % 4 == 0:
            body = {"msg_id": said["id"], "rating": 5, "comment": "well done"}
            await self._post(client, "/feedback", json.dumps(body).encode(), self.feedback)

    @staticmethod
    async def _post(client: httpx.AsyncClient, path: str, body: bytes, outcomes: Counter[object]) -> Any:
        try:
            response = await client.post(path, content=body, headers={"content-type": "application/json"})
        except httpx.HTTPError as error:
            outcomes[type(error).__name__] += 1
            return None
        outcomes[response.status_code] += 1
        return response.json() if response.status_code < 300 else None


def _asked(number: int) -> bytes:
    return json.dumps({"model": "m", "messages": [{"role": "user", "content": f"is {number} well?"}]}).encode()


@contextlib.asynccontextmanager
async def _attacked(folder: Path, command: tuple[str, ...]) -> AsyncIterator[SidecarProcess]:
    async with serving(Production().app()) as production, serving(Explorer().app()) as explorer:
        sidecar = SidecarProcess(
            folder,
            production,
            explorer,
            capture={"task_idle": "1s"},
            selection={"any": [{"explicit_mark": {}}, {"sampling": {"rate": 0.05}}]},
            runs={"repeat_time": 2, "max_attempts": 2},
            rewards={"calculators": ["agreement", "format", "tool_calls"]},
        )
        sidecar.log = folder / "sidecar.log"
        sidecar.command = command
        await sidecar.start()
        try:
            yield sidecar
        finally:
            processes = [psutil.Process(sidecar.pid), *psutil.Process(sidecar.pid).children(recursive=True)]
            for process in processes:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()
            psutil.wait_procs(processes, 10)
            await sidecar.ended()


@pytest.mark.slow
async def test_poison_ends_nothing_and_fails_nobody_in_a_gibibyte(tmp_path: Path) -> None:
    with memory_limit(MEMORY) as limit:
        async with _attacked(tmp_path, limit.command if limit else ()) as sidecar:
            before = sidecar.children()
            most = Most(sidecar.pid)
            traffic = Traffic(sidecar.url)
            flowing = asyncio.create_task(traffic.flow())
            asking = [_poison(sidecar.url, number) for number in range(REQUESTS)]
            chats = [_poison_chat(sidecar.url, kind) for kind in ("objects", "fields", "messages") * (CHATS // 3)]
            statuses = (await asyncio.gather(asyncio.gather(*chats), *asking))[0]
            await _ask(sidecar.url, _asked(-1), BEHIND)
            await until(lambda: _drained(sidecar), 600)
            flowing.cancel()
            await flowing
            counts = await _uncaptured(sidecar.url)
            runs = _runs(sidecar.store)
            used, kills = (limit.most, limit.kills) if limit else (most.bytes, 0)
            print(f"{'control group' if limit else 'added up'}: {used / 2**20:.0f} MiB, kills: {kills}; {counts}")
            print("production:", traffic.production, traffic.longest, "feedback:", traffic.feedback)
            assert set(traffic.production) == {200}
            assert set(traffic.feedback) == {202}
            assert set(statuses) <= {200, 503}, "a chat is answered, or told that there is no memory"
            assert 200 in statuses
            assert traffic.feedback[202] > 50
            assert sidecar.children() == before, "no process of it has ended"
            assert used <= MEMORY
            stored = {task for task, _, _ in runs}
            assert len(stored) + sum(counts.values()) >= REQUESTS, "each is stored, or left out and counted"
            assert counts["too_many_values"] >= 2, "8 MiB of lists"
            assert all(state == "scored" or reason for _, state, reason in runs), "each run ended, with a reason"
            assert {"poison-6", "poison-7", "poison-8", "poison-9"} <= stored, "what can be read is"


async def _poison(url: str, number: int) -> None:
    kind = list(poison.KINDS)[number % len(poison.KINDS)]
    await _ask(url, poison.request(kind, number), f"poison-{number}")


async def _poison_chat(url: str, kind: str) -> int:
    async with httpx.AsyncClient(timeout=120) as client:
        body = poison.request(kind, 0)
        answer = await client.post(f"{url}/explorer/v1/chat/completions", content=body)
    return answer.status_code


async def _ask(url: str, body: bytes, task: str) -> None:
    headers = {"content-type": "application/json", "x-slipstream-task-id": task, "x-slipstream-mark": "poison"}
    async with httpx.AsyncClient(timeout=60) as client:
        response = await client.post(f"{url}/v1/chat/completions", content=body, headers=headers)
    assert response.status_code == 200
    assert response.json()["choices"][0]["finish_reason"] == "stop"


async def _drained(sidecar: SidecarProcess) -> bool:
    """Whether all poison is read, and each run of it has ended: what came behind it is stored."""
    async with httpx.AsyncClient(base_url=sidecar.url, timeout=TIMEOUT) as client:
        behind = (await client.get(f"/tasks/{BEHIND}")).status_code == 200
        undecided = (await client.get("/status")).json()["selection"].get("undecided")
    ended = all(state in ("scored", "failed", "quarantined") for _, state, _ in _runs(sidecar.store))
    return behind and not undecided and ended


async def _uncaptured(url: str) -> Counter[str]:
    """How many exchanges were not stored, by reason."""
    counts: Counter[str] = Counter()
    async with httpx.AsyncClient(base_url=url, timeout=TIMEOUT) as client:
        for line in (await client.get("/metrics")).text.splitlines():
            name, _, value = line.rpartition(" ")
            if name.startswith(("slipstream_calls_not_captured_total{", "slipstream_dropped_total{")) and float(value):
                counts[name.split('"')[1]] += int(float(value))
    return counts


def _runs(store: Path) -> list[tuple[str, str, str | None]]:
    """Of each run of what was marked: the task, its state and why."""
    query = "SELECT g.task_id, r.state, r.reason FROM runs r JOIN groups g ON g.id = r.group_id "
    query += "JOIN tasks t ON t.id = g.task_id WHERE t.marked"
    with contextlib.closing(sqlite3.connect(store, timeout=30)) as connection:
        return list(connection.execute(query))
