"""The facade in the store: answers that it passed on, the rewards that clients gave them, and their groups."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import delete, distinct, func, select, update
from sqlalchemy.ext.asyncio import AsyncSession

from slipstream.store.counts import by_state, newest
from slipstream.store.experiences import Experience, ReadyGroup
from slipstream.store.planning import suffixed
from slipstream.store.states import FAILED_FACADE_GROUPS, WAITING_FACADE_GROUPS, FacadeGroupState, GroupState, move
from slipstream.store.tables.facade import FacadeAnswerRow, FacadeGroupRow
from slipstream.store.tables.runs import GroupRow
from slipstream.tenants import qualified, tenant_of

LARGEST_RUN_ID = 2**31 - 1
"""Trinity keeps it in an integer column."""

_LOOKED_AT = 100
"""Number of newest failures that are searched for those of one tenant."""

_NAMES_AT_ONCE = 100
"""Number of names that are looked for in one query, to find a free one."""


@dataclass(frozen=True, slots=True)
class NewAnswer:
    """An answer that the facade passed on. `flaw`: why it is not whole, None if it is."""

    msg_id: str
    tenant: str
    choices: int
    flaw: str | None
    policy_version: int | None


@dataclass(frozen=True, slots=True)
class Reward:
    """A feedback of the facade.

    Attributes:
        name: what a group is called where the client gave no task_id.
        tenant: whose answers it may name; None for those of all.
        run_key: the client's name of the run; None makes a run of each feedback.
        group_size: how many runs make the group complete, where the client says so.
    """

    name: str
    msg_ids: tuple[str, ...]
    reward: float
    task_id: str | None
    run_key: str | None
    group_size: int | None = None
    tenant: str | None = None


@dataclass(frozen=True, slots=True)
class Receipt:
    """Result for the answers that a feedback named: rewarded now, rewarded before, not whole, or not ours."""

    accepted: int
    repeated: int
    rejected: tuple[str, ...]
    unknown: tuple[str, ...]


async def add_answer(session: AsyncSession, new: NewAnswer, now: float) -> None:
    """Remember an answer. A second one of the same id changes nothing: that id has its owner."""
    if await session.get(FacadeAnswerRow, new.msg_id) is None:
        session.add(
            FacadeAnswerRow(
                msg_id=new.msg_id,
                tenant=new.tenant,
                choices=new.choices,
                flaw=new.flaw,
                policy_version=new.policy_version,
                created_at=now,
            )
        )


async def add_reward(session: AsyncSession, given: Reward, default_size: int, now: float) -> Receipt:
    """Give a reward to answers that have none yet: the first one wins, and a repeated feedback has no effect."""
    query = select(FacadeAnswerRow).where(FacadeAnswerRow.msg_id.in_(given.msg_ids))
    if given.tenant is not None:
        query = query.where(FacadeAnswerRow.tenant == given.tenant)
    known = {row.msg_id: row for row in await session.scalars(query)}
    named = [known[name] for name in dict.fromkeys(given.msg_ids) if name in known]
    fresh = [row for row in named if row.flaw is None and row.reward is None]
    if fresh:
        group = await _waiting_group(session, given, fresh[0].tenant, now)
        run_id = await _run_id(session, group.id, given.run_key)
        for row in fresh:
            row.group_id, row.run_key, row.run_id, row.reward = group.id, given.run_key, run_id, given.reward
        await session.flush()
        group.updated_at = now
        group.size = given.group_size or group.size
        group_size = group.size or default_size
        if await _runs(session, group.id) >= group_size:
            group.state = move(group.state, FacadeGroupState.READY)
    rejected = tuple(row.msg_id for row in named if row.flaw is not None)
    return Receipt(
        accepted=len(fresh),
        repeated=len(named) - len(fresh) - len(rejected),
        rejected=rejected,
        unknown=tuple(name for name in dict.fromkeys(given.msg_ids) if name not in known),
    )


async def end_waiting(session: AsyncSession, before: float, default_size: int, now: float) -> int:
    """Groups without a new run since this time are complete as they are. Returns how many were dropped: one run has
    nothing to be compared with, and group algorithms would take its bare reward for an advantage."""
    query = select(FacadeGroupRow).where(
        FacadeGroupRow.state == FacadeGroupState.OPEN, FacadeGroupRow.updated_at <= before
    )
    dropped = 0
    for group in (await session.scalars(query)).all():
        group.state = move(group.state, FacadeGroupState.READY)
        group_size = group.size or default_size
        if group_size > 1 and await _runs(session, group.id) == 1:
            await drop(session, group.id, f"one run came, of {group_size} that are compared", now)
            dropped += 1
    return dropped


async def take_ready(session: AsyncSession, commit_id: int) -> None:
    """Take the complete groups into a commit; one that is called like another group in it waits for the next."""
    others = select(GroupRow.id).where(GroupRow.commit_id == commit_id, GroupRow.state == GroupState.COMMITTING)
    ready = update(FacadeGroupRow).where(
        FacadeGroupRow.state == FacadeGroupState.READY, FacadeGroupRow.id.not_in(others)
    )
    taken = move(FacadeGroupState.READY, FacadeGroupState.COMMITTING)
    await session.execute(ready.values(state=taken, commit_id=commit_id, attempts=FacadeGroupRow.attempts + 1))


async def of_commit(session: AsyncSession, commit_id: int) -> list[ReadyGroup]:
    """The groups of a commit that is being sent, in a stable order."""
    query = (
        select(FacadeGroupRow.id, FacadeAnswerRow)
        .join(FacadeAnswerRow, FacadeAnswerRow.group_id == FacadeGroupRow.id)
        .where(FacadeGroupRow.commit_id == commit_id, FacadeGroupRow.state == FacadeGroupState.COMMITTING)
        .order_by(FacadeGroupRow.updated_at, FacadeGroupRow.id, FacadeAnswerRow.run_id, FacadeAnswerRow.msg_id)
    )
    groups: dict[str, list[Experience]] = {}
    for name, row in await session.execute(query):
        assert row.reward is not None, "an answer of a group has a reward"
        assert row.run_id is not None, "and a run"
        groups.setdefault(name, []).append(Experience(row.msg_id, row.reward, row.run_id, row.choices))
    return [ReadyGroup(name, tuple(experiences), "facade") for name, experiences in groups.items()]


async def drop(session: AsyncSession, name: str, reason: str, now: float) -> None:
    """A group has come to nothing."""
    group = await session.get_one(FacadeGroupRow, name)
    group.state, group.reason, group.updated_at = move(group.state, FacadeGroupState.DROPPED), reason, now


async def requeue(session: AsyncSession, name: str, reason: str, limit: int | None, now: float) -> bool:
    """The Explorer lost this group. With a limit it takes it again: it waits for the next commit, unless so many have
    tried. Returns whether it does."""
    group = await session.get_one(FacadeGroupRow, name)
    if limit is None or group.attempts >= limit:
        group.state, group.reason, group.updated_at = move(group.state, FacadeGroupState.LOST), reason, now
        return False
    group.state, group.commit_id = move(group.state, FacadeGroupState.READY), None
    return True


async def experiences(session: AsyncSession, *states: FacadeGroupState) -> int:
    """Rewarded experiences of the groups in these states."""
    query = (
        select(func.sum(FacadeAnswerRow.choices))
        .join(FacadeGroupRow, FacadeGroupRow.id == FacadeAnswerRow.group_id)
        .where(FacadeGroupRow.state.in_(states))
    )
    return await session.scalar(query) or 0


async def waiting(session: AsyncSession) -> int:
    """Rewarded experiences that no commit has taken yet."""
    return await experiences(session, *WAITING_FACADE_GROUPS)


async def overview(session: AsyncSession, tenant: str | None) -> dict[str, Any]:
    """Counts for people: the newest answers by what is known of them, groups by state, and why the newest of those
    that failed did.

    Args:
        tenant: whose failures are named; None for those of all. Counts are of all.
    """
    whole, rewarded = FacadeAnswerRow.flaw.is_(None), FacadeAnswerRow.reward.is_not(None)
    recent = newest(FacadeAnswerRow.created_at, whole.label("whole"), rewarded.label("rewarded")).subquery()
    counted = select(func.count(), func.count().filter(recent.c.whole), func.count().filter(recent.c.rewarded))
    answers, whole_ones, rewarded_ones = (await session.execute(counted.select_from(recent))).one()
    under_way = FacadeGroupRow.state.in_((*WAITING_FACADE_GROUPS, FacadeGroupState.COMMITTING))
    return {
        "answers": {"whole": whole_ones, "not_whole": answers - whole_ones},
        "rewarded": rewarded_ones,
        "experiences_waiting": await waiting(session),
        "groups": await by_state(session, FacadeGroupRow.state, FacadeGroupRow.updated_at, under_way),
        "failed_groups": await _newest_failures(session, tenant),
    }


async def _newest_failures(session: AsyncSession, tenant: str | None) -> list[dict[str, Any]]:
    found: list[FacadeGroupRow] = []
    for state in FAILED_FACADE_GROUPS:  # one by one, each by the index; together they would be sorted
        query = select(FacadeGroupRow).where(FacadeGroupRow.state == state)
        newest_first = query.order_by(FacadeGroupRow.updated_at.desc()).limit(5 if tenant is None else _LOOKED_AT)
        failed = await session.scalars(newest_first)
        found += [group for group in failed if tenant in (None, tenant_of(group.task_id or ""))]
    found.sort(key=lambda group: group.updated_at, reverse=True)
    return [{"group_id": group.id, "state": group.state, "reason": group.reason} for group in found[:5]]


async def delete_older(session: AsyncSession, before: float, limit: int, now: float) -> tuple[int, int]:
    """Delete what nobody touched since this time: groups that have ended, with their answers, and answers without a
    reward. A group that still waits is dropped first, so that it is seen for another retention.

    Returns:
        How many rows were dealt with, and how many of them were groups that are dropped.
    """
    due = select(FacadeGroupRow).where(
        FacadeGroupRow.updated_at < before, FacadeGroupRow.state != FacadeGroupState.COMMITTING
    )
    groups = (await session.scalars(due.order_by(FacadeGroupRow.updated_at).limit(limit))).all()
    waiting = [group for group in groups if group.state in WAITING_FACADE_GROUPS]
    for group in waiting:
        await drop(session, group.id, "not delivered within capture.retention", now)
    ended = [group.id for group in groups if group not in waiting]
    await session.execute(delete(FacadeGroupRow).where(FacadeGroupRow.id.in_(ended)))
    bare = select(FacadeAnswerRow.msg_id).where(FacadeAnswerRow.created_at < before, FacadeAnswerRow.reward.is_(None))
    answers = (await session.scalars(bare.limit(limit))).all()
    await session.execute(delete(FacadeAnswerRow).where(FacadeAnswerRow.msg_id.in_(answers)))
    return max(len(groups), len(answers)), len(waiting)


async def _waiting_group(session: AsyncSession, given: Reward, tenant: str, now: float) -> FacadeGroupRow:
    """The group of this task that still takes runs; a new one where there is none, or it has gone out."""
    task_id = None if given.task_id is None else qualified(tenant, given.task_id)
    if task_id is not None:
        query = select(FacadeGroupRow).where(FacadeGroupRow.task_id == task_id)
        group = await session.scalar(query.where(FacadeGroupRow.state.in_(WAITING_FACADE_GROUPS)))
        if group is not None:
            return group
    first = task_id or given.name
    group = FacadeGroupRow(
        id=await _free_name(session, first), task_id=task_id, state=FacadeGroupState.OPEN, updated_at=now
    )
    session.add(group)
    await session.flush()
    return group


async def _free_name(session: AsyncSession, first: str) -> str:
    """The first of the names `first`, `first~1`, `first~2` and so on that no group has."""
    start = 0
    while True:
        generations = range(start, start + _NAMES_AT_ONCE)
        names = [suffixed(first, f"~{generation}" if generation else "") for generation in generations]
        taken = set(await session.scalars(select(FacadeGroupRow.id).where(FacadeGroupRow.id.in_(names))))
        free = next((name for name in names if name not in taken), None)
        if free is not None:
            return free
        start += _NAMES_AT_ONCE


async def _run_id(session: AsyncSession, group_id: str, key: str | None) -> int:
    query = select(FacadeAnswerRow.run_key, FacadeAnswerRow.run_id).where(FacadeAnswerRow.group_id == group_id)
    known = (await session.execute(query.distinct())).all()
    return run_number(key, [(name, number) for name, number in known if number is not None])


def run_number(key: str | None, known: Sequence[tuple[str | None, int]]) -> int:
    """The integer by which the Explorer knows a run of a group, for the client's own name of it.

    An integer is kept where it is free; another name gets the lowest free one, in the order of appearance.

    Args:
        known: names and numbers of the runs that the group has.
    """
    numbers: Mapping[str | None, int] = dict(known)
    taken: Collection[int] = {number for _, number in known}
    if key is not None and key in numbers:
        return numbers[key]
    if key is not None and key.isdecimal() and (number := int(key)) <= LARGEST_RUN_ID and number not in taken:
        return number
    return next(free for free in itertools.count() if free not in taken)


async def _runs(session: AsyncSession, group_id: str) -> int:
    query = select(func.count(distinct(FacadeAnswerRow.run_id))).where(FacadeAnswerRow.group_id == group_id)
    return await session.scalar(query) or 0
