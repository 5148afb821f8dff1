"""The states of everything in the store, and the changes between them that there are.

Every change goes through `move`, which refuses what `TRANSITIONS` does not have. The diagrams of
`docs/architecture.md` are made from that table.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, TypeVar

from sqlalchemy import Enum


class TaskState(StrEnum):
    """State of a task of production."""

    OPEN = "open"
    """An answer that calls tools: more calls are to come."""
    COMPLETE = "complete"
    """An answer without tool calls came, or no call for `capture.task_idle`."""
    QUARANTINED = "quarantined"
    """The training side died three times while it decided it."""


class GroupState(StrEnum):
    """State of a group of runs that are delivered together."""

    RUNNING = "running"
    """Some of its runs have not ended."""
    READY = "ready"
    """It waits for the next commit."""
    COMMITTING = "committing"
    """A commit has taken it; its rewards do not change any more."""
    DELIVERED = "delivered"
    RERUN = "rerun"
    """The Explorer lost it, or the store was restored amid its runs; a new group takes its place."""
    DROPPED = "dropped"
    """No run has a reward, or one of several, or it was lost too often."""
    LOST = "lost"
    """A client's group that the Explorer lost: the sidecar cannot run it again."""


class RunState(StrEnum):
    """State of one execution by the policy."""

    PENDING = "pending"
    RUNNING = "running"
    """A shadow call that was sent to the Explorer."""
    OPEN = "open"
    """An agent replay whose agent makes calls."""
    ANSWERED = "answered"
    """It waits for its reward."""
    SCORED = "scored"
    FAILED = "failed"
    """Refused, out of attempts, or not to be scored."""
    QUARANTINED = "quarantined"
    """The training side died three times while it sent it, told an endpoint of it, or scored it."""


class FacadeGroupState(StrEnum):
    """State of a group of one of Trinity's own clients."""

    OPEN = "open"
    """More runs may come."""
    READY = "ready"
    COMMITTING = "committing"
    DELIVERED = "delivered"
    LOST = "lost"
    """The Explorer lost it, and does not take it again."""
    DROPPED = "dropped"


class CommitState(StrEnum):
    """State of a delivery."""

    SENDING = "sending"
    """Rewards are being sent."""
    ASKED = "asked"
    """The Explorer was asked to commit: from here on it may have done so."""
    DELIVERED = "delivered"
    FAILED = "failed"
    LOST = "lost"
    """The Explorer restarted and forgot what it was told."""


class FeedbackState(StrEnum):
    """State of a feedback for one of the answers that it names."""

    WAITING = "waiting"
    """Nothing of that name is stored yet."""
    MATCHED = "matched"
    SUPERSEDED = "superseded"
    """A later feedback on the same answer counts."""
    LATE = "late"
    """The answer was delivered before, or a retry had replaced it with another one."""
    UNKNOWN = "unknown"
    """Nothing of that name came."""
    IGNORED = "ignored"
    """Its key has the weight 0: it is kept, and no reward is made of it."""


class MarkState(StrEnum):
    """State of a mark."""

    WAITING = "waiting"
    APPLIED = "applied"
    EXPIRED = "expired"


class RolloutState(StrEnum):
    """State of a rollout: a version on its way from candidate to live."""

    PENDING = "pending"
    """The lane is being given the version; no user is assigned yet."""
    RUNNING = "running"
    """A share of the users is assigned to the version, and the step's time is not over."""
    HOLDING = "holding"
    """The step's time is over, and something that the next step needs is missing."""
    PAUSED = "paused"
    """Stopped by hand at its share: it only goes back."""
    PROMOTED = "promoted"
    """The version answers most users, and is watched."""
    ROLLED_BACK = "rolled_back"
    """Harm was shown, or the lane failed: production answers all users."""
    ABORTED = "aborted"
    """Ended by hand."""


class ExperimentState(StrEnum):
    """State of an experiment: two arms that are compared on users until it ends."""

    PENDING = "pending"
    """The lane is being given the version; no user is assigned yet."""
    RUNNING = "running"
    """Users are assigned to both arms."""
    SETTLING = "settling"
    """Its time is over: production answers all users, and the values of the last units become final."""
    DECIDED = "decided"
    """One arm was proven better, or both equal."""
    INCONCLUSIVE = "inconclusive"
    """Its time was over, and nothing was proven."""
    STOPPED = "stopped"
    """Ended by hand, or by the kill switch."""
    FAILED = "failed"
    """The version did not come into the lane, the lane failed, or it serves another version."""


class VersionState(StrEnum):
    """State of a version of the policy."""

    SEEN = "seen"
    """Its checkpoint was found, or the Explorer served it."""
    KEPT = "kept"
    """Its weights are kept: the Trainer cannot delete them any more."""
    TESTED = "tested"
    """It was compared with production on the same prompts, and no user was answered by it."""
    CANDIDATE = "candidate"
    """A rollout has it: a share of the users is answered by it."""
    LIVE = "live"
    """It was promoted."""
    RETIRED = "retired"
    """It was live, until another was promoted or production took its place."""
    REJECTED = "rejected"
    """A rollout of it was rolled back."""


class EvaluationState(StrEnum):
    """State of an evaluation of a version."""

    PENDING = "pending"
    """It waits for those before it."""
    RUNNING = "running"
    """Its cases are fixed, and are asked."""
    DONE = "done"
    CHANGED = "changed"
    """The version was not served any more before all cases were asked: what there is of it is not used."""
    FAILED = "failed"
    """There are no cases, or no calculators for them, or nearly nothing could be scored."""


TRANSITIONS: Mapping[type[StrEnum], Mapping[Any, frozenset[Any]]] = {
    TaskState: {
        TaskState.OPEN: frozenset({TaskState.COMPLETE}),
        TaskState.COMPLETE: frozenset({TaskState.OPEN, TaskState.QUARANTINED}),
        TaskState.QUARANTINED: frozenset({TaskState.COMPLETE, TaskState.OPEN}),
    },
    GroupState: {
        GroupState.RUNNING: frozenset({GroupState.READY, GroupState.RERUN, GroupState.DROPPED}),
        GroupState.READY: frozenset({GroupState.RUNNING, GroupState.COMMITTING}),
        GroupState.COMMITTING: frozenset(
            {GroupState.DELIVERED, GroupState.READY, GroupState.RERUN, GroupState.DROPPED, GroupState.LOST}
        ),
        GroupState.DROPPED: frozenset({GroupState.RUNNING}),
        GroupState.DELIVERED: frozenset(),
        GroupState.RERUN: frozenset(),
        GroupState.LOST: frozenset(),
    },
    RunState: {
        RunState.PENDING: frozenset({RunState.RUNNING, RunState.OPEN, RunState.FAILED}),
        RunState.RUNNING: frozenset({RunState.ANSWERED, RunState.PENDING, RunState.FAILED, RunState.QUARANTINED}),
        RunState.OPEN: frozenset(
            {RunState.ANSWERED, RunState.SCORED, RunState.PENDING, RunState.FAILED, RunState.QUARANTINED}
        ),
        RunState.ANSWERED: frozenset({RunState.SCORED, RunState.FAILED, RunState.QUARANTINED}),
        RunState.SCORED: frozenset({RunState.ANSWERED}),
        RunState.FAILED: frozenset({RunState.ANSWERED}),
        RunState.QUARANTINED: frozenset({RunState.PENDING, RunState.ANSWERED, RunState.FAILED}),
    },
    FacadeGroupState: {
        FacadeGroupState.OPEN: frozenset({FacadeGroupState.READY, FacadeGroupState.DROPPED}),
        FacadeGroupState.READY: frozenset({FacadeGroupState.COMMITTING, FacadeGroupState.DROPPED}),
        FacadeGroupState.COMMITTING: frozenset(
            {
                FacadeGroupState.DELIVERED,
                FacadeGroupState.READY,
                FacadeGroupState.DROPPED,
                FacadeGroupState.LOST,
            }
        ),
        FacadeGroupState.DELIVERED: frozenset(),
        FacadeGroupState.LOST: frozenset(),
        FacadeGroupState.DROPPED: frozenset(),
    },
    CommitState: {
        CommitState.SENDING: frozenset({CommitState.ASKED, CommitState.LOST}),
        CommitState.ASKED: frozenset({CommitState.DELIVERED, CommitState.FAILED, CommitState.LOST}),
        CommitState.DELIVERED: frozenset(),
        CommitState.FAILED: frozenset(),
        CommitState.LOST: frozenset(),
    },
    FeedbackState: {
        FeedbackState.WAITING: frozenset(
            {FeedbackState.MATCHED, FeedbackState.LATE, FeedbackState.UNKNOWN, FeedbackState.IGNORED}
        ),
        FeedbackState.MATCHED: frozenset({FeedbackState.SUPERSEDED}),
        FeedbackState.SUPERSEDED: frozenset({FeedbackState.MATCHED}),
        FeedbackState.LATE: frozenset(),
        FeedbackState.UNKNOWN: frozenset(),
        FeedbackState.IGNORED: frozenset(),
    },
    MarkState: {
        MarkState.WAITING: frozenset({MarkState.APPLIED, MarkState.EXPIRED}),
        MarkState.APPLIED: frozenset(),
        MarkState.EXPIRED: frozenset(),
    },
    RolloutState: {
        RolloutState.PENDING: frozenset({RolloutState.RUNNING, RolloutState.ROLLED_BACK, RolloutState.ABORTED}),
        RolloutState.RUNNING: frozenset(
            {
                RolloutState.HOLDING,
                RolloutState.PAUSED,
                RolloutState.PROMOTED,
                RolloutState.ROLLED_BACK,
                RolloutState.ABORTED,
            }
        ),
        RolloutState.HOLDING: frozenset(
            {
                RolloutState.RUNNING,
                RolloutState.PAUSED,
                RolloutState.PROMOTED,
                RolloutState.ROLLED_BACK,
                RolloutState.ABORTED,
            }
        ),
        RolloutState.PAUSED: frozenset(
            {RolloutState.RUNNING, RolloutState.PROMOTED, RolloutState.ROLLED_BACK, RolloutState.ABORTED}
        ),
        RolloutState.PROMOTED: frozenset({RolloutState.ROLLED_BACK, RolloutState.ABORTED}),
        RolloutState.ROLLED_BACK: frozenset(),
        RolloutState.ABORTED: frozenset(),
    },
    ExperimentState: {
        ExperimentState.PENDING: frozenset({ExperimentState.RUNNING, ExperimentState.STOPPED, ExperimentState.FAILED}),
        ExperimentState.RUNNING: frozenset(
            {ExperimentState.SETTLING, ExperimentState.DECIDED, ExperimentState.STOPPED, ExperimentState.FAILED}
        ),
        ExperimentState.SETTLING: frozenset(
            {ExperimentState.DECIDED, ExperimentState.INCONCLUSIVE, ExperimentState.STOPPED}
        ),
        ExperimentState.DECIDED: frozenset(),
        ExperimentState.INCONCLUSIVE: frozenset(),
        ExperimentState.STOPPED: frozenset(),
        ExperimentState.FAILED: frozenset(),
    },
    EvaluationState: {
        EvaluationState.PENDING: frozenset({EvaluationState.RUNNING, EvaluationState.CHANGED, EvaluationState.FAILED}),
        EvaluationState.RUNNING: frozenset({EvaluationState.DONE, EvaluationState.CHANGED, EvaluationState.FAILED}),
        EvaluationState.DONE: frozenset(),
        EvaluationState.CHANGED: frozenset(),
        EvaluationState.FAILED: frozenset(),
    },
    VersionState: {
        VersionState.SEEN: frozenset(
            {VersionState.KEPT, VersionState.TESTED, VersionState.CANDIDATE, VersionState.REJECTED}
        ),
        VersionState.KEPT: frozenset(
            {VersionState.SEEN, VersionState.TESTED, VersionState.CANDIDATE, VersionState.REJECTED}
        ),
        VersionState.TESTED: frozenset({VersionState.SEEN, VersionState.CANDIDATE, VersionState.REJECTED}),
        # a rollout that is given up says nothing about its version
        VersionState.CANDIDATE: frozenset(
            {VersionState.SEEN, VersionState.KEPT, VersionState.TESTED, VersionState.LIVE, VersionState.REJECTED}
        ),
        VersionState.LIVE: frozenset({VersionState.RETIRED, VersionState.REJECTED}),
        VersionState.RETIRED: frozenset({VersionState.SEEN, VersionState.CANDIDATE}),
        VersionState.REJECTED: frozenset({VersionState.SEEN, VersionState.CANDIDATE}),
    },
}
"""From each state to those that may follow it. Staying in a state is no change."""

UNDELIVERED_GROUPS = (GroupState.RUNNING, GroupState.READY)
GROUPS_UNDER_WAY = (*UNDELIVERED_GROUPS, GroupState.COMMITTING)
RUNS_UNDER_WAY = (RunState.PENDING, RunState.RUNNING, RunState.OPEN, RunState.ANSWERED)
FEEDBACK_WITHOUT_EFFECT = (FeedbackState.LATE, FeedbackState.IGNORED)
"""States in which feedback may name an answer, and no reward is made of it."""
UNFINISHED_COMMITS = (CommitState.SENDING, CommitState.ASKED)
VERSIONS_IN_USE = (VersionState.CANDIDATE, VersionState.LIVE)
LOST_COMMITS = (CommitState.LOST, CommitState.FAILED)
WAITING_FACADE_GROUPS = (FacadeGroupState.OPEN, FacadeGroupState.READY)
OPEN_EVALUATIONS = (EvaluationState.PENDING, EvaluationState.RUNNING)
OPEN_ROLLOUTS = (RolloutState.PENDING, RolloutState.RUNNING, RolloutState.HOLDING, RolloutState.PAUSED)
OPEN_EXPERIMENTS = (ExperimentState.PENDING, ExperimentState.RUNNING, ExperimentState.SETTLING)
FAILED_FACADE_GROUPS = (FacadeGroupState.LOST, FacadeGroupState.DROPPED)

_S = TypeVar("_S", bound=StrEnum)


class ImpossibleTransition(Exception):
    """A change of state that there is not: a fault of the code. The transaction is rolled back."""


def move(before: _S, after: _S) -> _S:
    """Return the state `after` for what is in the state `before`.

    In a statement about many rows, `before` is the state that its condition asks for.

    Raises:
        ImpossibleTransition: the table does not have it.
    """
    if after != before and after not in TRANSITIONS[type(before)][before]:
        raise ImpossibleTransition(f"{type(before).__name__}: {before} to {after}")
    return after


def state_type(states: type[StrEnum]) -> Enum:
    """The column type of a state: text in the database, the enum in Python."""
    return Enum(
        states,
        native_enum=False,
        create_constraint=False,
        length=16,
        validate_strings=True,
        values_callable=lambda found: [state.value for state in found],
    )
