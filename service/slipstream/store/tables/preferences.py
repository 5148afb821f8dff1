"""Tables of human preference: pairs of answers to one request, and what annotators chose.

A pair refers to what was said and repeats none of it. So its texts go with their task, and the choice stays, as
numbers.
"""

from __future__ import annotations

from sqlalchemy import ForeignKey, Index, String, UniqueConstraint, false
from sqlalchemy.orm import Mapped, mapped_column

from slipstream.store.lengths import ID_LENGTH, REF_LENGTH
from slipstream.store.sealed import SealedText
from slipstream.store.tables.base import Base, RowId
from slipstream.tenants import DEFAULT


class PreferencePairRow(Base):
    """Two answers to the same request: `left` and `right`, which no annotator is told."""

    __tablename__ = "preference_pairs"

    id: Mapped[str] = mapped_column(String(ID_LENGTH), primary_key=True)
    kind: Mapped[str] = mapped_column(String(16))
    """`production`: its answer is the left one; `runs`: two runs of one group."""
    tenant: Mapped[str] = mapped_column(String(ID_LENGTH), default=DEFAULT)
    task_ref: Mapped[str] = mapped_column(String(REF_LENGTH), index=True)
    session_ref: Mapped[str] = mapped_column(String(REF_LENGTH), index=True)
    """With their tenant. They outlive the task, so that a deletion of the session finds its judgements."""
    group_id: Mapped[str | None] = mapped_column(String(ID_LENGTH))
    call_id: Mapped[RowId | None]
    left_run: Mapped[RowId | None]
    """None for production's answer."""
    right_run: Mapped[RowId | None]
    """Rows that are deleted with the task, and only so: then these are null. No foreign keys, because each would be
    looked up for every row that retention deletes."""
    left_variant: Mapped[str] = mapped_column(String(32))
    right_variant: Mapped[str] = mapped_column(String(32))
    """Names of who answered, as of a call: `production`, `version:N`; `policy` where the version is not known."""
    identical: Mapped[bool] = mapped_column(default=False, server_default=false())
    """Both answers say the same, so that nobody is asked about them."""
    judged: Mapped[int] = mapped_column(default=0)
    """Number of judgements, without those who skipped it."""
    created_at: Mapped[float]
    updated_at: Mapped[float] = mapped_column(index=True)

    __table_args__ = (
        UniqueConstraint("group_id", "kind"),
        Index("ix_preference_pairs_open", "judged", "created_at"),
    )


class PreferenceOfferRow(Base):
    """A pair as one annotator was shown it, and what she chose."""

    __tablename__ = "preference_offers"
    __table_args__ = (
        UniqueConstraint("pair_id", "annotator"),
        Index("ix_preference_offers_annotator", "annotator", "judged_at"),
    )

    id: Mapped[RowId] = mapped_column(primary_key=True)
    pair_id: Mapped[str] = mapped_column(ForeignKey("preference_pairs.id", ondelete="CASCADE"))
    annotator: Mapped[str] = mapped_column(String(64))
    swapped: Mapped[bool]
    """The right answer was shown first, as `a`."""
    offered_at: Mapped[float]
    expires_at: Mapped[float]
    """Time until which the pair is kept for her."""
    choice: Mapped[str | None] = mapped_column(String(16))
    """By the order in which it was shown; null until she has chosen."""
    reason: Mapped[str | None] = mapped_column(SealedText)
    judged_at: Mapped[float | None]
    key: Mapped[str | None] = mapped_column(String(64))
    """Name of the key that posted it."""
