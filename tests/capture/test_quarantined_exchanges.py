"""One exchange that ends each process which reads it is set apart, and the hundreds beside it are stored."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from captured_chats import MAX_BODY, completion, exchange, user
from captured_chats import assistant as said
from contexts import parse_memory
from loops import Loop, RunLoop
from serving import until
from sqlalchemy import func, select

from slipstream.capture.redacted import ExchangeRedactor, RedactedExchange, pack_exchanges, unpack_exchanges
from slipstream.redaction.redactor import Redactor
from slipstream.store.database import Database
from slipstream.store.tables.capture import CallRow, CapturedRow, QuarantinedExchangeRow

DIES_OF_POISON = """
import asyncio, os, sys
from captured_chats import exchange
from slipstream.capture import recorder
from slipstream.store import captured
from slipstream.store.database import Database
from test_recorder import Recording, asks

read_call = recorder.read_call

def poisoned(kept, *earlier):
    if b"poison" in kept.request:
        os._exit(9)
    return read_call(kept, *earlier)

recorder.read_call = poisoned

async def main(url, exchanges):
    database = Database(url)
    await database.open()
    recording = Recording(database)
    await recording.backlog.open(database, 0)
    texts = [f"call {number}" for number in range(exchanges)]
    if texts:
        texts[exchanges // 2] = "poison"
    await recording.record(*(exchange(asks(text)) for text in texts))
    await database.close()

asyncio.run(main(sys.argv[1], int(sys.argv[2])))
"""


@pytest.mark.slow
async def test_an_exchange_that_ends_its_process_three_times_is_set_apart_and_no_other(tmp_path: Path) -> None:
    url = f"sqlite+aiosqlite:///{tmp_path}/slipstream.db"
    environment = [sys.executable, "-c", f"import sys; sys.path[:0] = {sys.path!r}\n{DIES_OF_POISON}", url]
    codes: list[int] = []
    while not codes or codes[-1]:
        assert len(codes) < 5, codes
        exchanges = "0" if codes else "300"
        codes.append(subprocess.run([*environment, exchanges], timeout=300, check=False).returncode)  # noqa: ASYNC221
    assert codes == [9, 9, 9, 0]

    database = Database(url)
    await database.open()
    async with database.read() as session:
        assert await session.scalar(select(func.count()).select_from(CallRow)) == 299
        assert await session.scalar(select(func.count()).select_from(CapturedRow)) == 0
        [apart] = await session.scalars(select(QuarantinedExchangeRow))
    await database.close()
    [kept] = unpack_exchanges(apart.packed)
    assert b"poison" in kept.request
    assert apart.reason == "the training side died 3 times while it worked on it"


async def _command(loop: Loop, *arguments: str) -> tuple[int | None, str]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "slipstream", "quarantine", *arguments, "--url", loop.url),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    out, _ = await process.communicate()
    return process.returncode, out.decode()


@pytest.mark.slow
async def test_a_deletion_reaches_what_is_set_apart_by_its_headers(run_loop: RunLoop, tmp_path: Path) -> None:
    async with run_loop() as loop:
        await loop.status()
        await asyncio.to_thread(
            _set_apart, tmp_path / "slipstream.db", [{}, {"session-id": "s"}, {"session-id": "t", "task-id": "s"}]
        )
        for query, deleted in (("session_id=s", 1), ("session_id=s", 0), ("task_id=t", 0), ("task_id=s", 1)):
            erased = (await loop.client.delete(f"/data?{query}")).json()
            assert erased["deleted"]["exchanges"] == deleted, query
        assert len((await loop.client.get("/quarantine")).json()["quarantined"]) == 1


def _set_apart(path: Path, headers: list[dict[str, str]]) -> None:
    """Put exchanges with these headers of ours where they are set apart."""
    with contextlib.closing(sqlite3.connect(path)) as store, store:
        for number, given in enumerate(headers):
            asked = {"messages": [user(f"apart {number}")]}
            heads = [(f"x-slipstream-{name}".encode(), value.encode()) for name, value in given.items()]
            kept = ExchangeRedactor(Redactor([]), MAX_BODY, parse_memory()).redact(
                exchange(asked, answer=completion(said("yes"), id=f"m-{number}"), request_headers=heads)
            )
            assert isinstance(kept, RedactedExchange)
            row = pack_exchanges([kept]), "it died", 1_800_000_000.0
            store.execute("INSERT INTO quarantined_exchanges (packed, reason, created_at) VALUES (?, ?, ?)", row)


@pytest.mark.slow
async def test_what_is_set_apart_is_seen_tried_again_and_dropped(run_loop: RunLoop, tmp_path: Path) -> None:
    async with run_loop() as loop:
        await loop.status()
        await asyncio.to_thread(_set_apart, tmp_path / "slipstream.db", [{}, {}])
        codes = [problem["code"] for problem in (await loop.status())["problems"]]
        assert "live.quarantined" in codes
        assert 'slipstream_quarantined{kind="exchange"} 2.0' in (await loop.client.get("/metrics")).text
        code, out = await _command(loop, "list")
        assert code == 0
        assert out.count("it died") == 2

        assert await _command(loop, "retry", "--kind", "exchange", "--id", "1") == (0, "retry: 1, still set apart: 1\n")
        await until(lambda: _stored(loop, "m-0"), 60)
        assert not await _stored(loop, "m-1")
        assert await _command(loop, "drop") == (0, "drop: 1, still set apart: 0\n")
        assert await _command(loop, "list") == (0, "nothing is set apart\n")
        noted = (await loop.client.get("/audit")).json()["entries"]
        assert [(one["action"], one["written"], one["named"]) for one in noted] == [
            ("quarantine_drop", None, 0),
            ("quarantine_retry", "1", 0),
        ]
        code, out = await _command(loop, "retry", "--id", "7")
        assert (code, "kind: exchange, task or run, for an id; found none" in out) == (2, True)


async def _stored(loop: Loop, msg_id: str) -> bool:
    return (await loop.client.get(f"/calls/{msg_id}")).status_code == 200
