"""Everything about a session or a task is deleted, and what cannot be taken back is written down.

What was captured before and would be stored after it, because it waited in a queue or to be read, is refused by the row
that the deletion leaves (`standing`), in the transaction that would store it. That row holds ids alone. A group that is
being delivered goes out whole: its task stays until that has ended, and `go_on` deletes it then.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from sqlalchemy import ColumnElement, Select, delete, func, or_, select, union_all, update
from sqlalchemy.ext.asyncio import AsyncSession

from slipstream.store import preferences
from slipstream.store.bulk import batches
from slipstream.store.captured import NUMBERS
from slipstream.store.clock_skew import DELETIONS_TOLERATED
from slipstream.store.replays import KIND
from slipstream.store.states import UNDELIVERED_GROUPS, FacadeGroupState, FeedbackState, GroupState, MarkState
from slipstream.store.tables.capture import CallRow, CapturedRow, ReplacedAnswerRow, TaskRow
from slipstream.store.tables.experiments import ExperimentUnitRow
from slipstream.store.tables.facade import FacadeAnswerRow, FacadeGroupRow
from slipstream.store.tables.feedback import FeedbackRow, FeedbackTargetRow, MarkRow
from slipstream.store.tables.privacy import ErasureRow
from slipstream.store.tables.rollouts import RolloutUnitRow
from slipstream.store.tables.runs import GroupRow, RunCallRow, RunRow
from slipstream.store.tables.serving import UnitRow
from slipstream.store.tables.versions import VersionRow
from slipstream.store.tasks import delete_tasks
from slipstream.tenants import name_of, qualified, tenant_of

Kind = Literal["session_id", "task_id"]


@dataclass(frozen=True, slots=True)
class Erased:
    """Result of a deletion.

    Attributes:
        rows: deleted now, by what they were.
        pending_groups: that are being delivered, and stay until that has ended.
        undelivered: groups among the rows that were still to be delivered.
        at: Unix seconds by which all of it was stored, by whichever clock.
    """

    rows: Mapping[str, int]
    pending_groups: int
    undelivered: int
    at: float


async def erase(session: AsyncSession, kind: Kind, ref: str, at: float) -> Erased:
    """Delete what there is of a session or a task, and remember that all from before this time is deleted.

    Args:
        at: Unix seconds. A task that began later stays: its user went on after the deletion.
    """
    row = await session.get(ErasureRow, (kind, ref))
    if row is None:
        row = ErasureRow(kind=kind, ref=ref, at=0.0, told={"delivered": [], "recorded": []})
        session.add(row)
    if row.at < at:  # else it is asked for once more
        # what is stored began before, though another sidecar's clock, or this one's until it was set back, says no
        began = select(func.max(TaskRow.created_at)).where(_names(row))
        said = select(func.max(FeedbackRow.created_at)).join(FeedbackTargetRow).where(_is_named(row))
        row.at = max(at, await session.scalar(began) or 0.0, await session.scalar(said) or 0.0)
    return await _erase(session, row, at)


async def go_on(session: AsyncSession, now: float) -> list[Erased]:
    """Delete what had to wait for a delivery.

    Args:
        now: Unix seconds.
    """
    waiting = await session.scalars(select(ErasureRow).where(ErasureRow.pending.is_(True)))
    return [await _erase(session, row, now) for row in waiting.all()]


async def standing(session: AsyncSession, since: float) -> dict[tuple[str, str], float]:
    """The deletions since this time: what was deleted, and everything from before when."""
    columns = select(ErasureRow.kind, ErasureRow.ref, ErasureRow.at)
    rows = await session.execute(columns.where(ErasureRow.at >= since))
    return {(kind, ref): at for kind, ref, at in rows}


async def forget_older(session: AsyncSession, before: float) -> int:
    """Forget deletions from before this time: whatever was captured before them is long stored or gone. Returns how
    many."""
    return await _done(session, delete(ErasureRow).where(ErasureRow.at < before, ~ErasureRow.pending))


async def told(session: AsyncSession, kind: Kind, ref: str) -> dict[str, Any]:
    """Return what the Explorer had been given of it, now and in earlier deletions that are remembered: it cannot be
    taken back. `versions` can have been trained on that; whether any was on `uncertain`, nobody knows."""
    row = await session.get_one(ErasureRow, (kind, ref))
    groups = _named(row.told["delivered"])
    commits = sorted({group["commit"] for group in groups})
    later = select(VersionRow.version).where(VersionRow.last_commit_id >= min(commits, default=0))
    return {
        "delivered": {
            "experiences": sum(len(group["msg_ids"]) for group in groups),
            "commits": commits,
            "versions": list(await session.scalars(later.order_by(VersionRow.version))) if commits else [],
            "groups": groups,
        },
        "uncertain": _named(row.told.get("uncertain", [])),  # an earlier release did not tell
        "recorded": row.told["recorded"],
    }


def _named(groups: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """These groups with their tasks as their tenant calls them."""
    return [{**group, "task_id": group["task_id"] and name_of(group["task_id"])} for group in groups]


async def unread(session: AsyncSession) -> list[tuple[int, int]]:
    """The batches that wait to be read at this moment: the first and the last number of each sidecar."""
    ends = select(func.min(CapturedRow.id), func.max(CapturedRow.id))
    return [(first, last) for first, last in await session.execute(ends.group_by(CapturedRow.id // NUMBERS))]


async def still_unread(session: AsyncSession, batches: Sequence[tuple[int, int]]) -> int:
    """Exchanges in those of these batches that still wait."""
    if not batches:
        return 0
    among = or_(*(CapturedRow.id.between(first, last) for first, last in batches))
    return int(await session.scalar(select(func.sum(CapturedRow.exchanges)).where(among)) or 0)


async def _erase(session: AsyncSession, row: ErasureRow, now: float) -> Erased:
    named = _names(row) & (TaskRow.created_at <= row.at)
    own, clients = GroupRow.state == GroupState.COMMITTING, FacadeGroupRow.state == FacadeGroupState.COMMITTING
    tasks = select(TaskRow.id).where(named)
    pending = await _count(session, select(func.count()).where(GroupRow.task_id.in_(tasks), own))
    of_clients = _is(row, "task_id", FacadeGroupRow.task_id, tasks)
    pending += await _count(session, select(func.count()).where(of_clients, clients))
    if pending:  # what a client of the facade gave is found by its task
        given = select(FacadeGroupRow.task_id).where(clients, FacadeGroupRow.task_id.is_not(None))
        tasks = tasks.where(TaskRow.id.not_in(union_all(select(GroupRow.task_id).where(own), given)))

    scored = _of_tasks(select(func.max(RunRow.updated_at)), tasks)
    last = max(
        row.at,
        await session.scalar(select(func.max(CallRow.started_at)).where(CallRow.task_id.in_(tasks))) or 0.0,
        await session.scalar(scored) or 0.0,
    )
    kind: Kind = "session_id" if row.kind == "session_id" else "task_id"
    row.told = await _with_what_was_told(session, row, tasks)
    undelivered = select(func.count()).where(GroupRow.task_id.in_(tasks), GroupRow.state.in_(UNDELIVERED_GROUPS))
    lost = await _count(session, undelivered)
    counts = {
        "calls": await _count(session, select(func.count()).where(CallRow.task_id.in_(tasks))),
        "groups": await _count(session, select(func.count()).where(GroupRow.task_id.in_(tasks))),
        "runs": await _count(session, _of_tasks(select(func.count()), tasks)),
    }
    counts["feedback"] = await _delete_feedback(session, row, tasks)
    answers = _msg_ids(row, tasks)
    marks = delete(MarkRow).where(or_(_is(row, "task_id", MarkRow.task_id, tasks), MarkRow.msg_id.in_(answers)))
    counts["marks"] = await _done(session, marks)
    facade = delete(FacadeGroupRow).where(_is(row, "task_id", FacadeGroupRow.task_id, tasks), ~clients)
    counts["facade_groups"] = await _done(session, facade)
    of_tasks = select(CallRow.unit).where(CallRow.task_id.in_(tasks), CallRow.unit.is_not(None))
    await _done(session, delete(UnitRow).where(UnitRow.unit.in_(of_tasks)))
    for counted in (RolloutUnitRow, ExperimentUnitRow):
        await _done(session, update(counted).where(counted.unit.in_(of_tasks)).values(unit=None))
    counts["preferences"] = await preferences.erase(session, tasks, kind, row.ref, row.at)
    counts["tasks"] = await delete_tasks(session, tasks)
    if row.pending and not pending and row.at > now + DELETIONS_TOLERATED:
        row.at = now  # its clock was set back while it waited, when `clock_skew` let it be
    row.pending = pending > 0
    return Erased(counts, pending, lost, last)


def _names(row: ErasureRow) -> ColumnElement[bool]:
    return TaskRow.session_id == row.ref if row.kind == "session_id" else TaskRow.id == row.ref


def _is_named(row: ErasureRow) -> ColumnElement[bool]:
    """Return the condition that feedback is about the very session or task that is deleted."""
    return (FeedbackTargetRow.kind == row.kind) & (FeedbackTargetRow.ref == row.ref)


def _of_tasks(query: Select[Any], tasks: Select[Any]) -> Select[Any]:
    """A query about the runs of these tasks."""
    return query.select_from(RunRow).join(GroupRow, GroupRow.id == RunRow.group_id).where(GroupRow.task_id.in_(tasks))


def _is(row: ErasureRow, kind: Kind, column: Any, tasks: Select[Any]) -> ColumnElement[bool]:
    """Return the condition that a column names one of the tasks, or the deleted thing itself: something may wait for a
    task that never came."""
    among: ColumnElement[bool] = column.in_(tasks)
    return among | (column == row.ref) if row.kind == kind else among


def _msg_ids(row: ErasureRow, tasks: Select[Any]) -> Any:
    """The ids of all answers in these tasks, of production and of the policy, as marks and feedback name them."""
    tenant = qualified(tenant_of(row.ref), "")  # runs have the policy's ids as they are
    replayed = _of_tasks(select(tenant + RunCallRow.msg_id), tasks).join(RunCallRow, RunCallRow.run_pk == RunRow.id)
    replaced = select(ReplacedAnswerRow.msg_id).join(CallRow, CallRow.id == ReplacedAnswerRow.call_id)
    return union_all(
        select(CallRow.msg_id).where(CallRow.task_id.in_(tasks), CallRow.msg_id.is_not(None)),
        _of_tasks(select(tenant + RunRow.msg_id), tasks).where(RunRow.msg_id.is_not(None)),
        replayed,
        replaced.where(CallRow.task_id.in_(tasks)),
    )


async def _with_what_was_told(session: AsyncSession, row: ErasureRow, tasks: Select[Any]) -> dict[str, Any]:
    """Return the notes of earlier deletions together with the policy's answers in these tasks: by group those that a
    commit took, and those of a commit without a known result; and those that the Explorer has recorded and was told no
    reward of."""
    of_group: tuple[Any, ...] = (GroupRow.id, GroupRow.task_id, GroupRow.state, GroupRow.commit_id, RunRow.reward)
    shadow = _of_tasks(select(*of_group, RunRow.msg_id), tasks).where(GroupRow.kind != KIND, RunRow.msg_id.is_not(None))
    replays = _of_tasks(select(*of_group, RunCallRow.msg_id), tasks)
    replays = replays.join(RunCallRow, RunCallRow.run_pk == RunRow.id)
    of_client = (FacadeGroupRow.id, FacadeGroupRow.task_id, FacadeGroupRow.state, FacadeGroupRow.commit_id)
    clients = (
        select(*of_client, FacadeAnswerRow.reward, FacadeAnswerRow.msg_id)
        .join(FacadeAnswerRow, FacadeAnswerRow.group_id == FacadeGroupRow.id)
        .where(_is(row, "task_id", FacadeGroupRow.task_id, tasks))
    )
    recorded: list[str] = list(row.told["recorded"])
    delivered: dict[str, dict[str, Any]] = {}
    uncertain: dict[str, dict[str, Any]] = {}
    for query in (shadow, replays, clients):
        for group_id, task_id, state, commit_id, reward, msg_id in await session.execute(query):
            if commit_id is None or reward is None:
                recorded.append(msg_id)
                continue
            group = {"group_id": group_id, "task_id": task_id, "commit": commit_id, "msg_ids": []}
            taken = delivered if state == GroupState.DELIVERED else uncertain
            taken.setdefault(group_id, group)["msg_ids"].append(msg_id)
    return {
        "delivered": [*row.told["delivered"], *delivered.values()],
        "uncertain": [*row.told.get("uncertain", []), *uncertain.values()],
        "recorded": recorded,
    }


async def _delete_feedback(session: AsyncSession, row: ErasureRow, tasks: Select[Any]) -> int:
    """Delete feedback on these answers, and earlier feedback on the session. A post that names other answers too loses
    its comment, and its reward stays with those."""
    names = [
        _is_named(row) & (FeedbackRow.created_at <= row.at),
        (FeedbackTargetRow.kind == "task_id") & FeedbackTargetRow.ref.in_(tasks),
        (FeedbackTargetRow.kind == "msg_id") & FeedbackTargetRow.ref.in_(_msg_ids(row, tasks)),
        FeedbackTargetRow.call_pk.in_(select(CallRow.id).where(CallRow.task_id.in_(tasks))),
        FeedbackTargetRow.run_pk.in_(_of_tasks(select(RunRow.id), tasks)),
    ]
    found: set[int] = set()
    posts: set[str] = set()
    for name in names:
        said = select(FeedbackTargetRow.id, FeedbackTargetRow.feedback_id)
        said = said.join(FeedbackRow, FeedbackRow.id == FeedbackTargetRow.feedback_id)
        for target, post in await session.execute(said.where(name)):
            found.add(target)
            posts.add(post)
    await _forget(session, found, posts)
    return len(posts)


async def forget_waiting(session: AsyncSession, msg_ids: Sequence[str], task_ids: Sequence[str]) -> None:
    """Delete feedback that waits for answers which were deleted before they were stored."""
    for kind, marked, names in (("msg_id", MarkRow.msg_id, msg_ids), ("task_id", MarkRow.task_id, task_ids)):
        for some in batches(names):
            await _done(session, delete(MarkRow).where(marked.in_(some), MarkRow.state == MarkState.WAITING))
            waiting = select(FeedbackTargetRow.id, FeedbackTargetRow.feedback_id).where(
                FeedbackTargetRow.kind == kind,
                FeedbackTargetRow.ref.in_(some),
                FeedbackTargetRow.state == FeedbackState.WAITING,
            )
            said = (await session.execute(waiting)).all()
            await _forget(session, {target for target, _ in said}, {post for _, post in said})


async def _forget(session: AsyncSession, found: set[int], posts: set[str]) -> None:
    for some in batches(sorted(found)):
        await _done(session, delete(FeedbackTargetRow).where(FeedbackTargetRow.id.in_(some)))
    for post_ids in batches(sorted(posts)):
        left = select(FeedbackTargetRow.feedback_id).where(FeedbackTargetRow.feedback_id.in_(post_ids))
        mine = FeedbackRow.id.in_(post_ids)
        await _done(session, delete(FeedbackRow).where(mine, FeedbackRow.id.not_in(left)))
        await _done(session, update(FeedbackRow).where(mine).values(comment=None, source=None))


async def _count(session: AsyncSession, query: Select[Any]) -> int:
    return await session.scalar(query) or 0


async def _done(session: AsyncSession, statement: Any) -> int:
    """Run a statement and return how many rows it changed."""
    done = await session.execute(statement.execution_options(synchronize_session=False))
    return int(done.rowcount)  # type: ignore[attr-defined]
