"""A COMMIT whose answer never came, so that nobody knows whether it took place."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import ModuleType
from typing import Any

import pytest
from sqlalchemy.exc import OperationalError
from sqlalchemy.ext.asyncio import AsyncSession

from slipstream.store.database import Database


def lose_a_commit(monkeypatch: pytest.MonkeyPatch, module: ModuleType, *, took_place: bool = True) -> list[bool]:
    """The next transaction in which this module's `claim` takes runs seems to have failed. What is returned is filled
    once that has happened.

    Args:
        took_place: it was committed; else it is rolled back.
    """
    claim, write, lost = module.claim, Database.write, []

    async def claims(session: AsyncSession, *args: Any) -> Any:
        claimed = await claim(session, *args)
        session.info["claimed"] = bool(claimed)
        return claimed

    @asynccontextmanager
    async def cut_off_once(database: Database, **how: bool) -> AsyncIterator[AsyncSession]:
        async with write(database, **how) as session:
            yield session
            if loses := session.info.get("claimed") and not lost:
                lost.append(True)
                if not took_place:
                    raise OperationalError(None, None, Exception("cut off"))
        if loses:
            raise OperationalError(None, None, Exception("cut off"))

    monkeypatch.setattr(module, "claim", claims)
    monkeypatch.setattr(Database, "write", cut_off_once)
    return lost
