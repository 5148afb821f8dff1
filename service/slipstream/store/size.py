"""Size of the store: bytes in use, which retention frees, without the room that is kept for more."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession

from slipstream.store.tables.base import Base

_SQLITE = text(
    "SELECT (page_count - freelist_count) * page_size FROM pragma_page_count, pragma_freelist_count, pragma_page_size"
)

_WRITE_AHEAD = "-wal"

_POSTGRESQL = text("""
    SELECT coalesce(sum(
        pg_indexes_size(main.oid)
        + CASE WHEN main.reltuples < 0 THEN pg_relation_size(main.oid)
               ELSE least(pg_relation_size(main.oid), main.reltuples * (28 + coalesce(width, 0))) END
        + CASE WHEN beside.oid IS NULL THEN 0
               WHEN beside.reltuples < 0 THEN pg_relation_size(beside.oid)
               ELSE least(pg_relation_size(beside.oid), beside.reltuples * 2032) END
    ), 0)
    FROM pg_class AS main
    LEFT JOIN pg_class AS beside ON beside.oid = main.reltoastrelid
    LEFT JOIN (
        SELECT tablename, sum(avg_width) AS width FROM pg_stats WHERE schemaname = current_schema() GROUP BY tablename
    ) AS columns ON columns.tablename = main.relname
    WHERE main.relkind = 'r' AND main.relnamespace = current_schema()::regnamespace AND main.relname = ANY(:tables)
""")
"""PostgreSQL keeps the room of deleted rows for new ones and does not say how much that is, so this is what its
statistics know: rows times their width, and out of line (TOAST) in pieces of 2 KB; never more than the files have."""


async def size(session: AsyncSession) -> int:
    """Bytes in use."""
    bind = session.get_bind()
    if bind.dialect.name == "sqlite":
        used = int((await session.execute(_SQLITE)).scalar_one())
        return used + _log(bind.engine.url.database)
    tables = [table.name for table in Base.metadata.sorted_tables]
    return int((await session.execute(_POSTGRESQL, {"tables": tables})).scalar_one())


def _log(file: str | None) -> int:
    """Bytes of SQLite's write-ahead log, which is there while the file is open."""
    try:
        return Path(f"{file}{_WRITE_AHEAD}").stat().st_size if file else 0
    except FileNotFoundError:
        return 0
