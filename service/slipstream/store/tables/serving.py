"""Tables of the share of users that a version of the policy answers, and of how their requests went."""

from __future__ import annotations

from sqlalchemy import Index, String, Text, true
from sqlalchemy.orm import Mapped, mapped_column

from slipstream.store.tables.base import NEVER_AGAIN, Base, RowId


class ServingRow(Base):
    """The share that holds now: one row, with the id 1, made by the first change."""

    __tablename__ = "serving"

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    version: Mapped[int | None]
    """The version that answers, or would with a share above 0."""
    share: Mapped[float]
    salt: Mapped[str] = mapped_column(String(16))
    """Seed of the units' hashes, 64 bits in hexadecimal; drawn once for a store."""
    killed: Mapped[bool]
    """Production answers everybody, whatever the share."""
    epoch: Mapped[int]
    """Rises with each change."""
    lane_step: Mapped[int | None]
    """The version by the lane's own count, which its metrics must show; None where that is not looked at."""
    lane: Mapped[str | None] = mapped_column(Text)
    """The lane's base URL for which it was decided; None where that is not looked at."""
    changed_at: Mapped[float]


class UnitRow(Base):
    """Outcomes of one unit's requests while one version was compared with production.

    A unit stays in the arm in which it was first seen: requests after its arm changed, by another share, are not
    counted.
    """

    __tablename__ = "units"
    __table_args__ = (
        Index("ix_units_unit", "version", "unit", unique=True),
        Index("ix_units_last", "last_at"),
        Index("ix_units_order", "version", "first_at"),
        NEVER_AGAIN,  # evidence reads on behind the last one that it knows
    )

    id: Mapped[RowId] = mapped_column(primary_key=True)
    """In the order in which units were first recorded."""
    version: Mapped[int]
    unit: Mapped[str] = mapped_column(String(16))
    arm: Mapped[str] = mapped_column(String(16))
    epoch: Mapped[int]
    """Epoch of the share under which it was first seen."""
    first_at: Mapped[float]
    last_at: Mapped[float]
    """Start of its first and of its last request that counts."""
    moved_at: Mapped[float | None]
    """Start of the first request in the other arm."""
    calls: Mapped[int]
    failures: Mapped[int]
    fallbacks: Mapped[int]
    slowest: Mapped[float]
    """Longest time until an answer began, in seconds."""
    sampled: Mapped[bool] = mapped_column(default=True, server_default=true())
    """`capture.rate` takes its calls; False for one of whose answers none is stored, whichever way they went."""
