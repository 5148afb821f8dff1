"""Groups and their runs by the policy, and the calls of those that are agent replays."""

from __future__ import annotations

from typing import Any

from sqlalchemy import ForeignKey, Index, String, UniqueConstraint, false, text
from sqlalchemy.orm import Mapped, mapped_column

from slipstream.store.lengths import ID_LENGTH
from slipstream.store.sealed import SealedBytes, SealedJson, SealedText
from slipstream.store.states import GroupState, RunState, state_type
from slipstream.store.tables.base import NEVER_AGAIN, Base, RowId


class GroupRow(Base):
    """The runs that start from one prompt, and are delivered together."""

    __tablename__ = "groups"
    __table_args__ = (Index("ix_groups_state", "state", "updated_at"),)

    id: Mapped[str] = mapped_column(String(ID_LENGTH), primary_key=True)
    """The task_id that the Explorer is told."""
    task_id: Mapped[str] = mapped_column(ForeignKey("tasks.id", ondelete="CASCADE"), index=True)
    kind: Mapped[str] = mapped_column(String(16), default="shadow_call")
    """shadow_call or agent_replay."""
    call_id: Mapped[RowId | None] = mapped_column(ForeignKey("calls.id", ondelete="CASCADE"), index=True)
    """The call that is repeated; none in an agent replay."""
    by_client: Mapped[bool] = mapped_column(default=False)
    """A client runs it, so that the sidecar cannot have it run again."""
    generation: Mapped[int] = mapped_column(default=0)
    """Number of groups in its place that the Explorer lost before this one; for a client's replay, how often it lost
    it."""
    state: Mapped[GroupState] = mapped_column(state_type(GroupState), default=GroupState.RUNNING)
    commit_id: Mapped[int | None] = mapped_column(ForeignKey("commits.id"), index=True)
    updated_at: Mapped[float] = mapped_column(index=True)


class RunRow(Base):
    """One execution by the policy model."""

    __tablename__ = "runs"
    __table_args__ = (
        UniqueConstraint("group_id", "run_id"),
        Index("ix_runs_state", "state", "due_at"),
        Index("ix_runs_tried", "state", "tries", sqlite_where=text("tries > 0"), postgresql_where=text("tries > 0")),
        NEVER_AGAIN,  # an answer that comes after its run was deleted would be another's
    )

    id: Mapped[RowId] = mapped_column(primary_key=True)
    group_id: Mapped[str] = mapped_column(ForeignKey("groups.id", ondelete="CASCADE"))
    run_id: Mapped[int]
    state: Mapped[RunState] = mapped_column(state_type(RunState), default=RunState.PENDING)
    owner: Mapped[RowId | None]
    """The sidecar that sends it (running), scores it (answered), or waits for its endpoint (open)."""
    attempts: Mapped[int] = mapped_column(default=0)
    tries: Mapped[int] = mapped_column(server_default="0")
    """Deaths of the process that held it, see `quarantine`; one more while it is held."""
    revision: Mapped[int] = mapped_column(default=0)
    """Rises with each feedback, so that a score computed on an older picture is computed again."""
    called: Mapped[bool] = mapped_column(server_default=false())
    """True once the agent of a replay has made a call, whatever its result."""
    due_at: Mapped[float] = mapped_column(default=0.0)
    """Not sent (pending) or not scored (answered) before this time; given up (open) at it."""
    msg_id: Mapped[str | None] = mapped_column(String(256), index=True)
    """Id of its answer; for an agent replay that has ended well, of the last one. Without it there is nothing to score.
    """
    request: Mapped[bytes | None] = mapped_column(SealedBytes)
    answer: Mapped[bytes | None] = mapped_column(SealedBytes)
    """Packed, as in `bodies`; of the request what its call has not, see `shadow_requests`. An agent replay's are in
    `run_calls`."""
    latency: Mapped[float | None]
    policy_version: Mapped[int | None]
    ending: Mapped[dict[str, Any] | None] = mapped_column(SealedJson)
    """End of a replay, as its agent stated it."""
    reward: Mapped[float | None]
    breakdown: Mapped[dict[str, Any] | None] = mapped_column(SealedJson)
    reason: Mapped[str | None] = mapped_column(SealedText)
    """Reason why it failed, in words."""
    updated_at: Mapped[float]


class RunCallRow(Base):
    """One chat completion of the policy model in an agent replay."""

    __tablename__ = "run_calls"
    id: Mapped[RowId] = mapped_column(primary_key=True)
    run_pk: Mapped[RowId] = mapped_column(ForeignKey("runs.id", ondelete="CASCADE"))
    msg_id: Mapped[str] = mapped_column(String(256), unique=True)
    choices: Mapped[int]
    """The Explorer keeps an experience of each."""
    request: Mapped[bytes] = mapped_column(SealedBytes)
    """Packed; all of it, or what its segments lack: see `segments`, which reads it."""
    answer: Mapped[bytes] = mapped_column(SealedBytes)
    """Packed, as in `bodies`."""
    latency: Mapped[float]
    policy_version: Mapped[int | None]
    started_at: Mapped[float]
    instructed: Mapped[bool] = mapped_column(server_default=false())
    """The first message of the request is instructions, which hold for this one call."""
    segment_id: Mapped[RowId | None] = mapped_column(ForeignKey("segments.id"))
    """The segment that the messages of `request` end with; None where it has all of them."""

    __table_args__ = (
        Index("ix_run_calls_run", "run_pk", "started_at"),
        Index(
            "ix_run_calls_segment",
            "segment_id",
            sqlite_where=segment_id.is_not(None),
            postgresql_where=segment_id.is_not(None),
        ),
    )


class InFlightCallRow(Base):
    """A call of an agent replay that may not have reached its agent yet: see `in_flight`."""

    __tablename__ = "calls_under_way"

    id: Mapped[RowId] = mapped_column(primary_key=True)
    run_pk: Mapped[RowId] = mapped_column(ForeignKey("runs.id", ondelete="CASCADE"))
    owner: Mapped[RowId]
    """The sidecar that it came to."""
    reading: Mapped[bool]
    """A part of the answer has gone to the agent, or is about to."""

    __table_args__ = (Index("ix_calls_under_way_run", "run_pk"),)
