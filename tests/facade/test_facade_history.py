"""Groups that the Explorer lost, and Trinity's table of chats, by which some of them are delivered again."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import struct
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest
from facade_client import commit, run, trained
from loops import RunLoop
from sqlalchemy import text
from sqlalchemy.ext.asyncio import create_async_engine
from starlette.requests import Request
from starlette.responses import Response

from slipstream.errors import ExplorerUnavailable
from slipstream.explorer import history as trinitys


@pytest.fixture
def history(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    """A database of Trinity's recorded chats, every answer in it consumed."""
    with contextlib.closing(sqlite3.connect(tmp_path / "history.db", isolation_level=None)) as database:
        database.execute("CREATE TABLE proxy_history (msg_id TEXT, consumed INTEGER)")
        yield database


async def test_a_failed_commit_that_may_have_been_carried_out_is_not_repaired(
    run_loop: RunLoop, tmp_path: Path, history: sqlite3.Connection
) -> None:
    async with run_loop(explorer={"history_url": f"sqlite+aiosqlite:///{tmp_path}/history.db"}) as loop:
        history.execute("INSERT INTO proxy_history VALUES (?, 1)", [await run(loop)])

        async def fails_and_is_away(request: Request) -> Response:
            loop.explorer.faults["/metrics"] = [503] * 1000
            return Response("Internal Server Error", 500)

        loop.explorer.commit_route = fails_and_is_away
        assert (await commit(loop))["lost"] == 1
        assert history.execute("SELECT consumed FROM proxy_history").fetchall() == [(1,)]


async def test_what_a_restarted_explorer_has_taken_already_is_not_repaired(
    run_loop: RunLoop, tmp_path: Path, history: sqlite3.Connection
) -> None:
    async with run_loop(explorer={"history_url": f"sqlite+aiosqlite:///{tmp_path}/history.db"}) as loop:
        answers = [await run(loop, task_id) for task_id in ("a", "b")]
        history.executemany("INSERT INTO proxy_history VALUES (?, 1)", [(msg_id,) for msg_id in answers])
        take = loop.explorer._feedback

        async def restarts_before_the_second(request: Request) -> Response:
            if loop.explorer.ready == 1:
                loop.explorer.boot(forget=False)
            return await take(request)

        loop.explorer.feedback_route = restarts_before_the_second
        assert (await commit(loop))["lost"] == 2
        assert [e["task_id"] for e in loop.explorer.queue] == ["b"], "the next commit takes it"
        assert history.execute("SELECT consumed FROM proxy_history").fetchall() == [(1,), (1,)]


async def test_a_history_whose_server_ended_the_connection_is_asked_again(empty_postgres: Callable[[], str]) -> None:
    url = empty_postgres()
    engine, history = create_async_engine(url), trinitys.TrinityHistory(url)
    async with engine.begin() as connection:
        columns = "msg_id TEXT, consumed INTEGER, model_version INTEGER"
        await connection.execute(text(f"CREATE TABLE proxy_history ({columns})"))
        await connection.execute(text("INSERT INTO proxy_history VALUES ('m', 1, 4)"))
    assert await history.versions(["m"]) == {"m": 4}
    async with engine.begin() as connection:
        others = "datname = current_database() AND pid != pg_backend_pid()"
        await connection.execute(text(f"SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE {others}"))
    assert await history.release(["m"])
    async with engine.connect() as connection:
        assert await connection.scalar(text("SELECT consumed FROM proxy_history")) == 0
    await history.aclose()
    await engine.dispose()


async def test_groups_stay_lost_where_trinitys_history_does_not_answer(run_loop: RunLoop, tmp_path: Path) -> None:
    async with run_loop(explorer={"history_url": f"sqlite+aiosqlite:///{tmp_path}/empty.db"}) as loop:
        await run(loop)
        loop.explorer.faults["/commit"] = [500]
        assert (await commit(loop))["lost"] == 1


async def test_a_delivery_waits_for_trinitys_history_while_no_commit_was_asked_for(
    run_loop: RunLoop, tmp_path: Path, history: sqlite3.Connection
) -> None:
    url = f"sqlite+aiosqlite:///{tmp_path}/history.db?timeout=0.1"
    async with run_loop(explorer={"history_url": url}) as loop:
        msg_id = await run(loop)
        history.execute("INSERT INTO proxy_history VALUES (?, 1)", [msg_id])
        take = loop.explorer._feedback

        async def restarts_behind_it(request: Request) -> Response:
            response = await take(request)
            loop.explorer.boot(forget=False)
            return response

        loop.explorer.feedback_route = restarts_behind_it
        history.execute("BEGIN EXCLUSIVE")
        response = await loop.client.post("/explorer/commit")
        assert (response.status_code, response.json()["error"]["code"]) == (503, "explorer_unavailable")
        history.execute("ROLLBACK")
        loop.explorer.feedback_route = take
        loop.explorer.recorded.add(msg_id)  # as Trinity does with what is not consumed
        assert (await commit(loop))["experiences"] == 1
        assert history.execute("SELECT consumed FROM proxy_history").fetchall() == [(0,)]
        assert trained(loop) == [[("t", 0)]]


@contextlib.asynccontextmanager
async def refusing(code: str | None) -> AsyncIterator[str]:
    """The address of a PostgreSQL that refuses each connection, by an error's code; without one it does not answer."""
    connections: list[asyncio.StreamWriter] = []

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.append(writer)
        (length,) = struct.unpack("!I", await reader.readexactly(4))
        await reader.readexactly(length - 4)
        if code is not None:
            fields = f"SFATAL\0VFATAL\0C{code}\0Mno\0\0".encode()
            writer.write(b"E" + struct.pack("!I", len(fields) + 4) + fields)

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    yield f"postgresql+asyncpg://trinity@{host}:{port}/trinity?ssl=disable"
    server.close()
    for connection in connections:
        connection.close()
        with contextlib.suppress(ConnectionError):
            await connection.wait_closed()


@pytest.mark.parametrize("code", [None, "57P03"], ids=["hangs", "starts"])
async def test_a_history_that_does_not_answer_is_away(code: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trinitys, "_LONGEST", 0.5)
    async with refusing(code) as url:
        history = trinitys.TrinityHistory(url)
        with pytest.raises(ExplorerUnavailable, match="does not answer"):
            await history.release(["a"])
    with pytest.raises(ExplorerUnavailable, match="does not answer"):
        await history.release(["a"])


async def test_a_history_that_refuses_is_not_waited_for() -> None:
    async with refusing("28P01") as url:
        assert not await trinitys.TrinityHistory(url).release(["a"])


async def test_a_history_that_hangs_holds_up_no_delivery(run_loop: RunLoop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trinitys, "_LONGEST", 0.2)
    async with refusing(None) as url, run_loop(explorer={"history_url": url}) as loop:
        await run(loop)
        loop.explorer.faults["/commit"] = [500]
        assert (await commit(loop))["lost"] == 1
