"""Groups and runs in the store: planned, claimed, answered, scored, ready to be delivered."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import structlog
from sqlalchemy import ColumnElement, exists, func, literal, select, update
from sqlalchemy.ext.asyncio import AsyncSession

from slipstream.jsontext import to_json
from slipstream.store import feedback, quarantine, segments
from slipstream.store.bulk import update_rows
from slipstream.store.group_ends import end_groups
from slipstream.store.segments import StoredRequest
from slipstream.store.states import RunState, move
from slipstream.store.tables.capture import CallRow
from slipstream.store.tables.runs import GroupRow, RunRow
from slipstream.tenants import qualified, tenant_of

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class ClaimedRun:
    """A run that is to be sent to the Explorer: its row, the sidecar that took it, the id in the store of the captured
    answer, and the captured request that it repeats."""

    pk: int
    owner: int
    group_id: str
    run_id: int
    attempts: int
    task_id: str
    msg_id: str | None
    request: StoredRequest


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
    """The policy's answer to a run; the bodies are packed, of the request what its call has not. `grace`: seconds
    until it is to be scored."""

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

    Of those that were on their way when a process died, one at a time is.

    By that order a run that was postponed goes behind those that waited for it, so that one which the Explorer always
    fails on cannot keep the others from it.
    """
    deaths = await quarantine.pending_suspect(session, owner, now)
    query = (
        select(
            RunRow.id, literal(owner), RunRow.group_id, RunRow.run_id, RunRow.attempts, CallRow.task_id, CallRow.msg_id,
            CallRow.request, CallRow.segment_id,
        )
        .join(GroupRow, GroupRow.id == RunRow.group_id)
        .join(CallRow, CallRow.id == GroupRow.call_id)
        .where(RunRow.state == RunState.PENDING, RunRow.due_at <= now, (RunRow.tries == 0) | RunRow.id.in_(deaths))
        .order_by(RunRow.due_at, RunRow.id)
        .limit(limit)
        .with_for_update(of=RunRow, skip_locked=True)
    )  # fmt: skip
    rows: list[Any] = list(await session.execute(query))
    requests = await segments.stored(session, [row[-2:] for row in rows])
    claimed = [ClaimedRun(*(*row[:-2], request)) for row, request in zip(rows, requests, strict=True)]
    sent = move(RunState.PENDING, RunState.RUNNING)
    taken = [(sent, owner, 1 + deaths.get(run.pk, 0), now, run.pk) for run in claimed]
    await update_rows(session, RunRow, ("state", "owner", "tries", "updated_at"), taken)
    return claimed


async def unclaim(session: AsyncSession, owner: int, known: Collection[int]) -> None:
    """Whatever a sidecar has taken, and does not know of, waits again: nobody would ever send it."""
    unknown = update(RunRow).where(RunRow.state == RunState.RUNNING, RunRow.owner == owner, RunRow.id.not_in(known))
    unknown = unknown.values(state=move(RunState.RUNNING, RunState.PENDING), owner=None, tries=0)
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
    rows = [(again, None, run.attempts, 0, now + run.after, now, run.pk) for run in postponed if run.pk in held]
    await update_rows(session, RunRow, ("state", "owner", "attempts", "tries", "due_at", "updated_at"), rows)


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
        ("state", "tries", "due_at", "msg_id", "request", "answer", "latency", "policy_version", "updated_at"),
        [
            (
                answered,
                0,
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
            if owner != one.owner:
                found.pop(one.pk, None)  # whether it ends another sidecar is not known here
            continue
        taken[one.pk] = group
        if one.reward is not None:
            scored.append(
                (move(before, RunState.SCORED), None, 0, one.reward, to_json(dict(one.breakdown)).decode(), now, one.pk)
            )
        else:
            # a reason may quote an answer, and with it a lone surrogate, which no text column takes
            failed.append(
                (move(before, RunState.FAILED), None, 0, one.reason.encode("utf-8", "replace").decode(), now, one.pk)
            )
    await update_rows(session, RunRow, ("state", "owner", "tries", "reward", "breakdown", "updated_at"), scored)
    await update_rows(session, RunRow, ("state", "owner", "tries", "reason", "updated_at"), failed)
    await quarantine.forgive_runs(session, [pk for pk in found if pk not in taken])
    await end_groups(session, set(taken.values()), now)
    return set(taken)
