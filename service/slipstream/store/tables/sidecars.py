"""The sidecars that share the store, and what they have spent together."""

from __future__ import annotations

from sqlalchemy import BigInteger, String, Text
from sqlalchemy.orm import Mapped, mapped_column

from slipstream.store.tables.base import Base, RowId


class SidecarRow(Base):
    """One start of a sidecar's training side, while its lease runs. What it holds carries its id as `owner`."""

    __tablename__ = "sidecars"

    id: Mapped[RowId] = mapped_column(primary_key=True)
    """Grows with each start, and is never given again."""
    name: Mapped[str] = mapped_column(Text)
    """For those who look: its host and port."""
    lease_until: Mapped[float]
    """By the database's clock; 0 where it has ended."""
    started_at: Mapped[float]


class SpentRow(Base):
    """Spending in one minute, of all sidecars together; rows of the last hour only."""

    __tablename__ = "spent"

    purpose: Mapped[str] = mapped_column(String(16), primary_key=True)
    """runs, judge or live."""
    minute: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    """Since 1970."""
    requests: Mapped[int] = mapped_column(BigInteger)
    tokens: Mapped[int] = mapped_column(BigInteger)
