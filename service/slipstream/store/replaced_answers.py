"""Answers whose place in the store a retry took. Feedback and marks may still name them.

Feedback is about the text that a user saw. So it is kept whether the answer that took the place says the same.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from sqlalchemy import exists, select, update
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.asyncio import AsyncSession

from slipstream.store.bodies import unpack
from slipstream.store.states import FeedbackState
from slipstream.store.tables.capture import CallRow, ReplacedAnswerRow
from slipstream.store.tables.feedback import FeedbackTargetRow
from slipstream.trajectory import answer_message, message_text, message_tool_calls


class Stored(NamedTuple):
    """The name of a call within its task; the msg_id is that in the store."""

    msg_id: str | None
    started_at: float


class Answer(NamedTuple):
    """An answer. `body`: packed."""

    msg_id: str | None
    body: bytes


class Attempt(NamedTuple):
    """A stored call that a retry replaces. `segments`: the last ones of its requests."""

    pk: int
    answer: Answer
    segments: tuple[int | None, int | None]


class Replaced(NamedTuple):
    """A call that holds the answer of a retry.

    Attributes:
        before: the answers whose place it took; that of the store comes first.
    """

    pk: int
    before: Sequence[Answer]
    now: Answer


async def attempt(session: AsyncSession, task_id: str, call: Stored) -> Attempt | None:
    """The call of this name, to be replaced. None too if feedback names its answer: its user has got that one."""
    query = select(CallRow.id, CallRow.msg_id, CallRow.answer, CallRow.segment_id, CallRow.original_segment_id)
    query = query.where(CallRow.task_id == task_id, CallRow.started_at == call.started_at)
    query = query.where(CallRow.msg_id.is_(None) if call.msg_id is None else CallRow.msg_id == call.msg_id)
    named = exists().where(
        FeedbackTargetRow.call_pk == CallRow.id,
        FeedbackTargetRow.kind == "msg_id",
        FeedbackTargetRow.state != FeedbackState.LATE,  # that is about an answer before this one
    )
    row = (await session.execute(query.where(~named).order_by(CallRow.id.desc()).limit(1))).first()
    if row is None:
        return None
    return Attempt(row.id, Answer(row.msg_id, row.answer), (row.segment_id, row.original_segment_id))


async def note(session: AsyncSession, replaced: Sequence[Replaced]) -> None:
    """Remember the ids of answers that were replaced."""
    if not replaced:
        return
    same = await asyncio.to_thread(lambda: [[_say_the_same(each, one.now) for each in one.before] for one in replaced])
    changed = [one.pk for one, (stored, *_) in zip(replaced, same, strict=True) if not stored]
    if changed:
        earlier = update(ReplacedAnswerRow).where(ReplacedAnswerRow.call_id.in_(changed)).values(same=False)
        await session.execute(earlier.execution_options(synchronize_session=False))
    rows = {
        (answer.msg_id, one.pk): {"msg_id": answer.msg_id, "call_id": one.pk, "same": says}
        for one, all_say in zip(replaced, same, strict=True)
        for answer, says in zip(one.before, all_say, strict=True)
        if answer.msg_id not in (None, one.now.msg_id)
    }
    if rows:
        insert = postgresql.insert if session.get_bind().dialect.name == "postgresql" else sqlite.insert
        new = insert(ReplacedAnswerRow)
        new = new.on_conflict_do_update(index_elements=["msg_id", "call_id"], set_={"same": new.excluded.same})
        await (await session.connection()).execute(new, list(rows.values()))


def _say_the_same(one: Answer, other: Answer) -> bool:
    return _said(one) == _said(other)


def _said(answer: Answer) -> tuple[object, ...]:
    """The text and the calls of tools, without what each attempt has of its own: the calls' ids, and thoughts."""
    message = answer_message(unpack(answer.body))
    calls: object = message_tool_calls(message)
    tools = [_called(call) for call in calls] if isinstance(calls, list) else calls
    return message_text(message), message.get("refusal"), message.get("function_call"), tools


def _called(call: object) -> object:
    """The name and arguments of a tool's call; all of it where it has another form, which servers give too."""
    function = (call.get("function") or call.get("custom")) if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping):
        return call
    return function.get("name"), function.get("arguments", function.get("input"))
