"""The tables. Times are Unix seconds; states are written as words and their transitions are listed here.

    task   open ─▶ complete                      and, once complete, undecided ─▶ decided
    group  running ─▶ ready ─▶ committing ─▶ delivered
              │         │ ▲─────────┼──────▶ rerun      the Explorer lost it: a new group takes its place
              │         │           └──────▶ lost       a client ran it, so that nothing can
              └─────────┴──────▶ dropped                no run or a single one left, or its data is past retention
    run    pending ─▶ running ─▶ answered ─▶ scored
              ▲          │           └─────▶ failed
              └──────────┴─ the sidecar or the Explorer went away
           open ─▶ answered | scored | failed       of an agent replay: its agent makes the calls; a webhook's begins
                                                    pending
    commit sending ─▶ asked ─▶ delivered | failed | lost       asked: from here on it may have been carried out

    facade group  open ─▶ ready ─▶ committing ─▶ delivered
                    │       │ ▲───────┘└───────▶ lost      the Explorer lost it: repaired, or not to be had again
                    └───────┴─▶ dropped                    one run where several are compared, or past retention

A scored run goes back to `answered` (and its group to `running`) when feedback or a mark arrives before delivery; so
does one that could not be scored, out of a dropped group too.

Indexes cost each captured call, so there are few: of a task its id, its session (whose last answer feedback means), the
time (what retention deletes, what is newest) and, until it is decided, that it is; of a call its place in its task and
its msg_id. All of them rise with time, so that a batch of calls shares pages however large the store is; `msg_ids` says
how the last one does. Runs and groups come with a call of the policy, which costs more than any index of them.

What can quote a user is in sealed columns, which are encrypted where the store has a key. Ids, states, times, numbers
and labels are not: the store is searched by them.
"""

from __future__ import annotations

from typing import Annotated, Any

from sqlalchemy import (
    JSON,
    BigInteger,
    ForeignKey,
    Index,
    Integer,
    String,
    Text,
    UniqueConstraint,
    false,
    literal_column,
)
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from slipstream.store.sealed import SealedBytes, SealedJson, SealedText

ID_LENGTH = 64
"""Trinity keeps task ids in a column of 64 characters; ours are never longer."""


RowId = Annotated[int, "a row's number"]
"""64 bits: 32 are used up within days by an agent that is busy enough. SQLite numbers rows by no other type."""

CALL_BLOCK = 16384
"""Calls whose msg_ids are together in their index: about a megabyte of it, so that a batch of new ones shares pages.
With blocks twice as large storing costs more, with smaller ones looking up does."""


class Base(DeclarativeBase):
    type_annotation_map = {  # noqa: RUF012 - read by SQLAlchemy as it is
        dict[str, Any]: JSON,
        list[str]: JSON,
        RowId: BigInteger().with_variant(Integer(), "sqlite"),
    }


class SidecarRow(Base):
    """One start of a sidecar's training side, while its lease runs. What it holds carries its id as `owner`."""

    __tablename__ = "sidecars"

    id: Mapped[RowId] = mapped_column(primary_key=True)
    """Grows with each start, and is never given again."""
    name: Mapped[str] = mapped_column(Text)
    """For those who look: its host and port."""
    lease_until: Mapped[float]
    """By the database's clock; 0 where it has ended."""
    started_at: Mapped[float]


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
    """How many."""
    packed: Mapped[bytes] = mapped_column(SealedBytes)
    """As `capture.kept` packs them."""


class TaskRow(Base):
    """One user request to the agent."""

    __tablename__ = "tasks"

    id: Mapped[str] = mapped_column(String(ID_LENGTH), primary_key=True)
    session_id: Mapped[str] = mapped_column(String(ID_LENGTH))
    state: Mapped[str] = mapped_column(String(16), default="open")
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
    created_at: Mapped[float]
    updated_at: Mapped[float] = mapped_column(index=True)
    """When its last call was stored."""

    __table_args__ = (
        Index("ix_tasks_session", "session_id", "updated_at"),
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
    """One captured chat completion of production."""

    __tablename__ = "calls"
    __table_args__ = (UniqueConstraint("task_id", "position"),)

    id: Mapped[RowId] = mapped_column(primary_key=True)
    task_id: Mapped[str] = mapped_column(ForeignKey("tasks.id", ondelete="CASCADE"))
    position: Mapped[int]
    msg_id: Mapped[str | None] = mapped_column(String(256))
    request: Mapped[bytes] = mapped_column(SealedBytes)
    answer: Mapped[bytes] = mapped_column(SealedBytes)
    """Packed, as in `bodies`."""
    latency: Mapped[float]
    started_at: Mapped[float]


Index("ix_calls_msg_id", CallRow.id.op("/")(literal_column(str(CALL_BLOCK))), CallRow.msg_id)
"""Written as in `msg_ids`, where alone it is used."""


class GroupRow(Base):
    """The runs that start from one prompt, and are delivered together."""

    __tablename__ = "groups"
    __table_args__ = (Index("ix_groups_state", "state", "updated_at"),)

    id: Mapped[str] = mapped_column(String(ID_LENGTH), primary_key=True)
    """What the Explorer is told as task_id."""
    task_id: Mapped[str] = mapped_column(ForeignKey("tasks.id", ondelete="CASCADE"), index=True)
    kind: Mapped[str] = mapped_column(String(16), default="shadow_call")
    """shadow_call or agent_replay."""
    call_id: Mapped[RowId | None] = mapped_column(ForeignKey("calls.id", ondelete="CASCADE"), index=True)
    """The call that is repeated; none in an agent replay."""
    by_client: Mapped[bool] = mapped_column(default=False)
    """A client runs it, so that the sidecar cannot have it run again."""
    generation: Mapped[int] = mapped_column(default=0)
    """How many groups in its place the Explorer lost before this one; of a client's replay, how often it lost it."""
    state: Mapped[str] = mapped_column(String(16), default="running")
    commit_id: Mapped[int | None] = mapped_column(ForeignKey("commits.id"), index=True)
    updated_at: Mapped[float] = mapped_column(index=True)


class RunRow(Base):
    """One execution by the policy model."""

    __tablename__ = "runs"
    __table_args__ = (UniqueConstraint("group_id", "run_id"), Index("ix_runs_state", "state", "due_at"))

    id: Mapped[RowId] = mapped_column(primary_key=True)
    group_id: Mapped[str] = mapped_column(ForeignKey("groups.id", ondelete="CASCADE"))
    run_id: Mapped[int]
    state: Mapped[str] = mapped_column(String(16), default="pending")
    owner: Mapped[RowId | None]
    """The sidecar that sends it (running), scores it (answered), or waits for its endpoint (open)."""
    attempts: Mapped[int] = mapped_column(default=0)
    revision: Mapped[int] = mapped_column(default=0)
    """Rises with each feedback, so that a score computed on an older picture is computed again."""
    called: Mapped[bool] = mapped_column(server_default=false())
    """Of an agent replay: its agent has made a call, whatever became of that."""
    due_at: Mapped[float] = mapped_column(default=0.0)
    """Not sent (pending) or not scored (answered) before this time; given up (open) at it."""
    msg_id: Mapped[str | None] = mapped_column(String(256), index=True)
    """Of its answer; of an agent replay that has ended well, the last one. Without it there is nothing to score."""
    request: Mapped[bytes | None] = mapped_column(SealedBytes)
    answer: Mapped[bytes | None] = mapped_column(SealedBytes)
    """Packed, as in `bodies`; an agent replay's are in `run_calls`."""
    latency: Mapped[float | None]
    policy_version: Mapped[int | None]
    ending: Mapped[dict[str, Any] | None] = mapped_column(SealedJson)
    """What the agent of a replay said when it ended."""
    reward: Mapped[float | None]
    breakdown: Mapped[dict[str, Any] | None] = mapped_column(SealedJson)
    reason: Mapped[str | None] = mapped_column(SealedText)
    """Why it failed, in words."""
    updated_at: Mapped[float]


class RunCallRow(Base):
    """One chat completion of the policy model in an agent replay."""

    __tablename__ = "run_calls"
    __table_args__ = (Index("ix_run_calls_run", "run_pk", "started_at"),)

    id: Mapped[RowId] = mapped_column(primary_key=True)
    run_pk: Mapped[RowId] = mapped_column(ForeignKey("runs.id", ondelete="CASCADE"))
    msg_id: Mapped[str] = mapped_column(String(256), unique=True)
    choices: Mapped[int]
    """The Explorer keeps an experience of each."""
    request: Mapped[bytes] = mapped_column(SealedBytes)
    answer: Mapped[bytes] = mapped_column(SealedBytes)
    """Packed, as in `bodies`."""
    latency: Mapped[float]
    policy_version: Mapped[int | None]
    started_at: Mapped[float]


class CallUnderWayRow(Base):
    """A call of an agent replay that may not have reached its agent yet: see `calling`."""

    __tablename__ = "calls_under_way"

    id: Mapped[RowId] = mapped_column(primary_key=True)
    run_pk: Mapped[RowId] = mapped_column(ForeignKey("runs.id", ondelete="CASCADE"))
    owner: Mapped[RowId]
    """The sidecar that it came to."""
    reading: Mapped[bool]
    """A part of the answer has gone to the agent, or is about to."""

    __table_args__ = (Index("ix_calls_under_way_run", "run_pk"),)


class CommitRow(Base):
    """One delivery: the feedback of whole groups, then the Explorer's commit."""

    __tablename__ = "commits"
    __table_args__ = (Index("ix_commits_state", "state", "ended_at"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    state: Mapped[str] = mapped_column(String(16), default="sending")
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


class FacadeGroupRow(Base):
    """The runs that a client of the facade gave one task_id, and that are delivered together."""

    __tablename__ = "facade_groups"
    __table_args__ = (Index("ix_facade_groups_state", "state", "updated_at"),)

    id: Mapped[str] = mapped_column(String(ID_LENGTH), primary_key=True)
    """What the Explorer is told as task_id: the client's own, or one like it where that was delivered before."""
    task_id: Mapped[str | None] = mapped_column(String(ID_LENGTH), index=True)
    state: Mapped[str] = mapped_column(String(16), default="open")
    commit_id: Mapped[int | None] = mapped_column(ForeignKey("commits.id"), index=True)
    size: Mapped[int | None]
    """How many runs make it complete; null where its client did not say."""
    attempts: Mapped[int] = mapped_column(default=0)
    """Commits that took it."""
    reason: Mapped[str | None] = mapped_column(Text)
    """Why it was lost or dropped, in words."""
    updated_at: Mapped[float] = mapped_column(index=True)


class FacadeAnswerRow(Base):
    """One chat completion that the facade passed on, and the reward that its client gave it.

    Without bodies: the experience itself is with the Explorer.
    """

    __tablename__ = "facade_answers"

    msg_id: Mapped[str] = mapped_column(String(256), primary_key=True)
    choices: Mapped[int]
    flaw: Mapped[str | None] = mapped_column(String(64))
    """Why it is not whole, and so never gets a reward."""
    policy_version: Mapped[int | None]
    group_id: Mapped[str | None] = mapped_column(ForeignKey("facade_groups.id", ondelete="CASCADE"), index=True)
    run_key: Mapped[str | None] = mapped_column(String(256))
    """The client's name of the run; null where it gave none."""
    run_id: Mapped[int | None]
    reward: Mapped[float | None]
    created_at: Mapped[float] = mapped_column(index=True)


class VersionRow(Base):
    """One policy version, when it was first seen, and the last commit it can have been trained on."""

    __tablename__ = "versions"

    version: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    seen_at: Mapped[float]
    last_commit_id: Mapped[int | None]
    experiences: Mapped[int] = mapped_column(default=0)
    """Experiences delivered before it was seen, all together."""


class StoreKeyRow(Base):
    """A key that sealed columns were encrypted with: see `keys`."""

    __tablename__ = "store_keys"

    fingerprint: Mapped[str] = mapped_column(String(8), primary_key=True)
    used_until: Mapped[float | None]
    """When it was seen no more as the one that seals; null while it is that."""


class ErasureRow(Base):
    """A session or a task that was deleted on request: see `erasure`. Ids alone."""

    __tablename__ = "erasures"

    kind: Mapped[str] = mapped_column(String(16), primary_key=True)
    """session_id or task_id."""
    ref: Mapped[str] = mapped_column(String(ID_LENGTH), primary_key=True)
    at: Mapped[float] = mapped_column(index=True)
    """What began before this time is deleted."""
    pending: Mapped[bool] = mapped_column(default=False)
    """A part of it is being delivered, and is to be deleted when that has ended."""
    told: Mapped[dict[str, Any]]
    """What the Explorer had been given, so that asking again gives the same answer."""

    __table_args__ = (
        Index("ix_erasures_pending", "kind", sqlite_where=pending.is_(True), postgresql_where=pending.is_(True)),
    )


class MarkRow(Base):
    """An explicit mark that was posted; it waits for its task where that is not stored yet."""

    __tablename__ = "marks"
    __table_args__ = (Index("ix_marks_state", "state", "expires_at"),)

    id: Mapped[str] = mapped_column(String(ID_LENGTH), primary_key=True)
    task_id: Mapped[str | None] = mapped_column(String(ID_LENGTH), index=True)
    msg_id: Mapped[str | None] = mapped_column(String(256), index=True)
    labels: Mapped[list[str]] = mapped_column(default=list)
    meta: Mapped[dict[str, Any]] = mapped_column(SealedJson, default=dict)
    state: Mapped[str] = mapped_column(String(16), default="waiting")
    created_at: Mapped[float] = mapped_column(index=True)
    expires_at: Mapped[float]


class FeedbackRow(Base):
    """One feedback as it was posted."""

    __tablename__ = "feedback"

    id: Mapped[str] = mapped_column(String(ID_LENGTH), primary_key=True)
    reward: Mapped[float | None]
    rating: Mapped[int | None]
    thumbs: Mapped[str | None] = mapped_column(String(8))
    comment: Mapped[str | None] = mapped_column(SealedText)
    source: Mapped[str | None] = mapped_column(SealedText)
    created_at: Mapped[float] = mapped_column(index=True)


class FeedbackTargetRow(Base):
    """One thing that a feedback names, and what became of it.

    waiting ─▶ matched ─▶ superseded     a newer feedback on the same answer counts
       │          └─────▶ late           (straight away) the run was delivered before
       └──▶ unknown                      nothing of that name appeared in time
    """

    __tablename__ = "feedback_targets"
    __table_args__ = (Index("ix_feedback_targets_ref", "kind", "ref", "state"),)

    id: Mapped[RowId] = mapped_column(primary_key=True)
    feedback_id: Mapped[str] = mapped_column(ForeignKey("feedback.id", ondelete="CASCADE"), index=True)
    kind: Mapped[str] = mapped_column(String(16))
    """msg_id, task_id or session_id."""
    ref: Mapped[str] = mapped_column(String(256))
    state: Mapped[str] = mapped_column(String(16), default="waiting", index=True)
    matched_to: Mapped[str | None] = mapped_column(String(16))
    """policy or production."""
    run_pk: Mapped[RowId | None] = mapped_column(ForeignKey("runs.id", ondelete="SET NULL"), index=True)
    call_pk: Mapped[RowId | None] = mapped_column(ForeignKey("calls.id", ondelete="SET NULL"), index=True)


class SpentRow(Base):
    """What was spent in a minute, of all sidecars together; rows of the last hour only."""

    __tablename__ = "spent"

    purpose: Mapped[str] = mapped_column(String(16), primary_key=True)
    """runs or judge."""
    minute: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    """Since 1970."""
    requests: Mapped[int] = mapped_column(BigInteger)
    tokens: Mapped[int] = mapped_column(BigInteger)
