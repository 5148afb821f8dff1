"""Tables of encryption keys and of deletions on request."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Index, String
from sqlalchemy.orm import Mapped, mapped_column

from slipstream.store.lengths import REF_LENGTH
from slipstream.store.tables.base import Base


class StoreKeyRow(Base):
    """A key that sealed columns were encrypted with: see `keys`."""

    __tablename__ = "store_keys"

    fingerprint: Mapped[str] = mapped_column(String(8), primary_key=True)
    used_until: Mapped[float | None]
    """Time at which it was replaced as the sealing key; null while it is that."""


class ErasureRow(Base):
    """A session or a task that was deleted on request: see `erasure`. Ids alone."""

    __tablename__ = "erasures"

    kind: Mapped[str] = mapped_column(String(16), primary_key=True)
    """session_id or task_id."""
    ref: Mapped[str] = mapped_column(String(REF_LENGTH), primary_key=True)
    at: Mapped[float] = mapped_column(index=True)
    """Time of the deletion: data that began before it is deleted."""
    pending: Mapped[bool] = mapped_column(default=False)
    """A part of it is being delivered, and is to be deleted when that has ended."""
    told: Mapped[dict[str, Any]]
    """Data that the Explorer had been given, so that asking again gives the same answer."""

    __table_args__ = (
        Index("ix_erasures_pending", "kind", sqlite_where=pending.is_(True), postgresql_where=pending.is_(True)),
    )
