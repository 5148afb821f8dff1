"""Tables of experiments: two arms compared on users, the decisions about them, and the units that they were made by."""

from __future__ import annotations

from typing import Any, Literal

from sqlalchemy import ForeignKey, Index, String, Text, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from slipstream.store.states import ExperimentState, state_type
from slipstream.store.tables.base import NEVER_AGAIN, Base, RowId

Winner = Literal["a", "b", "equal"]


class ExperimentRow(Base):
    """One comparison of production (arm `a`) with a version in the lane (arm `b`). It is never deleted."""

    __tablename__ = "experiments"
    __table_args__ = (Index("ix_experiments_ended", "ended_at"), NEVER_AGAIN)

    id: Mapped[RowId] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(String(64))
    version: Mapped[int]
    """The version that is arm `b`."""
    state: Mapped[ExperimentState] = mapped_column(state_type(ExperimentState), default=ExperimentState.PENDING)
    plan: Mapped[dict[str, Any]]
    """As it was started: see `experiments.plan`."""
    share: Mapped[float] = mapped_column(default=0.0)
    """Share of the units that is assigned to arm `b` now."""
    lane_step: Mapped[int | None]
    """The step that the lane has to show."""
    owner: Mapped[RowId | None]
    """The sidecar that decides it."""
    revision: Mapped[int] = mapped_column(default=0)
    """Rises with each decision, so that one made on an older picture is not carried out."""
    started_by: Mapped[str | None] = mapped_column(String(64))
    started_at: Mapped[float]
    begun_at: Mapped[float | None]
    """Time at which the first users were assigned: units from then on count."""
    settling_at: Mapped[float | None]
    """Time from which no unit is assigned any more."""
    ended_at: Mapped[float | None]
    """Time from which nothing more is decided about it."""
    winner: Mapped[Winner | None] = mapped_column(String(8))
    """`a`, `b` or `equal`; null where none was decided on."""
    rollout_id: Mapped[RowId | None] = mapped_column(ForeignKey("rollouts.id"))
    """The rollout by which the traffic went to arm `b`."""
    reason: Mapped[str | None] = mapped_column(Text)
    """Reason of its last decision, in words."""


class ExperimentDecisionRow(Base):
    """One decision about an experiment, with its evidence. Rows are only ever added: the database refuses to change
    one."""

    __tablename__ = "experiment_decisions"
    __table_args__ = (UniqueConstraint("experiment_id", "revision"),)

    id: Mapped[RowId] = mapped_column(primary_key=True)
    experiment_id: Mapped[RowId] = mapped_column(ForeignKey("experiments.id"))
    revision: Mapped[int]
    """The experiment's when it was made."""
    at: Mapped[float]
    action: Mapped[str] = mapped_column(String(16))
    state: Mapped[ExperimentState] = mapped_column(state_type(ExperimentState))
    """From here on."""
    share: Mapped[float]
    winner: Mapped[Winner | None] = mapped_column(String(8))
    key: Mapped[str | None] = mapped_column(String(64))
    """Name of the caller's key; `(decider)` for the sidecar itself, null if no key is asked for."""
    reason: Mapped[str] = mapped_column(Text)
    evidence: Mapped[dict[str, Any]]


class ExperimentUnitRow(Base):
    """A unit whose value is final. In the order of these rows the evidence is counted."""

    __tablename__ = "experiment_units"
    __table_args__ = (
        UniqueConstraint("experiment_id", "unit"),
        Index("ix_experiment_units_order", "experiment_id", "id"),
    )

    id: Mapped[RowId] = mapped_column(primary_key=True)
    experiment_id: Mapped[RowId] = mapped_column(ForeignKey("experiments.id", ondelete="CASCADE"))
    unit: Mapped[str | None] = mapped_column(String(16))
    """As in `units`; null for one whose user's data was deleted, of which only the numbers stay."""
    treated: Mapped[bool]
    """Assigned to arm `b`."""
    first_at: Mapped[float]
    measured: Mapped[dict[str, Any]]
    """Value in [0, 1] of each metric; null where a unit has none, and missing where `capture.rate` left it out: see
    `experiments.measuring`."""
