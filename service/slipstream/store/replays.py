"""Agent replays in the store: groups of a task whose agent makes the policy's calls itself, until its run ends."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import func, select, update
from sqlalchemy.ext.asyncio import AsyncSession

from slipstream.store import in_flight, tasks
from slipstream.store.bulk import insert_rows, update_rows
from slipstream.store.group_ends import end_groups
from slipstream.store.planning import suffixed
from slipstream.store.states import GROUPS_UNDER_WAY, GroupState, RunState, TaskState, move
from slipstream.store.tables.capture import TaskRow
from slipstream.store.tables.runs import GroupRow, RunCallRow, RunRow
from slipstream.tenants import tenant_of

KIND = "agent_replay"

REPLAYED = "replayed by its client"
"""Reason of not selecting a task that was never captured."""

_INTERRUPTED = "the sidecar was started again amid the run: an answer of it may not have reached its agent"

_BATCH = 200
"""Runs given up by one statement."""

"""The states of a group in which another one of its task must not be opened."""


@dataclass(frozen=True, slots=True)
class Group:
    """A group that was opened, and its runs' numbers.

    They count on from those of the task's earlier groups, so that a run's address is never given to another one: what
    an agent of an earlier run still sends belongs to nobody.
    """

    id: str
    run_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Known:
    """A run as it is at the moment.

    Attributes:
        called: it has begun a call.
        last_began: when the last one began of the calls that are kept, Unix seconds; None where there is none.
    """

    pk: int
    state: str
    reason: str | None
    called: bool
    last_began: float | None


@dataclass(frozen=True, slots=True)
class Ending:
    """End of a run, as its agent states it.

    Attributes:
        reward: None leaves it to the calculators.
        error: why the run is to be dropped; None where it went well.
        said: all of it, as it is kept.
    """

    reward: float | None
    breakdown: Mapping[str, float]
    error: str | None
    said: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Ended:
    """Result of a run: its state, its answers in order, the version that gave the last one."""

    state: RunState
    msg_ids: tuple[str, ...]
    policy_version: int | None


async def under_way(session: AsyncSession, task_id: str) -> str | None:
    """The name of the task's group that is neither delivered nor dropped, or None."""
    query = select(GroupRow.id).where(GroupRow.task_id == task_id, GroupRow.kind == KIND)
    found: str | None = await session.scalar(query.where(GroupRow.state.in_(GROUPS_UNDER_WAY)))
    return found


async def note_task(
    session: AsyncSession,
    task_id: str,
    session_id: str | None,
    labels: Sequence[str],
    metadata: Mapping[str, Any],
    now: float,
) -> None:
    """A task is replayed by its client: keep what that says of it, beside what calls and marks said."""
    task = await session.get(TaskRow, task_id)
    if task is None:
        task = TaskRow(
            id=task_id, session_id=session_id or task_id, tenant=tenant_of(task_id), state=TaskState.COMPLETE,
            revision=1, marked=False, labels=[], meta={}, decided=True, selected=False, reason=REPLAYED, created_at=now,
            updated_at=now,
        )  # fmt: skip
        session.add(task)
        await tasks.apply_waiting_marks(session, task, now)
        task.decided = True  # there is nothing to decide on
        await session.flush()
    task.labels = sorted({*task.labels, *labels})
    task.meta = {**task.meta, **metadata}


async def open_now(session: AsyncSession) -> int:
    """Runs that are open, of all groups."""
    return await session.scalar(select(func.count()).where(RunRow.state == RunState.OPEN)) or 0


async def open_runs(
    session: AsyncSession, task_id: str, count: int, now: float, *, state: RunState, by_client: bool, due_at: float,
    generation: int = 0,
) -> Group:  # fmt: skip
    """Begin a group of so many runs, each in this state: `open` until `due_at`, or `pending` until it is sent."""
    mine = (GroupRow.task_id == task_id, GroupRow.kind == KIND)
    earlier = await session.scalar(select(func.count()).where(*mine)) or 0
    last = select(func.max(RunRow.run_id)).join(GroupRow, GroupRow.id == RunRow.group_id).where(*mine)
    highest = await session.scalar(last)
    first = 0 if highest is None else highest + 1
    group = Group(suffixed(task_id, f".replay~{earlier}" if earlier else ".replay"), tuple(range(first, first + count)))
    session.add(
        GroupRow(
            id=group.id, task_id=task_id, kind=KIND, by_client=by_client, generation=generation,
            state=GroupState.RUNNING, updated_at=now,
        )
    )  # fmt: skip
    await session.flush()
    await insert_rows(
        session,
        RunRow,
        ("group_id", "run_id", "state", "attempts", "revision", "due_at", "updated_at"),
        [(group.id, run_id, state, 0, 0, due_at, now) for run_id in group.run_ids],
    )
    return group


async def find(session: AsyncSession, task_id: str, run_id: int) -> Known | None:
    """A run by its address."""
    last_began = select(func.max(RunCallRow.started_at)).where(RunCallRow.run_pk == RunRow.id).scalar_subquery()
    query = (
        select(RunRow.id, RunRow.state, RunRow.reason, RunRow.called, last_began)
        .join(GroupRow, GroupRow.id == RunRow.group_id)
        .where(GroupRow.task_id == task_id, GroupRow.kind == KIND, RunRow.run_id == run_id)
    )
    row = (await session.execute(query)).one_or_none()
    return None if row is None else Known(*row)


async def end(session: AsyncSession, pk: int, ending: Ending, due_at: float, now: float) -> Ended | None:
    """End a run as its agent says. Returns None where it had ended before: nothing changes.

    Args:
        due_at: when it is to be scored, where the calculators do that.
    """
    run = await session.get_one(RunRow, pk)
    if run.state != RunState.OPEN:
        return None
    calls = select(RunCallRow.msg_id, RunCallRow.policy_version).where(RunCallRow.run_pk == pk)
    made = (await session.execute(calls.order_by(RunCallRow.started_at, RunCallRow.id))).all()
    run.ending, run.owner, run.tries, run.updated_at = dict(ending.said), None, 0, now
    run.policy_version = made[-1].policy_version if made else None
    error = ending.error if made or ending.error is not None else "the agent ended without a call of the policy model"
    if error is not None:
        run.state, run.reason, run.due_at = move(run.state, RunState.FAILED), error, now
    else:
        run.msg_id, run.due_at = made[-1].msg_id, due_at
        run.state = move(run.state, RunState.ANSWERED)
        if ending.reward is not None:
            run.state = move(run.state, RunState.SCORED)
            run.reward, run.breakdown = ending.reward, dict(ending.breakdown)
    await session.flush()
    await in_flight.end_of_runs(session, [pk])
    await end_groups(session, [run.group_id], now)
    return Ended(run.state, tuple(call.msg_id for call in made), run.policy_version)


async def fail(
    session: AsyncSession, pks: Collection[int], reason: str, now: float, *, told_by: int | None = None
) -> int:
    """Give up runs that have not ended; returns how many had not. Their groups go on with the others.

    Args:
        told_by: only those that this sidecar has told an endpoint of, and waits for.
    """
    query = select(RunRow.id, RunRow.group_id).where(RunRow.id.in_(pks))
    query = query.where(RunRow.state.in_((RunState.PENDING, RunState.OPEN)))
    if told_by is not None:
        query = query.where(RunRow.owner == told_by)
    found = (await session.execute(query)).all()
    reason = reason.encode("utf-8", "replace").decode()
    failed = update(RunRow).where(RunRow.id.in_([pk for pk, _ in found]))
    for before in (RunState.PENDING, RunState.OPEN):
        after = move(before, RunState.FAILED)
    failed = failed.values(state=after, owner=None, tries=0, due_at=now, reason=reason, updated_at=now)
    await session.execute(failed.execution_options(synchronize_session=False))
    await in_flight.end_of_runs(session, [pk for pk, _ in found])
    await end_groups(session, {group for _, group in found}, now)
    return len(found)


async def interrupt(session: AsyncSession, sidecars: Collection[int], now: float) -> int:
    """Give up the open runs that these sidecars, which are gone, may have cut a call of. Returns how many."""
    left = await in_flight.left_by(session, sidecars)
    batches = (left[at : at + _BATCH] for at in range(0, len(left), _BATCH))
    return sum([await fail(session, batch, _INTERRUPTED, now) for batch in batches])


async def due(session: AsyncSession, limit: int, now: float, sidecar: int) -> list[int]:
    """Open runs that nothing was heard of for too long, the longest first, without those that another sidecar than this
    one has a call of."""
    query = select(RunRow.id).where(RunRow.state == RunState.OPEN, RunRow.due_at <= now, ~in_flight.elsewhere(sidecar))
    return list(await session.scalars(query.order_by(RunRow.due_at).limit(limit)))


async def keep_open(session: AsyncSession, pks: Collection[int], expires_at: float, now: float) -> None:
    """Something is heard of these runs."""
    await update_rows(session, RunRow, ("due_at", "updated_at"), [(expires_at, now, pk) for pk in pks])


async def pending(session: AsyncSession, limit: int) -> list[int]:
    """Runs that are planned and not begun."""
    query = select(RunRow.id).join(GroupRow, GroupRow.id == RunRow.group_id)
    return list(
        await session.scalars(query.where(RunRow.state == RunState.PENDING, GroupRow.kind == KIND).limit(limit))
    )


async def msg_ids(session: AsyncSession, pks: Iterable[int]) -> dict[int, list[str]]:
    """The answers of these runs, in the order in which their calls began."""
    query = select(RunCallRow.run_pk, RunCallRow.msg_id).where(RunCallRow.run_pk.in_(pks))
    found: dict[int, list[str]] = {}
    for pk, msg_id in await session.execute(query.order_by(RunCallRow.started_at, RunCallRow.id)):
        found.setdefault(pk, []).append(msg_id)
    return found
