"""Tables of the audit: who wrote what. The database itself refuses to change them: see migration 0015."""

from __future__ import annotations

from sqlalchemy import Index, String
from sqlalchemy.orm import Mapped, mapped_column

from slipstream.store.lengths import ID_LENGTH
from slipstream.store.tables.base import NEVER_AGAIN, Base, RowId


class AuditRow(Base):
    """One write of a caller. Ids alone: nothing of what was said."""

    __tablename__ = "audit"
    __table_args__ = (
        Index("ix_audit_at", "at"),
        Index("ix_audit_key", "key", "id"),
        Index("ix_audit_tenant", "tenant", "id"),
        NEVER_AGAIN,
    )

    id: Mapped[RowId] = mapped_column(primary_key=True)
    at: Mapped[float]
    action: Mapped[str] = mapped_column(String(32))
    key: Mapped[str | None] = mapped_column(String(64))
    """The name of the key; null where none is asked for."""
    tenant: Mapped[str | None] = mapped_column(String(64))
    """The tenant whose things were written; null for those of several."""
    written: Mapped[str | None] = mapped_column(String(ID_LENGTH))
    """The id of what was written: a receipt's, a commit's number, a run's."""
    kind: Mapped[str | None] = mapped_column(String(16))
    """session_id, task_id or msg_id."""
    refs: Mapped[list[str]]
    """The first names of that kind that the write names, with their tenant."""
    named: Mapped[int]
    """The number of all names."""


class AuditPruningRow(Base):
    """Leave to delete entries from before a time. It stays, so that no deletion goes unseen."""

    __tablename__ = "audit_prunings"

    before: Mapped[float] = mapped_column(primary_key=True)
    at: Mapped[float]
