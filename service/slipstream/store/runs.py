"""Groups and runs in the store: planned, claimed, answered, scored, ready to be delivered."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import exists, func, select, update
from sqlalchemy.ext.asyncio import AsyncSession

from slipstream.store import feedback, tasks
from slipstream.store.bodies import unpack
from slipstream.store.bulk import Rows, insert_rows
from slipstream.store.tables import ID_LENGTH, CallRow, GroupRow, RunRow
from slipstream.trajectory import PolicyCall, Run

_ALONE = "not delivered: no other run of its group has a reward, and there is nothing to compare it with"
"""A group was planned with several runs, and one is left. Trinity would take its reward for its advantage, as if it
were that much better than others; with some algorithms its commit would fail, and lose all that goes with it."""


@dataclass(frozen=True, slots=True)
class ClaimedRun:
    """A run that is to be sent to the Explorer: its row, and the captured request that it repeats, packed."""

    pk: int
    group_id: str
    run_id: int
    attempts: int
    task_id: str
    request: bytes


def group_id(task_id: str, position: int, generation: int) -> str:
    """The Explorer's task_id for the runs of one call: readable, and within its 64 characters."""
    return suffixed(task_id, f".{position}" + (f"~{generation}" if generation else ""))


def suffixed(name: str, suffix: str) -> str:
    """A name of at most `ID_LENGTH` characters that ends so; a digest stands for what has no room."""
    if len(name) + len(suffix) <= ID_LENGTH:
        return name + suffix
    digest = hashlib.blake2b(name.encode(), digest_size=8).hexdigest()
    return f"{name[: ID_LENGTH - len(suffix) - 17]}-{digest}{suffix}"


async def waiting(session: AsyncSession) -> int:
    """Runs that are not answered yet."""
    count = select(func.count()).where(RunRow.state.in_(("pending", "running")))
    return await session.scalar(count) or 0


async def plan_tasks(session: AsyncSession, task_ids: Sequence[str], room: int, repeat_time: int, now: float) -> int:
    """Plan the groups of those calls of these tasks that have none yet, the oldest first.

    Args:
        room: groups that may be planned.

    Returns:
        How many calls there was no room for.
    """
    planned = exists().where(GroupRow.call_id == CallRow.id)
    query = select(CallRow.id, CallRow.task_id, CallRow.position).where(CallRow.task_id.in_(task_ids), ~planned)
    calls = [(pk, task_id, position) for pk, task_id, position in await session.execute(query.order_by(CallRow.id))]
    await _plan(session, calls[:room], repeat_time, now, generation=0)
    return len(calls[room:])


async def plan(session: AsyncSession, call: CallRow, repeat_time: int, now: float, generation: int) -> None:
    """Plan another group of a call whose last one was lost."""
    await _plan(session, [(call.id, call.task_id, call.position)], repeat_time, now, generation)


async def _plan(
    session: AsyncSession, calls: Sequence[tuple[int, str, int]], repeat_time: int, now: float, generation: int
) -> None:
    """For each call, given by its row, task and position, a group: `repeat_time` runs that start from its prompt."""
    groups: Rows = []
    for call_id, task_id, position in calls:
        name = group_id(task_id, position, generation)
        groups.append((name, task_id, call_id, generation, "running", now))
    planned: Rows = [(name, run_id, "pending", 0, 0, now, now) for name, *_ in groups for run_id in range(repeat_time)]
    await insert_rows(session, GroupRow, ("id", "task_id", "call_id", "generation", "state", "updated_at"), groups)
    run_columns = ("group_id", "run_id", "state", "attempts", "revision", "due_at", "updated_at")
    await insert_rows(session, RunRow, run_columns, planned)


async def release_running(session: AsyncSession) -> None:
    """Runs that were on their way when the sidecar ended are sent again."""
    await session.execute(update(RunRow).where(RunRow.state == "running").values(state="pending"))


async def claim(session: AsyncSession, limit: int, now: float) -> list[ClaimedRun]:
    """Take pending runs, the longest due first; they are `running` from here on.

    By that order a run that was postponed goes behind those that waited for it, so that one which the Explorer always
    fails on cannot keep the others from it.
    """
    query = (
        select(RunRow, CallRow)
        .join(GroupRow, GroupRow.id == RunRow.group_id)
        .join(CallRow, CallRow.id == GroupRow.call_id)
        .where(RunRow.state == "pending", RunRow.due_at <= now)
        .order_by(RunRow.due_at, RunRow.id)
        .limit(limit)
    )
    claimed = []
    for run, call in await session.execute(query):
        run.state, run.updated_at = "running", now
        claimed.append(ClaimedRun(run.id, run.group_id, run.run_id, run.attempts, call.task_id, call.request))
    return claimed


async def postpone(session: AsyncSession, pk: int, attempts: int, due_at: float) -> None:
    """Send a run again later."""
    run = await session.get(RunRow, pk)
    if run is not None:
        run.state, run.attempts, run.due_at = "pending", attempts, due_at


async def answer(
    session: AsyncSession,
    pk: int,
    *,
    msg_id: str,
    request: bytes,
    answer: bytes,
    latency: float,
    policy_version: int | None,
    now: float,
    due_at: float,
) -> bool:
    """Keep the policy's packed answer, to be scored at `due_at`, or now when its feedback is already there.

    Returns:
        False when the run is gone (retention).
    """
    run = await session.get(RunRow, pk)
    if run is None:
        return False
    run.state, run.due_at, run.updated_at = "answered", due_at, now
    run.msg_id, run.request, run.answer = msg_id, request, answer
    run.latency, run.policy_version = latency, policy_version
    await session.flush()
    await feedback.match_waiting(session, [("msg_id", msg_id)], now)
    return True


async def fail(session: AsyncSession, pk: int, reason: str, now: float, revision: int | None = None) -> bool:
    """A run ends without a reward; its group goes on with the others. Returns whether it did.

    With a revision, only where no feedback came since then: the run is scored again with it.
    """
    run = await session.get(RunRow, pk)
    if run is None or revision not in (None, run.revision):
        return False
    # a reason may quote an answer, and with it a lone surrogate, which no text column takes
    run.state, run.reason, run.updated_at = "failed", reason.encode("utf-8", "replace").decode(), now
    await _end_group(session, run.group_id, now)
    return True


async def due_for_scoring(session: AsyncSession, limit: int, now: float) -> Sequence[int]:
    """Answered runs whose grace is over, oldest first."""
    query = select(RunRow.id).where(RunRow.state == "answered", RunRow.due_at <= now)
    return (await session.scalars(query.order_by(RunRow.due_at).limit(limit))).all()


async def picture(session: AsyncSession, pk: int) -> tuple[Run, int] | None:
    """A run as calculators see it, and its revision; None where it is gone or no longer to be scored."""
    run = await session.get(RunRow, pk)
    if run is None or run.state != "answered" or run.answer is None or run.request is None:
        return None
    group = await session.get_one(GroupRow, run.group_id)
    call = await session.get_one(CallRow, group.call_id)
    task = await tasks.load(session, group.task_id)
    request, answer = await asyncio.to_thread(lambda packed: tuple(map(unpack, packed)), (run.request, run.answer))
    policy_call = PolicyCall(
        request=request,
        answer=answer,
        msg_id=run.msg_id or "",
        latency=run.latency or 0.0,
        policy_version=run.policy_version,
    )
    return Run(
        task=task,
        group_id=group.id,
        run_id=run.run_id,
        calls=(policy_call,),
        production=task.calls[call.position],
        feedback=await feedback.about_run(session, run.id),
        production_feedback=await feedback.about_call(session, call.id),
    ), run.revision


async def score(
    session: AsyncSession, pk: int, revision: int, reward: float, breakdown: Mapping[str, Any], now: float
) -> bool:
    """Give a run its reward, unless feedback came while it was computed. Returns whether it was taken."""
    run = await session.get(RunRow, pk)
    if run is None or run.state != "answered" or run.revision != revision:
        return False
    run.state, run.reward, run.breakdown, run.updated_at = "scored", reward, dict(breakdown), now
    await _end_group(session, run.group_id, now)
    return True


async def _end_group(session: AsyncSession, name: str, now: float) -> None:
    """Once each run of a group has ended, the group is ready, or dropped where too few runs have a reward."""
    await session.flush()
    states = (await session.scalars(select(RunRow.state).where(RunRow.group_id == name))).all()
    group = await session.get_one(GroupRow, name)
    if group.state != "running" or not set(states) <= {"scored", "failed"}:
        return
    alone = states.count("scored") == 1 and len(states) > 1
    # by the reward: by the state, SQLite would go through all that were ever scored
    left = update(RunRow).where(RunRow.group_id == name, RunRow.reward.is_not(None))
    await session.execute(left.values(reason=_ALONE if alone else None))
    group.state = "ready" if "scored" in states and not alone else "dropped"
    group.updated_at = now
