"""Requests of conversations, each part stored once."""

from __future__ import annotations

from sqlalchemy import ForeignKey, Index
from sqlalchemy.orm import Mapped, mapped_column

from slipstream.store.sealed import SealedBytes
from slipstream.store.tables.base import NEVER_AGAIN, Base, RowId


class SegmentRow(Base):
    """A part of a conversation: the messages that one request adds to those of an earlier one, its parent's.

    A process goes on from segments that it wrote itself, and seals with one key. So what a call needs was sealed with
    that key, or with none.
    """

    __tablename__ = "segments"

    id: Mapped[RowId] = mapped_column(primary_key=True)
    parent_id: Mapped[RowId | None] = mapped_column(ForeignKey("segments.id"))
    """None for the beginning of a conversation."""
    body: Mapped[bytes] = mapped_column(SealedBytes)
    """Packed, as in `segments`."""

    __table_args__ = (
        Index(
            "ix_segments_parent",
            "parent_id",
            sqlite_where=parent_id.is_not(None),
            postgresql_where=parent_id.is_not(None),
        ),
        NEVER_AGAIN,  # processes remember the numbers
    )
