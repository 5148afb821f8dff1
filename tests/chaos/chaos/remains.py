"""What can be read in what is left on disk: no key, and nothing of a conversation that is encrypted, or was deleted."""

from __future__ import annotations

import base64
import contextlib
import sqlite3
from collections.abc import Iterable
from pathlib import Path

from on_disk import unpacked
from stores import stored_rows

from chaos.record import CANARY, canary
from chaos.world import World

_BODIES = {
    "calls": ("request", "answer", "original_request", "original_answer"),
    "segments": ("body",),
    "runs": ("request", "answer"),
    "run_calls": ("request", "answer"),
}
"""The packed columns of each table."""
_OTHERS = ("production.log", "experiences.db")
"""Files of production and of the embedded Explorer, which know all that they were asked."""


async def readable(world: World) -> list[str]:
    """What somebody who has the disk could read, and must not."""
    found = await _keys(world)
    if world.schedule.encrypted:
        found += [f"the canary is in {file.name}" for file in _files(world) if _reads(file, (CANARY,))]
    if world.schedule.store == "sqlite":  # what PostgreSQL keeps of deleted rows is its vacuum's
        # where rows were moved from page to page, SQLite overwrites only the one that is deleted: see docs/privacy.md
        with contextlib.closing(sqlite3.connect(world.store_file)) as connection:
            connection.execute("VACUUM")
        erased = [canary(task) for task, told in world.record.erased.items() if told is not None]
        store = world.store_folder.glob(f"{world.store_file.name}*")
        found += [f"what was deleted is in {file.name}" for file in store if _reads(file, erased)]
    return found


async def _keys(world: World) -> list[str]:
    """The agents' keys are nowhere but with production: not in the files of the store, not in a log, not packed."""
    secrets = world.record.secrets
    found = [f"a key is in {file.name}" for file in _files(world) if _has(file.read_bytes(), secrets)]
    for table in _BODIES:
        bodies = await _bodies(world, table)
        if _has(b"\n".join(bodies), secrets):
            found.append(f"a key is in {table}")
        if table == "calls" and bodies and not _has(b"\n".join(bodies), (CANARY,)):
            found.append("no stored call has the canary: it was looked for in vain")
    return found


def _files(world: World) -> set[Path]:
    folders = [world.folder, world.store_folder, *([Path(world.postgres.folder.name)] if world.postgres else [])]
    return {file for folder in folders for file in folder.rglob("*") if file.is_file()}


async def _bodies(world: World, table: str) -> list[bytes]:
    """All bodies of a table, as whoever has the key reads them."""
    from slipstream.store.bodies import unpacked_text
    from slipstream.store.cipher import Cipher

    key = world.secrets.get("STORE_ENCRYPTION_KEY")
    cipher = Cipher([base64.b64decode(key)]) if key else None
    rows = await stored_rows(world.store_url, f"SELECT {', '.join(_BODIES[table])} FROM {table}")
    stored = [bytes(body) for row in rows for body in row if body is not None]
    opened = [cipher.open(body) if cipher else body for body in stored]
    return [unpacked_text(body) for body in opened if body]


def _reads(file: Path, words: Iterable[str]) -> bool:
    content = file.read_bytes()
    return file.name not in _OTHERS and (_has(content, words) or any(_has(body, words) for body in unpacked(content)))


def _has(content: bytes, words: Iterable[str]) -> bool:
    return any(word.encode() in content for word in words)
