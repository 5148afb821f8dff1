"""The keys that `sidecar.yaml` names: those of its users in a file, and those that open its store."""

from __future__ import annotations

import asyncio
import os
import stat
import time
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import URL, make_url
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

from slipstream.access.keyring import Keyring
from slipstream.access.settings import Access, Role
from slipstream.errors import ConfigError
from slipstream.settings.sidecar import Store
from slipstream.store import keys
from slipstream.store.cipher import Cipher

_PATIENCE = 10.0
"""Seconds for the whole look: a server that does not answer is left alone."""


@dataclass(frozen=True, slots=True)
class KeysFile:
    """`access.keys_file`.

    Attributes:
        error: why the sidecar would not start with it; None where it can be read.
        roles: what the keys may do, those of `access.keys` included.
        writable: whether any user of this machine may write it.
    """

    path: Path
    error: str | None
    roles: frozenset[Role] = frozenset()
    writable: bool = False


def look_at_keys_file(access: Access) -> KeysFile | None:
    """Read the keys file as the sidecar would; None if no file is named."""
    if access.keys_file is None:
        return None
    try:
        valid = Keyring(access).now()
    except ConfigError as error:
        return KeysFile(access.keys_file, str(error))
    roles = frozenset(role for key in valid for role in key.roles)
    return KeysFile(access.keys_file, None, roles, bool(os.stat(access.keys_file).st_mode & stat.S_IWOTH))


def locked_out(store: Store) -> str | None:
    """Return why the sidecar would not start with the keys of its store; None if it would, or if that cannot be seen
    from here. Changes nothing."""
    url = make_url(store.url)
    if url.get_backend_name() == "sqlite":
        if not os.path.isfile(url.database or ""):
            return None  # to open it would make it
        url = url.set(database=f"file:{url.database}", query={"mode": "ro", "uri": "true"})
    try:
        return asyncio.run(asyncio.wait_for(_locked_out(url, store.keys), _PATIENCE))
    except Exception:  # noqa: BLE001 - drivers raise errors of their own; a store of before has no such table
        return None


async def _locked_out(url: URL, given: list[bytes]) -> str | None:
    engine = create_async_engine(url)
    try:
        async with AsyncSession(engine, autoflush=False) as session:  # what it would change is never written
            await keys.check(session, Cipher(given) if given else None, time.time())
    except ConfigError as error:
        return str(error)
    finally:
        await engine.dispose()
    return None
