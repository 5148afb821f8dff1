"""Answers whose place in the store a retry took. Feedback and marks may still name them.

Feedback is about the text that a user saw. So it is kept whether the answer that took the place says the same.
"""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from sqlalchemy import exists, select, update
from sqlalchemy.ext.asyncio import AsyncSession

from slipstream.store.bodies import unpack
from slipstream.store.tables.capture import CallRow, ReplacedAnswerRow
from slipstream.store.tables.feedback import FeedbackTargetRow
from slipstream.trajectory import answer_message


class Stored(NamedTuple):
    """The name of a call within its task; the msg_id is that in the store."""

    msg_id: str | None
    started_at: float


class Attempt(NamedTuple):
    """A stored call that a retry replaces.

    Attributes:
        answer: packed.
        segments: the last ones of its requests.
    """

    pk: int
    msg_id: str | None
    answer: bytes
    segments: tuple[int | None, int | None]


async def attempt(session: AsyncSession, task_id: str, call: Stored) -> Attempt | None:
    """The call of this name, to be replaced. None too if feedback names its answer: its user has got that one."""
    query = select(CallRow.id, CallRow.msg_id, CallRow.answer, CallRow.segment_id, CallRow.original_segment_id)
    query = query.where(CallRow.task_id == task_id, CallRow.started_at == call.started_at)
    query = query.where(CallRow.msg_id.is_(None) if call.msg_id is None else CallRow.msg_id == call.msg_id)
    named = exists().where(FeedbackTargetRow.call_pk == CallRow.id, FeedbackTargetRow.kind == "msg_id")
    row = (await session.execute(query.where(~named).order_by(CallRow.id.desc()).limit(1))).first()
    return None if row is None else Attempt(row.id, row.msg_id, row.answer, (row.segment_id, row.original_segment_id))


async def note(session: AsyncSession, before: Attempt, msg_id: str | None, answer: bytes) -> None:
    """Remember the id of an answer that was replaced.

    Args:
        msg_id, answer: of the answer that took its place; packed.
    """
    same = await asyncio.to_thread(_say_the_same, before.answer, answer)
    if not same:
        earlier = ReplacedAnswerRow.call_id == before.pk
        await session.execute(update(ReplacedAnswerRow).where(earlier).values(same=False))
    if before.msg_id not in (None, msg_id):
        await session.merge(ReplacedAnswerRow(msg_id=before.msg_id, call_id=before.pk, same=same))


def _say_the_same(one: bytes, other: bytes) -> bool:
    return answer_message(unpack(one)) == answer_message(unpack(other))
