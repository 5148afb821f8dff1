"""The table of deliveries to the Explorer."""

from __future__ import annotations

from sqlalchemy import Index, String, Text
from sqlalchemy.orm import Mapped, mapped_column

from slipstream.store.states import CommitState, state_type
from slipstream.store.tables.base import Base, RowId


class CommitRow(Base):
    """One delivery: the feedback of whole groups, then the Explorer's commit."""

    __tablename__ = "commits"
    __table_args__ = (Index("ix_commits_state", "state", "ended_at"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    state: Mapped[CommitState] = mapped_column(state_type(CommitState), default=CommitState.SENDING)
    owner: Mapped[RowId | None]
    """The sidecar that is at it, or that ended it."""
    trigger: Mapped[str] = mapped_column(String(16))
    groups: Mapped[int]
    experiences: Mapped[int]
    explorer_ready: Mapped[int]
    explorer_total: Mapped[int]
    explorer_step: Mapped[int]
    """The Explorer's counters before the first feedback, and the step once more before the commit: how a restart, or a
    commit whose answer was lost, shows."""
    delivered: Mapped[int | None]
    """Experiences delivered in all when it had ended, so that nobody has to add them up."""
    reason: Mapped[str | None] = mapped_column(Text)
    started_at: Mapped[float]
    ended_at: Mapped[float | None]
