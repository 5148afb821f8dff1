"""A store put back to a backup, while the Explorer goes on from where it was: no reward has effect twice."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import signal
import sqlite3
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import httpx
import pytest
from facade_client import commit, run, seen
from loops import TRAINS_ON_ALL, Loop, RunLoop
from scripted import ScriptedExplorer, production_app
from serving import serving, until
from sidecar_process import SidecarProcess, acknowledged
from starlette.requests import Request
from starlette.responses import Response
from stores import ON_BOTH_STORES, stored_rows

from slipstream.capture.redacted import is_of
from slipstream.store.backup import back_up
from slipstream.store.restore import restore


async def put_back(store_url: str, path: Path) -> None:
    await restore(store_url, path, replace=True, group_size=1, now=time.time(), is_of=is_of)


def effects(explorer: ScriptedExplorer) -> Counter[str]:
    """How often each answer was trained on."""
    return Counter(experience["msg_id"] for experience in explorer.trained)


async def groups(store_url: str) -> dict[str, str]:
    return dict(await stored_rows(store_url, "SELECT id, state FROM groups ORDER BY id"))


async def delivered(loop: Loop, count: int) -> None:
    """Deliver until so many groups were, of all that are run again too."""

    async def enough() -> bool:
        await loop.commit()
        return (await loop.status())["groups"].get("delivered", 0) >= count

    await until(enough, 30)


@ON_BOTH_STORES
async def test_what_was_delivered_since_is_run_again_and_no_answer_has_effect_twice(
    run_loop: RunLoop, store_url: str, tmp_path: Path
) -> None:
    explorer = ScriptedExplorer()
    async with run_loop(explorer) as loop:
        await loop.chat(headers={"x-slipstream-task-id": "a"})
        await until(lambda: loop.ready(1))
        await back_up(store_url, tmp_path / "backup")
        assert (await loop.commit())["experiences"] == 1
        await loop.chat(headers={"x-slipstream-task-id": "b"})
        await until(lambda: loop.ready(1))
        assert (await loop.commit())["experiences"] == 1
    await put_back(store_url, tmp_path / "backup")
    async with run_loop(explorer) as loop:
        assert await loop.task("b") is None, "it came after the backup"
        assert (await loop.commit())["run_again"] == 1
        await delivered(loop, 1)
        await loop.chat(headers={"x-slipstream-task-id": "c"})
        await delivered(loop, 2)
    assert set(effects(explorer).values()) == {1}
    assert await groups(store_url) == {"a.0": "rerun", "a.0~1": "delivered", "c.0": "delivered"}


@pytest.mark.slow
async def test_a_group_that_was_half_answered_is_never_trained_in_part(
    run_loop: RunLoop, store_url: str, tmp_path: Path
) -> None:
    explorer = ScriptedExplorer()
    how: dict[str, Any] = {"runs": {"repeat_time": 2, "concurrency": 1}}
    async with run_loop(explorer, **how) as loop:
        explorer.faults["/v1/chat/completions"] = [503, 200, 503, 503, 503, 503]  # the second run is answered first
        await loop.chat(headers={"x-slipstream-task-id": "a"})

        async def half() -> bool:
            states = await stored_rows(store_url, "SELECT state FROM runs ORDER BY run_id")
            return states == [("pending",), ("scored",)]

        await until(half)
        await back_up(store_url, tmp_path / "backup")
        explorer.faults.clear()
        await until(lambda: loop.ready(2), 30)
        assert (await loop.commit())["experiences"] == 2
    await put_back(store_url, tmp_path / "backup")
    async with run_loop(explorer, **how) as loop:
        await delivered(loop, 1)
    assert set(effects(explorer).values()) == {1}
    assert [sorted(each["run_id"] for each in taken) for taken in explorer.committed if taken] == [[0, 1], [0, 1]]


@pytest.mark.slow
async def test_a_delivery_that_was_begun_before_and_ended_since_is_delivered(
    run_loop: RunLoop, store_url: str, tmp_path: Path
) -> None:
    explorer = ScriptedExplorer()
    async with run_loop(explorer) as loop:
        await loop.chat(headers={"x-slipstream-task-id": "a"})
        await until(lambda: loop.ready(1))

        async def amid_it(request: Request) -> Response:
            await back_up(store_url, tmp_path / "backup")
            return await explorer._feedback(request)

        explorer.feedback_route = amid_it
        assert (await loop.commit())["experiences"] == 1
        explorer.feedback_route = explorer._feedback
    await put_back(store_url, tmp_path / "backup")
    assert await groups(store_url) == {"a.0": "committing"}
    asked = len(explorer.chats)
    async with run_loop(explorer) as loop:
        assert (await loop.commit())["experiences"] == 1, "the one of then"
        assert len(explorer.chats) == asked
    assert await groups(store_url) == {"a.0": "delivered"}
    assert set(effects(explorer).values()) == {1}


@pytest.mark.slow
async def test_a_clients_answer_that_was_delivered_since_is_not_made_new_in_trinitys_history(
    run_loop: RunLoop, store_url: str, tmp_path: Path
) -> None:
    explorer = ScriptedExplorer()
    file = tmp_path / "history.db"
    with contextlib.closing(sqlite3.connect(file, isolation_level=None)) as history:
        history.execute("CREATE TABLE proxy_history (msg_id TEXT, consumed INTEGER)")
        how: dict[str, Any] = {"explorer": {"history_url": f"sqlite+aiosqlite:///{file}"}}
        async with run_loop(explorer, **how) as loop:
            answers = [await run(loop, name) for name in ("a", "b")]
            history.executemany("INSERT INTO proxy_history VALUES (?, 1)", [(answer,) for answer in answers])
            await back_up(store_url, tmp_path / "backup")
            assert (await commit(loop))["experiences"] == 2
        await put_back(store_url, tmp_path / "backup")
        async with run_loop(explorer, **how) as loop:

            async def restarts(request: Request) -> Response:
                explorer.boot(forget=False)
                explorer.feedback_route = explorer._feedback
                return await explorer._feedback(request)

            explorer.feedback_route = restarts
            assert (await commit(loop))["lost"] == 2
            released = history.execute("SELECT msg_id FROM proxy_history WHERE consumed = 0")
            explorer.recorded.update(name for (name,) in released)  # as Trinity does with what is not consumed
            assert (await commit(loop))["experiences"] == 0
            assert (await seen(loop))["groups"] == {"lost": 2}
            await run(loop, "a")
            assert (await commit(loop))["experiences"] == 1, "what comes now is delivered"
    assert set(effects(explorer).values()) == {1}


@pytest.mark.slow
async def test_a_clients_open_group_of_then_takes_no_new_run(run_loop: RunLoop, store_url: str, tmp_path: Path) -> None:
    explorer = ScriptedExplorer()
    how: dict[str, Any] = {"facade": {"group_size": 2}}
    async with run_loop(explorer, **how) as loop:
        await run(loop, "a", run_id=1)
        await back_up(store_url, tmp_path / "backup")
        await run(loop, "a", run_id=0)
        assert (await commit(loop))["experiences"] == 2
    await restore(store_url, tmp_path / "backup", replace=True, group_size=2, now=time.time(), is_of=is_of)
    async with run_loop(explorer, **how) as loop:
        await run(loop, "a", run_id=0)
        await run(loop, "a", run_id=1)
        assert (await commit(loop))["experiences"] == 2
    assert set(effects(explorer).values()) == {1}
    assert [len(taken) for taken in explorer.committed] == [2, 2]


async def command(*arguments: object) -> tuple[int, str]:
    """Run a command of `slipstream`; returns its exit code and all that it says."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "slipstream", *map(str, arguments),
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    said, _ = await process.communicate()
    assert process.returncode is not None
    return process.returncode, said.decode()


@pytest.mark.slow
async def test_a_backup_under_load_has_all_that_was_acknowledged_and_the_restored_sidecar_goes_on(
    tmp_path: Path,
) -> None:
    explorer, file = ScriptedExplorer(), tmp_path / "backup"
    feedback: list[str] = []
    marks: list[str] = []
    numbers = itertools.count()
    enough = asyncio.Event()
    async with (
        serving(production_app()) as production_url,
        serving(explorer.app()) as explorer_url,
        httpx.AsyncClient(timeout=30) as client,
    ):
        sidecar = SidecarProcess(
            tmp_path,
            production_url,
            explorer_url,
            runs={"repeat_time": 2, "queue": 10_000},
            **TRAINS_ON_ALL,
        )
        client.base_url = httpx.URL(sidecar.url)
        await sidecar.start()

        async def agent() -> None:
            while not enough.is_set():
                task = f"task-{next(numbers)}"
                body = {"model": "prod", "messages": [{"role": "user", "content": f"question {task}"}]}
                await acknowledged(client, "/v1/chat/completions", body, {"x-slipstream-task-id": task})
                said = await acknowledged(client, "/feedback", {"task_id": task, "rating": 4})
                feedback.append(said["id"])
                said = await acknowledged(client, "/marks", {"task_id": task, "labels": ["seen"]})
                marks.append(said["id"])

        agents = [asyncio.create_task(agent()) for _ in range(4)]
        await until(lambda: len(explorer.committed) > 2 and len(marks) > 30, 60)
        before = (list(feedback), list(marks))
        code, said = await command("backup", file, "--config", sidecar.config)
        assert code == 0, said
        went_on = len(marks)
        await until(lambda: len(marks) > went_on + 10, 60)
        code, said = await command("restore", file, "--config", sidecar.config, "--replace")
        assert (code, "in use by another" in said) == (2, True), said
        enough.set()
        await asyncio.gather(*agents)
        os.killpg(sidecar.pid, signal.SIGKILL)
        await sidecar.ended()
        await until(sidecar.unlocked, 60)
        explorer.boot(forget=False)  # as the page says: a delivery that the backup does not know may have been cut
        assert (await command("restore", file, "--config", sidecar.config))[0] == 2, "it holds something"
        code, said = await command("restore", file, "--config", sidecar.config, "--replace")
        assert code == 0, said
        assert "restored" in said

        stored = f"sqlite+aiosqlite:///{sidecar.store}"
        assert set(before[0]) <= {name for (name,) in await stored_rows(stored, "SELECT id FROM feedback")}
        assert set(before[1]) <= {name for (name,) in await stored_rows(stored, "SELECT id FROM marks")}
        assert len(marks) > len(await stored_rows(stored, "SELECT id FROM marks")), "it is the state of then"

        await sidecar.start()
        body = {"model": "prod", "messages": [{"role": "user", "content": "question after"}]}
        await acknowledged(client, "/v1/chat/completions", body, {"x-slipstream-task-id": "after"})

        async def drained() -> bool:
            status = (await client.get("/status")).json()
            ended = not {"running", "ready", "committing"} & set(status["groups"]) and "open" not in status["tasks"]
            return ended and (await client.get("/tasks/after")).status_code == 200

        await until(drained, 120)
        await sidecar.end(signal.SIGTERM)
    assert set(effects(explorer).values()) == {1}, "no answer had effect twice"
    for taken in explorer.committed:  # a group that ran again since the backup is in two of them, with other answers
        runs: dict[str, list[int]] = {}
        for experience in taken:
            runs.setdefault(experience["task_id"], []).append(experience["run_id"])
        assert all(sorted(parts) == [0, 1] for parts in runs.values()), "a group was trained in part"
    states = await groups(stored)
    assert states["after.0"] == "delivered"
    assert set(states.values()) <= {"delivered", "rerun"}
