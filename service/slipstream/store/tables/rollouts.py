"""Tables of rollouts: decisions about a version, the units that they were made by, and scores of live answers."""

from __future__ import annotations

from typing import Any

from sqlalchemy import JSON, ForeignKey, Index, String, Text, UniqueConstraint, false
from sqlalchemy.orm import Mapped, mapped_column

from slipstream.store.sealed import SealedJson
from slipstream.store.states import RolloutState, state_type
from slipstream.store.tables.base import NEVER_AGAIN, Base, RowId


class RolloutRow(Base):
    """One version's way from candidate to live. It is never deleted: its position decides the levels of later ones."""

    __tablename__ = "rollouts"
    __table_args__ = (Index("ix_rollouts_ended", "ended_at"), NEVER_AGAIN)

    id: Mapped[RowId] = mapped_column(primary_key=True)
    version: Mapped[int]
    state: Mapped[RolloutState] = mapped_column(state_type(RolloutState), default=RolloutState.PENDING)
    plan: Mapped[dict[str, Any]]
    """As it was opened: see `rollouts.plan`."""
    position: Mapped[int]
    """Place in the stream of all versions that were tested, from 1."""
    promotions: Mapped[int]
    """Versions before it that the test had promoted when it was opened."""
    level: Mapped[float]
    """At which better has to be proven: computed once, from these two."""
    step: Mapped[int] = mapped_column(default=0)
    """Place in the plan's steps."""
    share: Mapped[float] = mapped_column(default=0.0)
    lane_step: Mapped[int | None]
    """The step that the lane has to show."""
    owner: Mapped[RowId | None]
    """The sidecar that decides it."""
    revision: Mapped[int] = mapped_column(default=0)
    """Rises with each decision, so that one made on an older picture is not carried out."""
    opened_by: Mapped[str | None] = mapped_column(String(64))
    opened_at: Mapped[float]
    begun_at: Mapped[float | None]
    """Time at which the first users were assigned: units from then on count."""
    step_at: Mapped[float | None]
    """Time at which its step began."""
    promoted_at: Mapped[float | None]
    proven: Mapped[bool] = mapped_column(default=False, server_default=false())
    """True for one that was promoted after the test had proven it better."""
    ended_at: Mapped[float | None]
    """Time from which nothing more is decided about it."""
    reason: Mapped[str | None] = mapped_column(Text)
    """Reason of its last decision, in words."""
    asked: Mapped[dict[str, Any] | None] = mapped_column(JSON(none_as_null=True))
    """A decision that waits for a second person: see `rollouts.Asked`."""


class RolloutDecisionRow(Base):
    """One decision about a rollout, with its evidence. Rows are only ever added: the database refuses to change one."""

    __tablename__ = "rollout_decisions"
    __table_args__ = (UniqueConstraint("rollout_id", "revision"),)

    id: Mapped[RowId] = mapped_column(primary_key=True)
    rollout_id: Mapped[RowId] = mapped_column(ForeignKey("rollouts.id"))
    revision: Mapped[int]
    """The rollout's when it was made."""
    at: Mapped[float]
    action: Mapped[str] = mapped_column(String(16))
    state: Mapped[RolloutState] = mapped_column(state_type(RolloutState))
    """From here on."""
    step: Mapped[int]
    share: Mapped[float]
    key: Mapped[str | None] = mapped_column(String(64))
    """Name of the caller's key; `(decider)` for the sidecar itself, null if no key is asked for."""
    reason: Mapped[str] = mapped_column(Text)
    evidence: Mapped[dict[str, Any]]


class RolloutUnitRow(Base):
    """A unit whose value is final. In the order of these rows the evidence is counted."""

    __tablename__ = "rollout_units"
    __table_args__ = (UniqueConstraint("rollout_id", "unit"), Index("ix_rollout_units_order", "rollout_id", "id"))

    id: Mapped[RowId] = mapped_column(primary_key=True)
    rollout_id: Mapped[RowId] = mapped_column(ForeignKey("rollouts.id", ondelete="CASCADE"))
    unit: Mapped[str | None] = mapped_column(String(16))
    """As in `units`; null for one whose user's data was deleted, of which only the numbers stay."""
    treated: Mapped[bool]
    first_at: Mapped[float]
    failure: Mapped[float]
    latency: Mapped[float]
    format: Mapped[float | None]
    reward: Mapped[float | None]
    feedback: Mapped[float]
    component: Mapped[float | None]
    """Values in [0, 1]; null where a unit has none by a reason that no arm decides: see `rollouts.values`."""


class LiveScoreRow(Base):
    """The score of one answer that a user got, by the configured calculators."""

    __tablename__ = "live_scores"

    call_id: Mapped[RowId] = mapped_column(
        ForeignKey("calls.id", ondelete="CASCADE"), primary_key=True, autoincrement=False
    )
    value: Mapped[float | None]
    """Within `rewards.clip`; null where the task gives no basis for it."""
    breakdown: Mapped[dict[str, Any]] = mapped_column(SealedJson)
    scored_at: Mapped[float]
