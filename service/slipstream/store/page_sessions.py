"""Sessions with the page: who signed in by which key, and until when."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import delete, select
from sqlalchemy.ext.asyncio import AsyncSession

from slipstream.store.tables.page_sessions import PageSessionRow

_MOST = 100
"""Sessions of one key, which a team may share: a program that signs in again and again does not fill the store."""

_QUICK = {"synchronize_session": False}


@dataclass(frozen=True, slots=True)
class PageSession:
    """A session that has not expired.

    Attributes:
        digest: the hash of its token, in hexadecimal digits.
        key: the name of the key that it was signed in with.
        key_digest: the hash of that key, in hexadecimal digits.
        expires_at: Unix seconds.
    """

    digest: str
    key: str
    key_digest: str
    expires_at: float


async def add(session: AsyncSession, new: PageSession, now: float) -> None:
    """Add a session. The oldest of its key are deleted where that has too many."""
    older = select(PageSessionRow.digest).where(PageSessionRow.key_digest == new.key_digest)
    older = older.order_by(PageSessionRow.made_at.desc(), PageSessionRow.digest).offset(_MOST - 1)
    digests = (await session.scalars(older)).all()
    await session.execute(delete(PageSessionRow).where(PageSessionRow.digest.in_(digests)).execution_options(**_QUICK))
    session.add(
        PageSessionRow(
            digest=new.digest, key=new.key, key_digest=new.key_digest, made_at=now, expires_at=new.expires_at
        )
    )


async def find(session: AsyncSession, digest: str, now: float) -> PageSession | None:
    """The session with this hash; None where there is none, or no more."""
    row = await session.get(PageSessionRow, digest)
    if row is None or row.expires_at <= now:
        return None
    return PageSession(row.digest, row.key, row.key_digest, row.expires_at)


async def end(session: AsyncSession, digest: str) -> None:
    """Delete a session."""
    await session.execute(delete(PageSessionRow).where(PageSessionRow.digest == digest).execution_options(**_QUICK))


async def end_all(session: AsyncSession) -> None:
    """Delete all sessions."""
    await session.execute(delete(PageSessionRow).execution_options(**_QUICK))


async def delete_expired(session: AsyncSession, now: float, limit: int) -> int:
    """Delete sessions that have expired; returns how many."""
    due = select(PageSessionRow.digest).where(PageSessionRow.expires_at <= now)
    digests = (await session.scalars(due.order_by(PageSessionRow.expires_at).limit(limit))).all()
    if digests:
        gone = delete(PageSessionRow).where(PageSessionRow.digest.in_(digests))
        await session.execute(gone.execution_options(**_QUICK))
    return len(digests)
