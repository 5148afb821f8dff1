"""Tables of the facade: what Trinity's own clients did."""

from __future__ import annotations

from sqlalchemy import ForeignKey, Index, String, Text
from sqlalchemy.orm import Mapped, mapped_column

from slipstream.store.lengths import ID_LENGTH, REF_LENGTH
from slipstream.store.states import FacadeGroupState, state_type
from slipstream.store.tables.base import Base
from slipstream.tenants import DEFAULT


class FacadeGroupRow(Base):
    """The runs that a client of the facade gave one task_id, and that are delivered together."""

    __tablename__ = "facade_groups"
    __table_args__ = (Index("ix_facade_groups_state", "state", "updated_at"),)

    id: Mapped[str] = mapped_column(String(ID_LENGTH), primary_key=True)
    """The task_id that the Explorer is told: the client's own, or one like it if that was delivered before."""
    task_id: Mapped[str | None] = mapped_column(String(REF_LENGTH), index=True)
    """With its tenant."""
    state: Mapped[FacadeGroupState] = mapped_column(state_type(FacadeGroupState), default=FacadeGroupState.OPEN)
    commit_id: Mapped[int | None] = mapped_column(ForeignKey("commits.id"), index=True)
    size: Mapped[int | None]
    """Number of runs that make it complete; null if its client did not say."""
    attempts: Mapped[int] = mapped_column(default=0)
    """Commits that took it."""
    reason: Mapped[str | None] = mapped_column(Text)
    """Reason why it was lost or dropped, in words."""
    updated_at: Mapped[float] = mapped_column(index=True)


class FacadeAnswerRow(Base):
    """One chat completion that the facade passed on, and the reward that its client gave it.

    Without bodies: the experience itself is with the Explorer.
    """

    __tablename__ = "facade_answers"

    msg_id: Mapped[str] = mapped_column(String(256), primary_key=True)
    tenant: Mapped[str] = mapped_column(String(ID_LENGTH), default=DEFAULT, server_default=DEFAULT)
    """Tenant of the client that asked, and that may reward it."""
    choices: Mapped[int]
    flaw: Mapped[str | None] = mapped_column(String(64))
    """Reason why it is not whole, and so never gets a reward."""
    policy_version: Mapped[int | None]
    group_id: Mapped[str | None] = mapped_column(ForeignKey("facade_groups.id", ondelete="CASCADE"), index=True)
    run_key: Mapped[str | None] = mapped_column(String(256))
    """The client's name of the run; null where it gave none."""
    run_id: Mapped[int | None]
    reward: Mapped[float | None]
    created_at: Mapped[float] = mapped_column(index=True)
