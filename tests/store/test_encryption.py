"""What the store holds of conversations is encrypted where there is a key, and a wrong one is told at once."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from loops import RunLoop
from on_disk import holds
from scripted import ScriptedExplorer
from serving import until
from sidecar_process import SidecarProcess
from sqlalchemy import LargeBinary, literal, select, update
from stores import ON_BOTH_STORES, stored_rows

from slipstream.config.encryption_key import read_key
from slipstream.errors import ConfigError
from slipstream.store import captured, feedback, quarantine, quarantine_release
from slipstream.store.captured import CaptureBatch
from slipstream.store.cipher import Cipher, Sealed, fingerprint
from slipstream.store.database import Database
from slipstream.store.feedback import NewFeedback
from slipstream.store.quarantine_release import Quarantined
from slipstream.store.tables.capture import QuarantinedExchangeRow
from slipstream.store.tables.feedback import FeedbackRow

KEY, OTHER, THIRD = (base64.b64encode(bytes([number]) * 32).decode() for number in (1, 2, 3))
NAME = fingerprint(read_key(KEY))
MARKER = "3f2c77-otter"

QUOTING = {
    "captured": ("packed",),
    "tasks": ("meta",),
    "calls": ("request", "answer"),
    "segments": ("body",),
    "runs": ("request", "answer", "breakdown", "reason", "ending"),
    "run_calls": ("request", "answer"),
    "feedback": ("comment", "source"),
    "marks": ("meta",),
}
"""Columns that can quote a user."""


def _store(url: str, *keys: str) -> dict[str, Any]:
    return {"url": url, "encryption_key": list(keys)}


async def _conversation(loop: Any, task_id: str) -> None:
    """All that can quote a user: bodies, metadata, a comment, a mark, what a replay says, a reason."""
    headers = {"x-slipstream-task-id": task_id, "x-slipstream-metadata": json.dumps({"name": MARKER})}
    answer = await loop.chat(f"I am {MARKER}", headers)
    await until(lambda: loop.task(task_id))
    said = {"comment": f"thanks, says {MARKER}", "source": MARKER, "thumbs": "up"}
    assert (await loop.client.post("/feedback", json={"msg_id": answer["id"], **said})).status_code == 202
    mark = {"task_id": task_id, "metadata": {"reference": MARKER}}
    assert (await loop.client.post("/marks", json=mark)).status_code == 202
    replay = f"{task_id}-replay"
    assert (await loop.client.post(f"/runs/{replay}", json={"runs": 2, "metadata": {"name": MARKER}})).status_code < 300
    chat = {"model": "policy", "messages": [{"role": "user", "content": f"I am {MARKER}"}]}
    for run_id, end in enumerate(({"metadata": {"name": MARKER}, "reward": 1}, {"error": f"{MARKER} was away"})):
        asked = await loop.client.post(f"/runs/{replay}/{run_id}/v1/chat/completions", json=chat)
        assert asked.status_code == 200, asked.text
        ended = await loop.client.post(f"/runs/{replay}/{run_id}/finish", json=end)
        assert ended.status_code == 200, ended.text


@pytest.mark.sampled(1)
@ON_BOTH_STORES
async def test_nothing_that_quotes_a_user_is_stored_in_clear(run_loop: RunLoop, store_url: str, tmp_path: Path) -> None:
    async with run_loop(store=_store(store_url, KEY)) as loop:
        await _conversation(loop, "t")
        await until(lambda: loop.ready(1))
        await loop.chat([{"role": "user", "content": f"I am {MARKER}"}] * 3)
        await until(lambda: loop.ready(2))
        task = await loop.task("t")
        assert task is not None
        assert task["metadata"] == {"name": MARKER, "reference": MARKER}, "it is read as it was written"
        [failed] = (await loop.status())["failed_runs"]
        assert MARKER in failed["reason"]
        assert loop.explorer.chats[0]["messages"][0]["content"] == f"I am {MARKER}"
    assert not holds(tmp_path, MARKER), "neither now nor on the way"
    filled = 0
    for table, columns in QUOTING.items():
        for row in await stored_rows(store_url, f"SELECT {', '.join(columns)} FROM {table}"):
            for value in row:
                assert MARKER not in str(value)
                if value not in (None, "null", "{}", {}):
                    filled += 1
                    assert value.startswith((b"\xc1",)) if isinstance(value, bytes) else "sealed:" in value, table
    assert filled > 15, "the conversation is there"


@pytest.mark.slow
@ON_BOTH_STORES
async def test_a_store_that_was_plain_is_encrypted_from_then_on(run_loop: RunLoop, store_url: str) -> None:
    explorer = ScriptedExplorer()
    kept = {"commit": {"interval": "1h", "on_shutdown": False}}
    async with run_loop(explorer, **kept) as loop:
        await _conversation(loop, "old")
        await until(lambda: loop.ready(1))
    async with run_loop(explorer, **kept, store=_store(store_url, KEY)) as loop:
        await _conversation(loop, "new")
        mark = {"task_id": "old", "metadata": {"again": MARKER}}  # which has its run scored again: all of it is read
        assert (await loop.client.post("/marks", json=mark)).status_code == 202
        await until(lambda: loop.ready(2))
        expected = {"name": MARKER, "reference": MARKER, "again": MARKER}
        assert (await loop.task("old") or {})["metadata"] == expected
    packed = [request[:1] for (request,) in await stored_rows(store_url, "SELECT request FROM calls ORDER BY id")]
    assert packed == [b"\x78", b"\xc1"]


@pytest.mark.sampled(1)
@ON_BOTH_STORES
async def test_keys_are_rotated_and_no_start_is_made_without_one_that_is_needed(
    run_loop: RunLoop, store_url: str
) -> None:
    async with run_loop(store=_store(store_url, KEY)) as loop:
        await loop.chat("one", {"x-slipstream-task-id": "one"})
        await until(lambda: loop.ready(1))
    async with run_loop(store=_store(store_url, OTHER, KEY)) as loop:
        assert (await loop.task("one")) is not None
        await loop.chat("two", {"x-slipstream-task-id": "two"})
        await until(lambda: loop.ready(1))
    for given in ([], [THIRD], [OTHER]):
        cipher = Cipher([read_key(key) for key in given]) if given else None
        database = Database(store_url, cipher)
        with pytest.raises(ConfigError, match=r"^store\.encryption_key: .* fingerprint [0-9a-f]{8}, ") as refused:
            await database.open()
        assert KEY not in str(refused.value)
        await database.close()
    async with run_loop(store=_store(store_url, OTHER, KEY), capture={"retention": "10ms"}) as loop:

        async def gone() -> bool:
            return not (await loop.status())["tasks"]

        await until(gone)
    database = Database(store_url, Cipher([read_key(OTHER)]))
    await database.open()  # nothing is left that the old key is needed for
    await database.close()


@ON_BOTH_STORES
async def test_what_is_not_read_yet_needs_its_key_too(store_url: str) -> None:
    database = Database(store_url, Cipher([read_key(KEY)]))
    await database.open()
    async with database.write() as session:
        await captured.add(session, 1, [CaptureBatch(captured.before_first(1) + 1, 1, MARKER.encode())], again=False)
    await database.close()
    for given, needed in (([], True), ([OTHER], True), ([OTHER, KEY], False)):
        database = Database(store_url, Cipher([read_key(key) for key in given]) if given else None)
        with pytest.raises(ConfigError, match=NAME) if needed else contextlib.nullcontext():
            await database.open()
        await database.close()


@ON_BOTH_STORES
async def test_what_is_set_apart_needs_its_key_too_and_goes_without_being_read(store_url: str) -> None:
    def database(*keys: str) -> Database:
        return Database(store_url, Cipher([read_key(key) for key in keys]))

    first = database(KEY)
    await first.open()
    async with first.write() as session:
        await quarantine.quarantine_exchange(session, MARKER.encode(), 1.0)
        await quarantine.quarantine_exchange(session, b"another", 1.0)
        await quarantine.quarantine_exchange(session, b"later", 3.0)
    await first.close()
    without = database(OTHER)
    with pytest.raises(ConfigError, match=NAME):
        await without.open()
    await without.close()
    both = database(OTHER, KEY)
    await both.open()
    async with both.write() as session:
        assert await quarantine.delete_exchanges(session, lambda packed: packed == MARKER.encode()) == 1
        await session.execute(update(QuarantinedExchangeRow).values(packed=literal(b"\xc1changed", LargeBinary)))
        assert await quarantine.delete_exchanges(session, lambda _: True) == 0
        assert await quarantine.delete_older(session, 2.0, 10) == 1
        last = Quarantined("exchange", "3", None, "", 3.0)
        assert [await quarantine_release.drop(session, [last], 4.0) for _ in range(2)] == [1, 0]
    await both.close()
    await without.open()  # nothing is left that the old key is needed for
    await without.close()


@pytest.mark.slow
async def test_a_sidecar_without_the_key_ends_with_what_is_wrong(tmp_path: Path) -> None:
    process = SidecarProcess(tmp_path, "http://127.0.0.1:9", "http://127.0.0.1:9")
    database = Database(f"sqlite+aiosqlite:///{process.store}", Cipher([read_key(KEY)]))
    await database.open()
    async with database.write() as session:
        await feedback.add(session, NewFeedback("f", "msg_id", ("m",), 1.0, comment=MARKER), 1.0)
    await database.close()
    serving = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "slipstream", "serve", "--config", str(process.config)),
        stderr=asyncio.subprocess.PIPE,
    )
    _, said = await serving.communicate()
    assert serving.returncode == 2
    assert f"store.encryption_key: expected among its keys the one with the fingerprint {NAME}" in said.decode()
    assert not holds(tmp_path, MARKER)


@pytest.mark.parametrize("value", [b"", b"x", bytes(100_000)], ids=["empty", "short", "long"])
def test_a_value_comes_back_as_it_was_sealed(value: bytes) -> None:
    cipher = Cipher([read_key(KEY)])
    sealed = cipher.seal(value)
    assert sealed != cipher.seal(value), "the same text is not seen to be the same"
    assert Cipher([read_key(OTHER), read_key(KEY)]).open(sealed) == value
    with pytest.raises(Sealed, match=fingerprint(read_key(KEY))):
        Cipher([read_key(OTHER)]).open(sealed)
    for changed in (sealed[:-1], sealed[:-1] + bytes([sealed[-1] ^ 1]), sealed[:20]):
        with pytest.raises(Sealed, match="changed"):
            cipher.open(changed)


@pytest.mark.parametrize("comment", ["sealed:", "sealed:hello", "sealed:aGVsbG8=", "sealed:wQ=="])
async def test_what_looks_like_it_was_sealed_is_text(tmp_path: Path, comment: str) -> None:
    url = f"sqlite+aiosqlite:///{tmp_path}/slipstream.db"
    for cipher in (None, Cipher([read_key(KEY)])):
        database = Database(url, cipher)
        await database.open()
        async with database.write() as session:
            name = "plain" if cipher is None else "sealed"
            new = NewFeedback(name, "msg_id", ("m",), 1.0, comment=comment)
            await feedback.add(session, new, 1.0)
        if cipher is not None:
            async with database.read() as session:
                assert set(await session.scalars(select(FeedbackRow.comment))) == {comment}
        await database.close()
