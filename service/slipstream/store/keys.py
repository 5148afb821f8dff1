"""Keys with which the store's data is encrypted, so that a start with a wrong key is refused before anything is read.

A key is known by its fingerprint, and until when it was the one that seals. Rotation is then safe to get wrong: a key
may go once all that was written under it is gone, and no earlier.
"""

from __future__ import annotations

from sqlalchemy import LargeBinary, exists, func, or_, select
from sqlalchemy.ext.asyncio import AsyncSession

from slipstream.errors import ConfigError
from slipstream.store.cipher import MARK, Cipher
from slipstream.store.tables.capture import CallRow, CapturedRow, QuarantinedExchangeRow, TaskRow
from slipstream.store.tables.feedback import FeedbackRow, MarkRow
from slipstream.store.tables.privacy import StoreKeyRow


async def check(session: AsyncSession, cipher: Cipher | None, now: float) -> None:
    """Compare the keys that are given with those that the store's data needs, and remember the first.

    Raises:
        ConfigError: one is missing, or all are.
    """
    given = cipher.fingerprints if cipher is not None else ()
    known = {row.fingerprint: row for row in await session.scalars(select(StoreKeyRow))}
    for name, row in known.items():
        if name not in given:
            if await _anything_before(session, row.used_until) or await _anything_unread(session, name):
                raise ConfigError(
                    f"store.encryption_key: expected among its keys the one with the fingerprint {name}, with which "
                    f"data of this store is encrypted; found {', '.join(given) or 'none'}. A key that was replaced "
                    "stays in the list, behind the new one, until capture.retention has passed"
                )
            await session.delete(row)
        elif name != given[0]:
            row.used_until = now  # by another sidecar, which is not started with the new list yet
    if given:
        first = known.get(given[0])
        if first is None:
            session.add(StoreKeyRow(fingerprint=given[0]))
        else:
            first.used_until = None


async def _anything_before(session: AsyncSession, until: float | None) -> bool:
    """Return whether the store holds data that can have been written before this time; at any time, if it is None."""
    oldest = select(func.min(CallRow.id)).scalar_subquery()
    times = (
        select(CallRow.started_at).where(CallRow.id == oldest),
        select(func.min(TaskRow.updated_at)),
        select(func.min(FeedbackRow.created_at)),
        select(func.min(MarkRow.created_at)),
    )
    found = [at for query in times if (at := await session.scalar(query)) is not None]
    return bool(found) and (until is None or min(found) <= until)


async def _anything_unread(session: AsyncSession, name: str) -> bool:
    """Return whether an exchange that is not read yet, or is set apart, is sealed with this key, whenever that was."""
    begins = MARK + bytes.fromhex(name)
    packed = CapturedRow.packed, QuarantinedExchangeRow.packed
    heads = [func.substr(column, 1, len(begins), type_=LargeBinary) for column in packed]
    return bool(await session.scalar(select(or_(*(exists().where(head == begins) for head in heads)))))
