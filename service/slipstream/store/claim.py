"""The claim on a SQLite store: one sidecar at a time owns a file, whatever name it is reached by."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import IO

from sqlalchemy.engine import URL

from slipstream.errors import ConfigError


def sqlite_file(url: URL) -> Path | None:
    """The file of a SQLite store without symbolic links, by which SQLite names its log too; None: it is in memory."""
    if url.database in (None, "", ":memory:"):
        return None
    return Path(os.path.realpath(str(url.database)))


def claim(path: Path) -> IO[str]:
    """Create the file of a store and its folder where missing, for this user alone, and lock it; a kill releases it.

    A second sidecar would take this one's runs for its own.

    Args:
        path: without symbolic links, as of `sqlite_file`.

    Raises:
        ConfigError: another sidecar has it, or the file has a second name that links cannot be resolved to.
        OSError: it cannot be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = path.with_name(path.name + ".lock").open("w")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        descriptor = os.open(path, os.O_CREAT, 0o600)  # conversations: SQLite would let everybody read a new file
        names = os.fstat(descriptor).st_nlink
        os.close(descriptor)
    except BlockingIOError:
        lock.close()
        raise ConfigError(
            f"store.url: expected a store of this sidecar alone, found {path} in use by another; "
            "several share a PostgreSQL"
        ) from None
    except OSError:
        lock.close()
        raise
    if names > 1:
        lock.close()
        raise ConfigError(
            f"store.url: expected a file with one name, found {path} with {names} hard links: SQLite keeps a log "
            "beside each name, and loses what stands in the other one. Copy the file, and remove the other links "
            f"(find {path.parent} -samefile {path})"
        )
    return lock
