"""Tables of evaluations: which version on which cases, and the value of each answer. No text of a user is in them."""

from __future__ import annotations

from typing import Any

from sqlalchemy import ForeignKey, Index, String, Text, UniqueConstraint, false
from sqlalchemy.orm import Mapped, mapped_column

from slipstream.store.states import EvaluationState, state_type
from slipstream.store.tables.base import NEVER_AGAIN, Base, RowId


class EvaluationRow(Base):
    """One version on one suite."""

    __tablename__ = "evaluations"
    __table_args__ = (
        Index("ix_evaluations_state", "state"),
        Index("ix_evaluations_version", "version", "suite"),
        NEVER_AGAIN,
    )

    id: Mapped[RowId] = mapped_column(primary_key=True)
    version: Mapped[int]
    suite: Mapped[str] = mapped_column(String(64))
    state: Mapped[EvaluationState] = mapped_column(state_type(EvaluationState), default=EvaluationState.PENDING)
    reason: Mapped[str | None] = mapped_column(Text)
    """Reason for which it failed or is not used, in words."""
    trigger: Mapped[str] = mapped_column(String(16))
    """hand, every or schedule."""
    asked_by: Mapped[str | None] = mapped_column(String(64))
    """Name of the caller's key."""
    owner: Mapped[RowId | None]
    """The sidecar that carries it out."""
    server: Mapped[str | None] = mapped_column(String(16))
    """explorer or lane."""
    opened_at: Mapped[float]
    begun_at: Mapped[float | None]
    ended_at: Mapped[float | None]
    settings: Mapped[dict[str, Any]] = mapped_column(default=dict)
    """As it began: repeat, threshold, margin, level, production's model, and the calculators."""
    result: Mapped[dict[str, Any] | None]
    """Sums over its answers, once it is done."""
    superseded: Mapped[bool] = mapped_column(default=False, server_default=false())
    """The number of its version is another training's by now."""


class EvaluationCaseRow(Base):
    """One case of an evaluation, fixed when it began."""

    __tablename__ = "evaluation_cases"
    __table_args__ = (UniqueConstraint("evaluation_id", "position"),)

    id: Mapped[RowId] = mapped_column(primary_key=True)
    evaluation_id: Mapped[RowId] = mapped_column(ForeignKey("evaluations.id", ondelete="CASCADE"))
    position: Mapped[int]
    name: Mapped[str] = mapped_column(String(256))
    """The id in its file, or `call-` and a number of a held-out one."""
    key: Mapped[str] = mapped_column(String(64))
    """Names what is asked: the same in another evaluation is the same case."""
    session: Mapped[int]
    """Cases with the same number are of one session."""
    call_id: Mapped[RowId | None] = mapped_column(ForeignKey("calls.id", ondelete="SET NULL"), index=True)
    """The held-out call; null for a case of a file, and once the call was deleted."""


class EvaluationAnswerRow(Base):
    """The value of one answer to a case."""

    __tablename__ = "evaluation_answers"

    evaluation_id: Mapped[RowId] = mapped_column(ForeignKey("evaluations.id", ondelete="CASCADE"), primary_key=True)
    position: Mapped[int] = mapped_column(primary_key=True)
    arm: Mapped[str] = mapped_column(String(16), primary_key=True)
    """version or production."""
    repeat: Mapped[int] = mapped_column(primary_key=True)
    """From 0."""
    outcome: Mapped[str] = mapped_column(String(16))
    """As in `store.evaluations.Outcome`."""
    value: Mapped[float | None]
    """Within `rewards.clip`; null for one that does not count."""
    breakdown: Mapped[dict[str, Any]] = mapped_column(default=dict)
    latency: Mapped[float | None]
    """Seconds until the whole answer."""
