"""Two sidecars on one PostgreSQL: they share the work, and one ends what the other leaves."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import httpx
import pytest
from cluster import REPEAT_TIME, Cluster, two_sidecars
from serving import until
from stores import stored_rows

TASKS = 40


@pytest.fixture
async def cluster(new_postgres: Callable[[], str], tmp_path: Path) -> AsyncIterator[Cluster]:
    async with two_sidecars(new_postgres(), tmp_path) as both:
        yield both


async def _captured(cluster: Cluster, count: int) -> bool:
    """Whether so many exchanges are in the store, as tasks or on their way to them."""
    [(tasks,)] = await stored_rows(cluster.store_url, "SELECT count(*) FROM tasks")
    [(waiting,)] = await stored_rows(cluster.store_url, "SELECT coalesce(sum(exchanges), 0) FROM captured")
    return bool(tasks + waiting == count)


@pytest.mark.slow
async def test_feedback_may_be_given_to_the_other_sidecar(cluster: Cluster) -> None:
    msg_id = await cluster.ask(cluster.to_first, "t")
    posted = await cluster.to_second.post("/feedback", json={"msg_id": msg_id, "thumbs": "up"})
    assert posted.status_code == 202
    marked = await cluster.to_second.post("/marks", json={"task_id": "t", "labels": ["seen by the second"]})
    assert marked.status_code == 202

    async def matched(client: httpx.AsyncClient) -> bool:
        receipt = (await client.get(f"/feedback/{posted.json()['id']}")).json()
        return bool(receipt["targets"][0]["matched_to"] == "production")

    for client in (cluster.to_first, cluster.to_second):
        await until(lambda client=client: matched(client))
        task = (await client.get("/tasks/t")).json()
        assert task["labels"] == ["seen by the second"]


@pytest.mark.slow
async def test_each_run_is_sent_by_one_of_them_and_delivered_once(
    new_postgres: Callable[[], str], tmp_path: Path
) -> None:
    async with two_sidecars(new_postgres(), tmp_path, lease="60s") as cluster:  # none of them is taken for gone
        clients = (cluster.to_first, cluster.to_second)
        await asyncio.gather(*(cluster.ask(clients[number % 2], f"t{number}") for number in range(TASKS)))
        await cluster.delivered(TASKS, by=cluster.to_first)
        assert len(cluster.explorer.chats) == TASKS * REPEAT_TIME
        assert cluster.trained() == {f"t{number}.0": [0, 1] for number in range(TASKS)}
        owners = await stored_rows(cluster.store_url, "SELECT count(*) FROM runs WHERE owner IS NOT NULL")
        assert owners == [(0,)]


async def test_what_a_killed_sidecar_had_begun_is_ended_by_the_other(cluster: Cluster) -> None:
    cluster.explorer.hold.clear()
    await asyncio.gather(*(cluster.ask(cluster.to_first, f"t{number}") for number in range(10)))
    await until(lambda: len(cluster.explorer.chats) == 2)  # one of each: the first that it sends goes alone
    await until(lambda: _captured(cluster, 10))
    os.killpg(cluster.first.pid, signal.SIGKILL)
    await cluster.first.ended()
    cluster.explorer.hold.set()
    await cluster.delivered(10, by=cluster.to_second)
    assert cluster.trained() == {f"t{number}.0": [0, 1] for number in range(10)}

    async def alone() -> bool:
        return len(await stored_rows(cluster.store_url, "SELECT id FROM sidecars")) == 1

    await until(alone, 30, "the killed one is taken over, also where the other had sent all of its runs")
    await cluster.first.start()


@pytest.mark.slow
async def test_a_sidecar_that_was_stopped_past_its_lease_doubles_nothing_when_it_goes_on(cluster: Cluster) -> None:
    cluster.explorer.hold.clear()
    await asyncio.gather(*(cluster.ask(cluster.to_first, f"t{number}") for number in range(10)))
    await until(lambda: len(cluster.explorer.chats) == 2)  # one of each: the first that it sends goes alone
    await until(lambda: _captured(cluster, 10))
    [(before,)] = await stored_rows(cluster.store_url, "SELECT max(id) FROM sidecars")
    os.killpg(cluster.first.pid, signal.SIGSTOP)
    cluster.explorer.hold.set()  # its answers come, and wait in its sockets
    await cluster.delivered(10, by=cluster.to_second)
    os.killpg(cluster.first.pid, signal.SIGCONT)

    async def back() -> bool:
        rows = await stored_rows(cluster.store_url, "SELECT count(*), max(id) FROM sidecars")
        return rows[0][0] == 2 and rows[0][1] > before

    await until(back, 20, "the first registers anew")
    await cluster.ask(cluster.to_first, "later")
    await cluster.delivered(11, by=cluster.to_first)
    assert cluster.trained() == {name: [0, 1] for name in ("later.0", *(f"t{number}.0" for number in range(10)))}
    tasks = await stored_rows(cluster.store_url, "SELECT count(*), count(DISTINCT task_id) FROM calls")
    assert tasks == [(11, 11)]
