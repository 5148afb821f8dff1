"""Imported conversations come into the store, each whole, and none twice."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from sqlalchemy import select, update
from sqlalchemy.ext.asyncio import AsyncSession

from slipstream.store import erasure, feedback
from slipstream.store.bulk import batches
from slipstream.store.feedback import NewFeedback
from slipstream.store.recording import Added, NewCall, add_calls
from slipstream.store.tables.capture import CallRow, TaskRow
from slipstream.store.tables.feedback import FeedbackRow

REASON = "imported"
"""Reason of the decision on an imported task: it is not trained on by reinforcement learning."""


class NewConversation(NamedTuple):
    """A conversation that is to be stored.

    Attributes:
        calls: of one session, in order.
        feedback: on them.
        at: when its last call began, where it came from; None if nothing says it.
    """

    calls: Sequence[NewCall]
    feedback: Sequence[NewFeedback]
    at: float | None


@dataclass(frozen=True, slots=True)
class Stored:
    """Result for one conversation: how much was stored of it now. `erased`: it was deleted before, and stays so."""

    calls: int = 0
    feedback: int = 0
    erased: bool = False


@dataclass(frozen=True, slots=True)
class Imported:
    """Result for several, in order, and the work that follows from it."""

    stored: Sequence[Stored]
    undecided: bool
    rescore: bool


async def add(session: AsyncSession, new: Sequence[NewConversation], now: float, *, select_: bool) -> Imported:
    """Store conversations, in a transaction that writes alone. Calls that are there already stay as they are, and what
    is new of their tasks comes behind them.

    Args:
        select_: leave it to the selection strategies whether their tasks are trained on.
    """
    erased = await erasure.standing(session, min((one.at or 0.0 for one in new), default=now))
    there = await _known(session, {call.task_id for one in new for call in one.calls})
    given = await _given(session, [each.id for one in new for each in one.feedback])
    calls: list[NewCall] = []
    stored = []
    said: list[NewFeedback] = []
    for one in new:
        if _is_erased(one, erased):
            stored.append(Stored(erased=True))
            continue
        fresh = [call for call in one.calls if (call.task_id, call.msg_id) not in there]
        there.update((call.task_id, call.msg_id) for call in fresh)
        judged = [each for each in one.feedback if each.id not in given]
        given.update(each.id for each in judged)
        calls += fresh
        said += judged
        stored.append(Stored(len(fresh), len(judged)))
    added = await add_calls(session, calls, now) if calls else Added(undecided=False, rescore=False)
    rescore = added.rescore
    for each in said:
        rescore |= await feedback.add(session, each, now)
    if not select_:
        await _decide(session, sorted({call.task_id for call in calls}))
    return Imported(stored, added.undecided and select_, rescore)


async def _known(session: AsyncSession, task_ids: Collection[str]) -> set[tuple[str, str | None]]:
    """The calls of these tasks that are stored, by task and answer."""
    found = set[tuple[str, str | None]]()
    for some in batches(sorted(task_ids)):
        query = select(CallRow.task_id, CallRow.msg_id).where(CallRow.task_id.in_(some))
        found.update((task_id, msg_id) for task_id, msg_id in await session.execute(query))
    return found


async def _given(session: AsyncSession, ids: Sequence[str]) -> set[str]:
    """Those of these feedbacks that are stored."""
    found = set[str]()
    for some in batches(ids):
        found.update(await session.scalars(select(FeedbackRow.id).where(FeedbackRow.id.in_(some))))
    return found


async def _decide(session: AsyncSession, task_ids: Sequence[str]) -> None:
    """Write down that these tasks are not selected, but for those that somebody had selected since an earlier
    import."""
    for some in batches(task_ids):
        of_these = TaskRow.id.in_(some), TaskRow.selected.is_(False)
        decided = update(TaskRow).where(*of_these).values(decided=True, reason=REASON)
        await session.execute(decided.execution_options(synchronize_session=False))


def _is_erased(one: NewConversation, erased: dict[tuple[str, str], float]) -> bool:
    names = {("session_id", one.calls[0].session_id), *(("task_id", call.task_id) for call in one.calls)}
    return any(name in erased and (one.at is None or one.at <= erased[name]) for name in names)
