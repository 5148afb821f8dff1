"""Time and size of a backup of a store and of its restore, beside SQLite's own copy of the file.

    python benchmarks/backup.py [--calls 200000]

The calls are made in a folder that is deleted afterwards; 200,000 of them need about 1 GB there.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import sqlite3
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "support"))

from filled import fill

from slipstream.capture.redacted import is_of
from slipstream.store.backup import back_up
from slipstream.store.database import Database
from slipstream.store.restore import restore


@contextlib.contextmanager
def _timed(name: str, file: Path) -> Iterator[None]:
    began = time.perf_counter()
    yield
    print(f"{name:<22} {time.perf_counter() - began:8.1f} s {file.stat().st_size / 1e6:10.1f} MB")


async def _measure(folder: Path, calls: int) -> None:
    store, copy, file = folder / "store.db", folder / "copy.db", folder / "backup"
    database = Database(f"sqlite+aiosqlite:///{store}")
    await database.open()
    await database.close()
    fill(store, calls)
    print(f"{calls:,} calls in {store.stat().st_size / 1e6:.1f} MB")
    with _timed("slipstream backup", file):
        await back_up(f"sqlite+aiosqlite:///{store}", file)
    with _timed("slipstream restore", copy):
        await restore(f"sqlite+aiosqlite:///{copy}", file, replace=False, group_size=1, now=time.time(), is_of=is_of)
    vacuumed = folder / "vacuumed.db"
    with _timed("SQLite's VACUUM INTO", vacuumed), contextlib.closing(sqlite3.connect(store)) as connection:
        connection.execute("VACUUM INTO ?", (str(vacuumed),))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--calls", type=int, default=200_000)
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(_measure(Path(folder), parser.parse_args().calls))


if __name__ == "__main__":
    main()
