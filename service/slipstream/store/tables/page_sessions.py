"""The table of sessions with the page. What users say in sessions with agents has nothing to do with it."""

from __future__ import annotations

from sqlalchemy import Index, String
from sqlalchemy.orm import Mapped, mapped_column

from slipstream.store.tables.base import Base


class PageSessionRow(Base):
    """A sign-in to the page, until it expires or is signed out: see `page_sessions`. Hashes alone."""

    __tablename__ = "page_sessions"
    __table_args__ = (
        Index("ix_page_sessions_key_digest", "key_digest", "made_at"),
        Index("ix_page_sessions_expires_at", "expires_at"),
    )

    digest: Mapped[str] = mapped_column(String(64), primary_key=True)
    """The SHA-256 of its token, in hexadecimal digits."""
    key: Mapped[str] = mapped_column(String(64))
    """The name of the key that it was signed in with."""
    key_digest: Mapped[str] = mapped_column(String(64))
    """That key's hash: another key of the name does not have this session."""
    made_at: Mapped[float]
    expires_at: Mapped[float]
