"""Groups and runs in the store: planned, claimed, answered, scored, ready to be delivered."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

import structlog
from sqlalchemy import ColumnElement, Row, event, exists, func, literal, select, update
from sqlalchemy.ext.asyncio import AsyncSession

from slipstream.jsontext import to_json
from slipstream.store import feedback
from slipstream.store.bulk import update_rows
from slipstream.store.states import GroupState, RunState, move
from slipstream.store.tables.capture import CallRow
from slipstream.store.tables.runs import GroupRow, RunRow
from slipstream.tenants import qualified, tenant_of

_log = structlog.get_logger(__name__)

_EndedRun = Row[str, str, RunState, float | None, int | None]
"""Columns of a group that may have ended: group, task, state, reward and policy version of a run."""

_ALONE = "not delivered: no other run of its group has a reward, and there is nothing to compare it with"
"""A group was planned with several runs, and one is left. Trinity would take its reward for its advantage, as if it
were that much better than others; with some algorithms its commit would fail, and lose all that goes with it."""


@dataclass(frozen=True, slots=True)
class ClaimedRun:
    """A run that is to be sent to the Explorer: its row, the sidecar that took it, and the captured request that it
    repeats, packed."""

    pk: int
    owner: int
    group_id: str
    run_id: int
    attempts: int
    task_id: str
    request: bytes


@dataclass(frozen=True, slots=True)
class Postponed:
    """A run that is to be sent again, so many seconds after this is stored: told so, a clock that is set meanwhile does
    not matter."""

    pk: int
    owner: int
    attempts: int
    after: float


@dataclass(frozen=True, slots=True)
class Answered:
    """The policy's answer to a run; the bodies are packed. `grace`: seconds until it is to be scored."""

    pk: int
    owner: int
    msg_id: str
    request: bytes
    answer: bytes
    latency: float
    policy_version: int | None
    grace: float


@dataclass(frozen=True, slots=True)
class Ended:
    """End of a run: with a reward, or with the reason why it gets none.

    Attributes:
        owner: the sidecar that sent it, or scored it.
        revision: of the answered run that was looked at; None where it ends without an answer.
    """

    pk: int
    owner: int
    reward: float | None = None
    breakdown: Mapping[str, float | None] = field(default_factory=dict)
    reason: str = ""
    revision: int | None = None


async def waiting(session: AsyncSession) -> int:
    """Runs that are not answered yet."""
    count = select(func.count()).where(RunRow.state.in_((RunState.PENDING, RunState.RUNNING)))
    return await session.scalar(count) or 0


async def claim(session: AsyncSession, owner: int, limit: int, now: float) -> list[ClaimedRun]:
    """Take pending runs for a sidecar, the longest due first; they are `running` from here on. What another one is
    taking at this moment is left to it.

    By that order a run that was postponed goes behind those that waited for it, so that one which the Explorer always
    fails on cannot keep the others from it.
    """
    query = (
        select(
            RunRow.id, literal(owner), RunRow.group_id, RunRow.run_id, RunRow.attempts, CallRow.task_id, CallRow.request
        )
        .join(GroupRow, GroupRow.id == RunRow.group_id)
        .join(CallRow, CallRow.id == GroupRow.call_id)
        .where(RunRow.state == RunState.PENDING, RunRow.due_at <= now)
        .order_by(RunRow.due_at, RunRow.id)
        .limit(limit)
        .with_for_update(of=RunRow, skip_locked=True)
    )
    claimed = [ClaimedRun(*row) for row in await session.execute(query)]
    sent = move(RunState.PENDING, RunState.RUNNING)
    taken = [(sent, owner, now, run.pk) for run in claimed]
    await update_rows(session, RunRow, ("state", "owner", "updated_at"), taken)
    return claimed


async def unclaim(session: AsyncSession, owner: int, known: Collection[int]) -> None:
    """Whatever a sidecar has taken, and does not know of, waits again: nobody would ever send it."""
    unknown = update(RunRow).where(RunRow.state == RunState.RUNNING, RunRow.owner == owner, RunRow.id.not_in(known))
    unknown = unknown.values(state=move(RunState.RUNNING, RunState.PENDING), owner=None)
    await session.execute(unknown.execution_options(synchronize_session=False))


async def unclaimed_answers(session: AsyncSession, now: float) -> bool:
    """Return whether there are answered runs that are due and unclaimed: scored before, an agent's, or a dead
    sidecar's."""
    return bool(await session.scalar(select(exists().where(*_unclaimed_answers(now)))))


async def claim_answers(session: AsyncSession, owner: int, limit: int, now: float) -> None:
    """Take answered runs that are due and nobody's, to be scored by this sidecar. What another one is taking at this
    moment is left to it."""
    due = select(RunRow.id).where(*_unclaimed_answers(now)).order_by(RunRow.due_at).limit(limit)
    pks = (await session.scalars(due.with_for_update(skip_locked=True))).all()
    await update_rows(session, RunRow, ("owner",), [(owner, pk) for pk in pks])


def _unclaimed_answers(now: float) -> tuple[ColumnElement[bool], ...]:
    return RunRow.state == RunState.ANSWERED, RunRow.due_at <= now, RunRow.owner.is_(None)


async def postpone(session: AsyncSession, postponed: Sequence[Postponed], now: float) -> None:
    """Send runs again later."""
    held = await _still_sent(session, postponed)
    again = move(RunState.RUNNING, RunState.PENDING)
    rows = [(again, None, run.attempts, now + run.after, now, run.pk) for run in postponed if run.pk in held]
    await update_rows(session, RunRow, ("state", "owner", "attempts", "due_at", "updated_at"), rows)


async def _still_sent(session: AsyncSession, back: Sequence[Postponed | Answered]) -> dict[int, str]:
    """Return the returned runs that their senders still hold, with their tasks: retention, or another sidecar, may have
    taken one."""
    if not back:
        return {}
    sent = select(RunRow.id, RunRow.owner, GroupRow.task_id).join(GroupRow, GroupRow.id == RunRow.group_id)
    sent = sent.where(RunRow.id.in_([one.pk for one in back]), RunRow.state == RunState.RUNNING)
    found = {(pk, owner): task_id for pk, owner, task_id in await session.execute(sent)}
    return {one.pk: found[one.pk, one.owner] for one in back if (one.pk, one.owner) in found}


async def answer(session: AsyncSession, answers: Sequence[Answered], now: float) -> int:
    """Keep the policy's answers, each to be scored when it is due, or now where its feedback is already there, by the
    sidecar that sent it.

    Returns:
        How many were kept: a run may be gone (retention), another sidecar's, or its answer be stored already.
    """
    if not answers:
        return 0
    held = await _still_sent(session, answers)
    kept = [one for one in answers if one.pk in held]
    answered = move(RunState.RUNNING, RunState.ANSWERED)
    await update_rows(
        session,
        RunRow,
        ("state", "due_at", "msg_id", "request", "answer", "latency", "policy_version", "updated_at"),
        [
            (
                answered,
                now + one.grace,
                one.msg_id,
                one.request,
                one.answer,
                one.latency,
                one.policy_version,
                now,
                one.pk,
            )
            for one in kept
        ],
    )
    refs: list[feedback.Ref] = [("msg_id", qualified(tenant_of(held[one.pk]), one.msg_id)) for one in kept]
    awaited = await feedback.awaited(session, refs, now)
    await feedback.match_waiting(session, [ref for ref in refs if ref in awaited], now)
    return len(kept)


async def end(session: AsyncSession, ended: Sequence[Ended], now: float) -> set[int]:
    """Give runs their reward, or their reason; each group goes on with the others.

    Returns:
        The runs that have ended so. One is left as it is when it is gone, or another sidecar's by now, or when feedback
        came while its reward was computed: it is scored again with that.
    """
    if not ended:
        return set()
    query = select(RunRow.id, RunRow.group_id, RunRow.owner, RunRow.state, RunRow.revision)
    rows = await session.execute(query.where(RunRow.id.in_([one.pk for one in ended])))
    found = {pk: (group, now_so) for pk, group, *now_so in rows}
    scored, failed = [], []
    taken: dict[int, str] = {}
    for one in ended:
        group, (owner, state, revision) = found.get(one.pk, ("", (None, None, None)))
        before, looked_at = (RunState.RUNNING, revision) if one.revision is None else (RunState.ANSWERED, one.revision)
        if (owner, state, revision) != (one.owner, before, looked_at):
            continue
        taken[one.pk] = group
        if one.reward is not None:
            scored.append(
                (move(before, RunState.SCORED), None, one.reward, to_json(dict(one.breakdown)).decode(), now, one.pk)
            )
        else:
            # a reason may quote an answer, and with it a lone surrogate, which no text column takes
            failed.append(
                (move(before, RunState.FAILED), None, one.reason.encode("utf-8", "replace").decode(), now, one.pk)
            )
    await update_rows(session, RunRow, ("state", "owner", "reward", "breakdown", "updated_at"), scored)
    await update_rows(session, RunRow, ("state", "owner", "reason", "updated_at"), failed)
    await end_groups(session, set(taken.values()), now)
    return set(taken)


async def end_groups(session: AsyncSession, names: Collection[str], now: float) -> None:
    """Once each run of a group has ended, the group is ready, or dropped where too few runs have a reward."""
    of_group: dict[str, list[_EndedRun]] = {}
    for row in await session.execute(
        select(RunRow.group_id, GroupRow.task_id, RunRow.state, RunRow.reward, RunRow.policy_version)
        .join(GroupRow, GroupRow.id == RunRow.group_id)
        .where(RunRow.group_id.in_(names), GroupRow.state == GroupState.RUNNING)
    ):
        of_group.setdefault(row.group_id, []).append(row)
    ends, lonely = [], []
    for name, rows in of_group.items():
        states = [row.state for row in rows]
        if not set(states) <= {RunState.SCORED, RunState.FAILED}:
            continue
        alone = states.count(RunState.SCORED) == 1 and len(states) > 1
        lonely += [name] if alone else []
        end_state = GroupState.READY if RunState.SCORED in states and not alone else GroupState.DROPPED
        ends.append((move(GroupState.RUNNING, end_state), now, name))
        _log_once_stored(session, ends[-1][0], rows)
    await update_rows(session, GroupRow, ("state", "updated_at"), ends)
    # by the reward: by the state, SQLite would go through all that were ever scored
    rewarded = update(RunRow).where(RunRow.reward.is_not(None)).execution_options(synchronize_session=False)
    if lonely:
        await session.execute(rewarded.where(RunRow.group_id.in_(lonely)).values(reason=_ALONE))
    if others := [name for *_, name in ends if name not in lonely]:  # one of them may have been alone before
        of_others = rewarded.where(RunRow.group_id.in_(others), RunRow.reason.is_not(None))
        await session.execute(of_others.values(reason=None))


def _log_once_stored(session: AsyncSession, state: str, runs: Sequence[_EndedRun]) -> None:
    """Log the end of a group, when the transaction that ends it is committed: one line for all of its runs."""
    rewards = [run.reward for run in runs if run.state == RunState.SCORED]
    said: dict[str, Any] = {"state": state, "runs": len(runs), "failed": len(runs) - len(rewards)}
    if rewards:
        said |= {"reward_mean": fmean(rewards), "reward_min": min(rewards), "reward_max": max(rewards)}
    said = {name: round(value, 4) if isinstance(value, float) else value for name, value in said.items()}
    versions = sorted({run.policy_version for run in runs if run.policy_version is not None})
    if versions:
        said["policy_version"] = versions[0] if len(versions) == 1 else versions
    log = _log.info if rewards else _log.warning
    ids = {"task_id": runs[0].task_id, "group_id": runs[0].group_id}

    def committed(_: object) -> None:
        log("group_ended", **ids, **said)

    event.listen(session.sync_session, "after_commit", committed, once=True)
