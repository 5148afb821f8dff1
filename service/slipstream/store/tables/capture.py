"""Tables of captured traffic: exchanges that are not read yet, then tasks and their calls."""

from __future__ import annotations

from typing import Any

from sqlalchemy import ForeignKey, Index, String, Text, UniqueConstraint, false, literal_column
from sqlalchemy.orm import Mapped, mapped_column

from slipstream.dialects.form import Dialect, Problem
from slipstream.store.lengths import ID_LENGTH, MSG_REF_LENGTH, REF_LENGTH
from slipstream.store.sealed import SealedBytes, SealedJson
from slipstream.store.states import TaskState, state_type
from slipstream.store.tables.base import NEVER_AGAIN, Base, RowId
from slipstream.tenants import DEFAULT

CALL_BLOCK = 16384
"""Calls whose msg_ids are together in their index: about a megabyte of it, so that a batch of new ones shares pages.
With blocks twice as large storing costs more, with smaller ones looking up does."""


class CapturedRow(Base):
    """Exchanges that are kept and not read yet; they leave in the transaction that stores their calls.

    Many in one row: SQLite writes a long row in half the time that it takes for many, and forgets it in a tenth.
    """

    __tablename__ = "captured"

    id: Mapped[RowId] = mapped_column(primary_key=True, autoincrement=False)
    """In the order in which its sidecar captured them; each sidecar has ids of its own (`captured.first_id`)."""
    owner: Mapped[RowId] = mapped_column(index=True)
    """The sidecar that is to read it."""
    exchanges: Mapped[int]
    """Number of exchanges in this row."""
    tries: Mapped[int] = mapped_column(server_default="0")
    """Deaths of the process that read it, see `quarantine`; one more while it is read."""
    packed: Mapped[bytes] = mapped_column(SealedBytes)
    """As `capture.redacted` packs them."""


class QuarantinedExchangeRow(Base):
    """An exchange that ended the processes which read it."""

    __tablename__ = "quarantined_exchanges"
    __table_args__ = NEVER_AGAIN  # one that is read again has its number in `captured`

    id: Mapped[RowId] = mapped_column(primary_key=True)
    packed: Mapped[bytes] = mapped_column(SealedBytes)
    """As in `captured`, alone."""
    reason: Mapped[str] = mapped_column(Text)
    created_at: Mapped[float]
    """Time at which it was set apart."""


class TaskRow(Base):
    """One user request to the agent."""

    __tablename__ = "tasks"

    id: Mapped[str] = mapped_column(String(REF_LENGTH), primary_key=True)
    """With its tenant, as its session's: see `slipstream.tenants`."""
    session_id: Mapped[str] = mapped_column(String(REF_LENGTH))
    tenant: Mapped[str] = mapped_column(String(ID_LENGTH), default=DEFAULT, server_default=DEFAULT)
    state: Mapped[TaskState] = mapped_column(state_type(TaskState), default=TaskState.OPEN)
    revision: Mapped[int] = mapped_column(default=0)
    """Rises with each call and mark, so that a decision made on an older picture is made again."""
    marked: Mapped[bool] = mapped_column(default=False)
    labels: Mapped[list[str]] = mapped_column(default=list)
    meta: Mapped[dict[str, Any]] = mapped_column(SealedJson, default=dict)
    decided: Mapped[bool] = mapped_column(default=False)
    selected: Mapped[bool] = mapped_column(default=False)
    reason: Mapped[str | None] = mapped_column(Text)
    owner: Mapped[RowId | None]
    """The sidecar that is deciding it."""
    tries: Mapped[int] = mapped_column(server_default="0")
    """Deaths of the process that was deciding it, see `quarantine`; one more while it is decided."""
    created_at: Mapped[float]
    updated_at: Mapped[float] = mapped_column(index=True)
    """Time at which its last call was stored."""

    __table_args__ = (
        Index("ix_tasks_session", "session_id", "updated_at"),
        Index("ix_tasks_tenant", "tenant", "updated_at", "id"),
        # Of those under way alone, so that it stays small and a decision takes the task out of it.
        Index(
            "ix_tasks_undecided",
            "state",
            "updated_at",
            sqlite_where=decided.is_(False),
            postgresql_where=decided.is_(False),
        ),
    )


class CallRow(Base):
    """One captured call of a user's agent, which production answered, or a version of the policy."""

    __tablename__ = "calls"

    id: Mapped[RowId] = mapped_column(primary_key=True)
    task_id: Mapped[str] = mapped_column(ForeignKey("tasks.id", ondelete="CASCADE"))
    position: Mapped[int]
    msg_id: Mapped[str | None] = mapped_column(String(MSG_REF_LENGTH))
    """With its tenant."""
    request: Mapped[bytes] = mapped_column(SealedBytes)
    """Packed; all of it, or what its segments lack: see `segments`, which reads it."""
    answer: Mapped[bytes] = mapped_column(SealedBytes)
    """In the chat form, packed, as in `bodies`."""
    latency: Mapped[float]
    started_at: Mapped[float]
    dialect: Mapped[Dialect] = mapped_column(state_type(Dialect), server_default=Dialect.CHAT)
    """In which the agent asked."""
    problem: Mapped[Problem | None] = mapped_column(String(32))
    """The reason why the policy cannot be asked this, of `dialects.form.Problem`."""
    original_request: Mapped[bytes | None] = mapped_column(SealedBytes)
    original_answer: Mapped[bytes | None] = mapped_column(SealedBytes)
    """As they came, packed; None where that is the chat form."""
    segment_id: Mapped[RowId | None] = mapped_column(ForeignKey("segments.id"))
    original_segment_id: Mapped[RowId | None] = mapped_column(ForeignKey("segments.id"))
    """The segments that the messages of `request` and of `original_request` end with; None where it has all of them."""
    variant: Mapped[str | None] = mapped_column(String(32))
    """The name of who answered, `production` or `version:N`. None: production did, and no share was set."""
    arm: Mapped[str | None] = mapped_column(String(16))
    """`control` or `treatment`; None where the call could not be assigned."""
    unit: Mapped[str | None] = mapped_column(String(16))
    """As in `units`."""
    fell_back: Mapped[bool] = mapped_column(default=False, server_default=false())
    """It was assigned to the version, and production answered."""
    opted_out: Mapped[bool] = mapped_column(default=False, server_default=false())
    """Its caller asked for production by a header."""

    __table_args__ = (
        UniqueConstraint("task_id", "position"),
        Index("ix_calls_unit", "unit", sqlite_where=unit.is_not(None), postgresql_where=unit.is_not(None)),
        Index(
            "ix_calls_segment",
            "segment_id",
            sqlite_where=segment_id.is_not(None),
            postgresql_where=segment_id.is_not(None),
        ),
        Index(
            "ix_calls_original_segment",
            "original_segment_id",
            sqlite_where=original_segment_id.is_not(None),
            postgresql_where=original_segment_id.is_not(None),
        ),
    )


class ReplacedAnswerRow(Base):
    """An answer whose place a retry took: its call has the later answer."""

    __tablename__ = "replaced_answers"

    msg_id: Mapped[str] = mapped_column(String(MSG_REF_LENGTH), primary_key=True)
    """With its tenant."""
    call_id: Mapped[RowId] = mapped_column(
        ForeignKey("calls.id", ondelete="CASCADE"), primary_key=True, autoincrement=False, index=True
    )
    same: Mapped[bool]
    """The later answer says the same."""


Index("ix_calls_msg_id", CallRow.id.op("/")(literal_column(str(CALL_BLOCK))), CallRow.msg_id)
"""Written as in `msg_ids`, where alone it is used."""
