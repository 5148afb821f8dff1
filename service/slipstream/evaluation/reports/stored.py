"""The store as reports read it: held-out sessions as cases, with the answers that their users got, and versions."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from sqlalchemy.ext.asyncio import AsyncSession

from slipstream.evaluation.cases import AskedCase
from slipstream.evaluation.reports.cases import CaseSet, ReportCase, key_of
from slipstream.evaluation.reports.names import ReportError
from slipstream.evaluation.reports.scorers import by_last_answers
from slipstream.evaluation.scoring import from_call, message_call
from slipstream.settings.sidecar import Settings
from slipstream.store import heldout, read_models, versions
from slipstream.store.cipher import Cipher
from slipstream.store.database import Database, NoStore
from slipstream.store.heldout import HeldOutCall

_SUITE = "\0report"
"""No suite has this name: no cases of an evaluation before are preferred."""


async def stored_cases(settings: Settings, sessions: int) -> CaseSet:
    """Take the newest sessions that no version was trained on, from the store as it is now, while a sidecar writes.

    Args:
        sessions: so many at most.

    Raises:
        ReportError: there is none, or they take more memory than `limits.parse_memory`.
        ConfigError, StoreAway: the store cannot be read.
    """
    found: list[ReportCase] = []
    room = settings.limits.parse_memory
    last, share = by_last_answers(settings.rewards), settings.datasets.held_out
    async with _snapshot(settings) as session:
        for call in await heldout.newest(session, _SUITE, sessions, share, last_calls=last):
            size = (await read_models.sizes(session, [call.task_id])).get(call.task_id, 0)
            room -= size
            if room < 0:
                raise ReportError(
                    f"--held-out live: {sessions} sessions take more memory than limits.parse_memory "
                    f"({settings.limits.parse_memory} bytes); ask for fewer by --sessions"
                )
            if (case := await _case(session, call)) is not None:
                found.append(case)
    if not found:
        raise ReportError(
            "--held-out live: no stored session was left out of training; datasets.held_out above 0 leaves some out"
        )
    return CaseSet("held-out sessions of the store", found)


async def is_replaced(settings: Settings, version: int) -> bool:
    """Return whether the Explorer's version of this number is another training's than the one that the store knows; not
    where there is no store yet.

    Raises:
        ConfigError, StoreAway: the store cannot be read.
    """
    with suppress(NoStore):
        async with _snapshot(settings) as session:
            return await versions.replaced(session, version)
    return False


async def made_at(settings: Settings, version: int) -> float | None:
    """Time at which the weights of a version were made, in Unix seconds; None if the store does not know it, or is not
    there.

    Raises:
        ConfigError, StoreAway: the store cannot be read.
    """
    with suppress(NoStore):
        async with _snapshot(settings) as session:
            return await versions.made_at(session, version)
    return None


@asynccontextmanager
async def _snapshot(settings: Settings) -> AsyncIterator[AsyncSession]:
    """The store as it is now.

    Raises:
        ConfigError, StoreAway: the store cannot be read.
        NoStore: there is none yet.
    """
    keys = settings.store.keys
    database = Database(settings.store.url, Cipher(keys) if keys else None)
    try:
        async with database.snapshot() as connection, AsyncSession(connection) as session:
            yield session
    finally:
        await database.close()


async def _case(session: AsyncSession, call: HeldOutCall) -> ReportCase | None:
    place = await heldout.task_of(session, call.id)
    found = None if place is None else (await read_models.tasks(session, [place[0]])).get(place[0])
    task = None if found is None or place is None else from_call(found, place[1])
    if task is None:
        return None
    asked = task.calls[0]
    # The number tells equal calls of one store apart; another store has other calls by the same numbers.
    key = key_of(call.id, asked.request, task.metadata)
    case = AskedCase(f"call-{call.id}", key, call.session, asked.request, task.metadata)
    return ReportCase(case, task=task, stored=message_call(asked.request, asked.answer, asked.latency))
