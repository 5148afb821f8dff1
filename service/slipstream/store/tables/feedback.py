"""Tables of what people and agents said: feedback and marks."""

from __future__ import annotations

from typing import Any

from sqlalchemy import ForeignKey, Index, String
from sqlalchemy.orm import Mapped, mapped_column

from slipstream.store.lengths import ID_LENGTH, MSG_REF_LENGTH, REF_LENGTH
from slipstream.store.sealed import SealedJson, SealedText
from slipstream.store.states import FeedbackState, MarkState, state_type
from slipstream.store.tables.base import Base, RowId


class FeedbackRow(Base):
    """One feedback as it was posted."""

    __tablename__ = "feedback"
    __table_args__ = (Index("ix_feedback_key", "key", "created_at"),)

    id: Mapped[str] = mapped_column(String(ID_LENGTH), primary_key=True)
    reward: Mapped[float | None]
    rating: Mapped[int | None]
    thumbs: Mapped[str | None] = mapped_column(String(8))
    comment: Mapped[str | None] = mapped_column(SealedText)
    source: Mapped[str | None] = mapped_column(SealedText)
    created_at: Mapped[float] = mapped_column(index=True)
    key: Mapped[str | None] = mapped_column(String(64))
    """Name of the key that posted it; null where none is asked for."""
    named: Mapped[int] = mapped_column(default=1)
    """Number of the things that it names."""
    counts_as: Mapped[float | None]
    """The reward with the weight of its key; null for the reward itself."""


class FeedbackTargetRow(Base):
    """One thing that a feedback names, and what became of it.

    waiting ─▶ matched ─▶ superseded     a newer feedback on the same answer counts
       │          └─────▶ late           (straight away) the run was delivered, or a retry replaced the answer, before
       ├──▶ unknown                      nothing of that name appeared in time
       └──▶ ignored                      its key has the weight 0
    """

    __tablename__ = "feedback_targets"
    __table_args__ = (Index("ix_feedback_targets_ref", "kind", "ref", "state"),)

    id: Mapped[RowId] = mapped_column(primary_key=True)
    feedback_id: Mapped[str] = mapped_column(ForeignKey("feedback.id", ondelete="CASCADE"), index=True)
    kind: Mapped[str] = mapped_column(String(16))
    """msg_id, task_id or session_id."""
    ref: Mapped[str] = mapped_column(String(MSG_REF_LENGTH))
    """With its tenant, whichever kind it is."""
    state: Mapped[FeedbackState] = mapped_column(state_type(FeedbackState), default=FeedbackState.WAITING, index=True)
    matched_to: Mapped[str | None] = mapped_column(String(16))
    """policy or production."""
    run_pk: Mapped[RowId | None] = mapped_column(ForeignKey("runs.id", ondelete="SET NULL"), index=True)
    call_pk: Mapped[RowId | None] = mapped_column(ForeignKey("calls.id", ondelete="SET NULL"), index=True)


class MarkRow(Base):
    """An explicit mark that was posted; it waits for its task where that is not stored yet."""

    __tablename__ = "marks"
    __table_args__ = (Index("ix_marks_state", "state", "expires_at"),)

    id: Mapped[str] = mapped_column(String(ID_LENGTH), primary_key=True)
    task_id: Mapped[str | None] = mapped_column(String(REF_LENGTH), index=True)
    msg_id: Mapped[str | None] = mapped_column(String(MSG_REF_LENGTH), index=True)
    """With its tenant, as the task's."""
    labels: Mapped[list[str]] = mapped_column(default=list)
    meta: Mapped[dict[str, Any]] = mapped_column(SealedJson, default=dict)
    state: Mapped[MarkState] = mapped_column(state_type(MarkState), default=MarkState.WAITING)
    created_at: Mapped[float] = mapped_column(index=True)
    expires_at: Mapped[float]
