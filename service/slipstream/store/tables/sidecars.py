"""The sidecars that share the store, and what they have spent together."""

from __future__ import annotations

from sqlalchemy import BigInteger, String, Text
from sqlalchemy.orm import Mapped, mapped_column

from slipstream.store.lengths import ID_LENGTH
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


class TokenDayRow(Base):
    """Tokens of one day, of one kind and of one tenant, of all sidecars together; rows of the last 90 days only."""

    __tablename__ = "token_days"

    day: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    """Since 1970, in UTC."""
    kind: Mapped[str] = mapped_column(String(32), primary_key=True)
    tenant: Mapped[str] = mapped_column(String(ID_LENGTH), primary_key=True)
    """Empty for what is of no tenant."""
    answers: Mapped[int] = mapped_column(BigInteger)
    input: Mapped[int] = mapped_column(BigInteger)
    output: Mapped[int] = mapped_column(BigInteger)
