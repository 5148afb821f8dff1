"""A store made again from a backup, in one transaction: killed in between, the store is as it was before.

What was under way then is ended as `rewind` says. Sessions that were deleted since are deleted again, as far as the
store that is replaced knows of them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from sqlalchemy import Table, delete, func, insert, select, text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession

from slipstream.errors import SlipstreamError
from slipstream.store import erasure, numbering, quarantine, rewind, schema, sidecars
from slipstream.store.backup import tables_of
from slipstream.store.backup_file import BackupError, BackupReader, Manifest, opened
from slipstream.store.cipher import MARK, Cipher, Sealed
from slipstream.store.database import Database
from slipstream.store.tables.privacy import ErasureRow


class NotEmpty(SlipstreamError):
    """The store holds something, and was not to be replaced; or a sidecar is at it."""


@dataclass(frozen=True, slots=True)
class Restored:
    """Result of a restore.

    Attributes:
        erased: deletions of the store before that were applied again.
    """

    manifest: Manifest
    erased: int


class _Erasure(NamedTuple):
    kind: Any
    ref: str
    at: float
    told: Any


async def restore(
    url: str,
    path: Path,
    *,
    replace: bool,
    group_size: int,
    now: float,
    is_of: Callable[[bytes, erasure.Kind, str], bool],
    cipher: Cipher | None = None,
) -> Restored:
    """Make a store again as it was, of the newest schema.

    Args:
        url: as `store.url`; may be another database than the backup's.
        replace: what the store holds is deleted, but for the deletions on request that it knows.
        group_size: as `facade.group_size`.
        now: Unix seconds.
        is_of: says if a packed exchange names a session or a task, by the id in the store.
        cipher: opens exchanges that are set apart. One that it does not open is deleted with the first deletion that is
            applied again, because nothing says whose it is.

    Raises:
        BackupError: the file is no whole backup that this release can read. The store is as it was.
        NotEmpty: a sidecar uses the store, or it holds something and is not to be replaced.
        ConfigError, StoreAway: the store cannot be written.
    """
    with opened(path) as backup:
        if not schema.known(backup.manifest.revision):
            raise BackupError(
                f"{path}: made by slipstream {backup.manifest.slipstream}: expected a schema of revision "
                f"{schema.newest()} at most, found {backup.manifest.revision}; restore it with that release"
            )
        backup.check()
        database = Database(url)
        try:
            async with database.exclusive() as connection:
                erasures = await _emptied(connection, replace=replace, shared=database.shared)
                await connection.run_sync(schema.upgrade, backup.manifest.revision)
                await _fill(connection, backup)
                await connection.run_sync(schema.upgrade)
                async with AsyncSession(connection) as session:
                    await rewind.settle(session, group_size, now)
                    for deletion in erasures:
                        await _erase_again(session, deletion)
                        await quarantine.delete_exchanges(
                            session, partial(_is_deleted, deletion, is_of, cipher), until=deletion.at
                        )
                    await session.commit()  # of the session: the transaction is the connection's
            await database.scrub()
        finally:
            await database.close()
    return Restored(backup.manifest, len(erasures))


async def _emptied(connection: AsyncConnection, *, replace: bool, shared: bool) -> Sequence[_Erasure]:
    """Drop the tables of a store that may be replaced. Returns the deletions on request that it knew."""
    if await connection.run_sync(schema.current) is None:
        return ()
    tables = await connection.run_sync(tables_of)
    named = {each.name: each for each in tables}
    if shared and (alive := await _alive(connection, named)):
        raise NotEmpty(f"store.url: expected a store that no sidecar uses, found {', '.join(alive)}; stop it first")
    counts = {name: await connection.scalar(select(func.count()).select_from(each)) for name, each in named.items()}
    held = [f"{count} rows in {name}" for name, count in counts.items() if count and name != "sidecars"]
    if held and not replace:
        raise NotEmpty(f"store.url: expected an empty store, found {', '.join(held)}; --replace deletes them")
    deletions: Sequence[_Erasure] = ()
    if (known := named.get("erasures")) is not None:
        rows = await connection.execute(select(known.c.kind, known.c.ref, known.c.at, known.c.told))
        deletions = [_Erasure(kind, ref, at, json.loads(told)) for kind, ref, at, told in rows]
    for each in reversed(tables):
        await connection.run_sync(each.drop)
    await connection.execute(text("DROP TABLE alembic_version"))
    return deletions


async def _alive(connection: AsyncConnection, tables: Mapping[str, Table]) -> Sequence[str]:
    if "sidecars" not in tables:
        return ()
    async with AsyncSession(connection) as session:
        found = await sidecars.alive(session)
        await session.commit()
    return found


async def _fill(connection: AsyncConnection, backup: BackupReader) -> None:
    """Insert the rows of a backup into a store of its revision."""
    made = await connection.run_sync(tables_of)
    for each in reversed(made):
        await connection.execute(delete(each))  # a migration may have made rows
    tables = {each.name: each for each in made}
    for name, entry in backup.manifest.tables.items():
        there = tables.get(name)
        if there is None or set(entry.columns) != set(there.columns.keys()):
            raise BackupError(f"{name}: expected the columns of a store of revision {backup.manifest.revision}")
        for rows in backup.rows(name):
            if rows:
                await connection.execute(insert(there), [dict(zip(entry.columns, row, strict=True)) for row in rows])
    await numbering.go_on(connection, made, backup.manifest.numbers)


async def _erase_again(session: AsyncSession, deletion: _Erasure) -> None:
    await erasure.erase(session, deletion.kind, deletion.ref, deletion.at)
    row = await session.get_one(ErasureRow, (deletion.kind, deletion.ref))
    row.told = deletion.told  # the later store knew of all that had been given to the Explorer until then


def _is_deleted(
    deletion: _Erasure, is_of: Callable[[bytes, erasure.Kind, str], bool], cipher: Cipher | None, packed: bytes
) -> bool:
    """Return True for a stored exchange that belongs to what was deleted, and for one that cannot be decrypted."""
    if packed[:1] == MARK:
        try:
            packed = b"" if cipher is None else cipher.open(packed)
        except Sealed:
            packed = b""
    return not packed or is_of(packed, deletion.kind, deletion.ref)
